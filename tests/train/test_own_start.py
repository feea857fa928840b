"""The seam `start`: a user's own filler says which weights a run begins from."""

from typing import Any

import pytest
import torch

from fulcrum.spec.edit import key, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.spec.slots import StartFiller
from fulcrum.training.build import build
from fulcrum.training.fillers import Fresh
from fulcrum.training.session import Order, perform


class Shrunk(StartFiller):
    """The keyed weights, each times a factor; `stray` gives one that no denoiser has."""

    kind = "shrunk"
    factor: float = 0.5
    stray: str = ""

    def require_fit(self, run: Any) -> None:
        if self.factor == 0:
            raise BadInput("a network of zeros learns nothing", "give another factor")

    def build(self, ctx: Any) -> Any:
        weights = build(put(ctx.run, "start", Fresh()), ctx.seed).backbone.state_dict()
        made = {name: value * self.factor for name, value in weights.items()}
        return {**made, self.stray: torch.zeros(1)} if self.stray else made


def order(run, out):
    return Order(run, 3, "test", out, System(), quiet=True)


def test_a_run_begins_from_them(tiny, tmp_path):
    run = put(tiny("spark", "budget.images=8", "budget.batch=8"), "start", Shrunk())
    begun = {}

    def look(built, folder, state):
        begun.update(
            {name: value.clone() for name, value in built.step.backbone.state_dict().items()}
        )
        return []

    result = perform(order(run, tmp_path), print, look)
    fresh = build(put(run, "start", Fresh()), 3).backbone.state_dict()
    assert begun.keys() == fresh.keys() and all(
        torch.equal(begun[name], fresh[name] * 0.5) for name in fresh
    )
    assert result["key"] == key(run, 3) != key(put(run, "start", Fresh()), 3)


def test_what_does_not_fit_is_refused(tiny, tmp_path):
    run = tiny("spark", "budget.images=8", "budget.batch=8")
    with pytest.raises(BadInput, match="zeros"):
        perform(order(put(run, "start", Shrunk(factor=0.0)), tmp_path), print)
    assert not list(tmp_path.glob("*/*.json"))  # before anything was made
    with pytest.raises(BadInput, match="do not fit this model: 1 tensors differ, such as 'heads'"):
        perform(order(put(run, "start", Shrunk(stray="heads")), tmp_path), print)
