"""The real compiler over every shape of graph that levers make; minutes, so it runs apart."""

import pytest
import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.laws import Court
from fulcrum.spec.run import System
from fulcrum.training.checkpoint import State
from fulcrum.training.loop import train


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        "short_captions",
        "tread",
        "sprint",
        "resolution_ladder",
        "resolution_condition",
        "repa",
        "pixels",
        "wide_codec",
        "end_to_end_codec",
        "muon",
        "bf16_op",
        "bf16_compute",
    ],
)
def test_compiled_training_equals_eager(name, tmp_path):
    case = Court(CATALOG, tmp_path).case(CATALOG.levers[name]())
    torch._dynamo.reset()
    losses = {}
    for compiled in (False, True):
        built = case.court.assembled(case.run, System(compile=compiled))
        seen: list[float] = []
        train(
            built,
            State(),
            [lambda look, seen=seen: seen.append(look.loss)],
            lambda: False,
        )
        losses[compiled] = seen
    assert losses[True] == pytest.approx(losses[False], rel=2e-4)
