"""The curated split is chosen, not only held out: what a curator would keep, and nothing else."""

import numpy as np
import pytest

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import look, scenes


@pytest.mark.parametrize("most", (1, 2, 3))
def test_every_curated_scene_keeps_the_rule(most):
    s = scenes("curated", np.arange(600), most)
    here = s.size >= 0
    assert s.count.max() == min(most, 2) and not (s.size[here] == 0).any()
    assert not (s.background == v.BACKGROUNDS.index("striped")).any()
    pairs = s.take(s.count == 2)
    gap = np.hypot(pairs.x[:, 0] - pairs.x[:, 1], pairs.y[:, 0] - pairs.y[:, 1])
    assert (gap > pairs.radius[:, 0] + pairs.radius[:, 1] + 0.04).all(), (
        "a place lies free between two objects"
    )
    assert all(
        (np.bincount(getattr(s, name)[here]) > 0).all() for name in ("shape", "colour", "place")
    )


def test_others_would_not_pass():
    s = scenes("train", np.arange(600))
    assert (
        (s.count == 3).any()
        and (s.size == 0).any()
        and (s.background == v.BACKGROUNDS.index("striped")).any()
    )


def test_curated_photographs_are_cleaner():
    curated, train = (look(scenes(split, np.arange(1_500)).key) for split in ("curated", "train"))
    for name in ("grain", "blur", "vignette"):
        assert getattr(curated, name).mean() < 0.9 * getattr(train, name).mean(), name
    assert curated.specks[:, :, 6].mean() < 0.97 * train.specks[:, :, 6].mean()
