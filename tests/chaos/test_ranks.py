"""Two ranks of a training, killed one or both at any moment: started again they end with the bits
of the undisturbed."""

import shutil

import pytest

from chaos import crowd_attack
from chaos.crowd_attack import SCENES
from chaos.target import Prepared
from chaos.trial import Host


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="the shim is written in C")
def test_ranks_that_were_killed_end_with_the_same_bits(tmp_path):
    ranks = [scene for scene in SCENES if scene.ranks]
    with Host() as host:
        found = crowd_attack.attack(Prepared(host, tmp_path), ranks, 0.0, seed=0, least=6)
    assert ranks and found.losses == [] and found.counts["kills"] >= 4
