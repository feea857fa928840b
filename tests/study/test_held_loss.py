"""The held-out loss beside a training: a GPU is given it for a look, batch by batch, and keeps
nothing of it."""

import pytest
import torch

from fulcrum import phrase
from fulcrum.measure import evaluation as module
from fulcrum.measure.evaluation import BATCH, Held, rows_at_once
from fulcrum.spec.run import System
from fulcrum.training.build import build
from fulcrum.training.model.transformer import Cast
from fulcrum.training.step import Step

GPU = System(device="cuda")


@pytest.fixture
def moves(monkeypatch):
    """Where things are moved, in this order; they stay where they are, so that a GPU need not be
    there."""
    seen = []
    monkeypatch.setattr(module, "VALIDATION", 2 * BATCH)
    monkeypatch.setattr(
        module, "moved", lambda part, device: seen.append(f"batch to {device}") or part
    )
    monkeypatch.setattr(
        Step, "to", lambda step, device: seen.append(f"weights to {device}") or step
    )
    return seen


def held(run, cache, system):
    return Held(run, run.encode.codec.build(None), run.encode.text.build(None), cache, system)


def test_a_gpu_holds_it_for_a_look_and_not_between(tiny, cache, moves):
    """A second model and all of its pictures stood there for the whole training: prx_7b would not
    have begun."""
    run = tiny()
    weights = build(run, 7).backbone.state_dict()
    near = held(run, cache, System()).loss(weights).loss
    moves.clear()
    far = held(run, cache, GPU)
    assert moves == [], "nothing is made before the first look"
    assert far.loss(weights).loss == pytest.approx(near, rel=1e-5)
    looked = ["weights to cuda", "batch to cuda", "batch to cuda", "weights to cpu"]
    assert moves == ["weights to cpu", *looked]


def test_a_look_that_fails_leaves_nothing_there(tiny, cache, moves, monkeypatch):
    far = held(tiny(), cache, GPU)
    weights = build(tiny(), 7).backbone.state_dict()

    def no_room(batch, draw):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(far.step, "look", no_room)
    moves.clear()
    with pytest.raises(torch.OutOfMemoryError):
        far.loss(weights)
    assert moves == ["weights to cuda", "batch to cuda", "weights to cpu"]


@pytest.mark.parametrize("products", ["native", "emulated"])
def test_it_multiplies_as_the_device_does_on_which_it_is_looked_at(
    products, tiny, cache, moves, monkeypatch
):
    monkeypatch.setattr(
        module, "bf16_products", lambda system: products if system.device == "cuda" else "auto"
    )
    far = held(tiny("spark", "precision.compute=bf16"), cache, GPU)
    casts = [
        vars(part)["cast"]
        for part in far.step.modules()
        if isinstance(vars(part).get("cast"), Cast)
    ]
    assert {cast.emulated for cast in casts if cast.dtype == torch.bfloat16} == {
        products == "emulated"
    }


@pytest.mark.parametrize(
    ("recipe", "rows"), [("spark", 32), ("prx_256", 32), ("prx_pixels_1024", 32), ("prx_7b", 8)]
)
def test_of_large_pictures_fewer_are_there_at_a_time(recipe, rows):
    run = phrase(recipe)
    assert rows_at_once(run, "cuda") == rows and rows_at_once(run, "cpu") == BATCH
