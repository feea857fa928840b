"""Tokens carry their index through take and put; TREAD is built on it."""

import pytest
import torch

from fulcrum.spec.errors import BadInput
from fulcrum.training.flow.fillers import Velocity
from fulcrum.training.model.fillers import Carry
from fulcrum.training.model.transformer import Backbone, Tokens, span
from fulcrum.training.step import Step

SIZES = dict(channels=4, patch=2, width=16, depth=4, heads=2, text_width=8)


def keep_of(batch: int, tokens: int, kept: int, seed: int = 0) -> torch.Tensor:
    noise = torch.rand(batch, tokens, generator=torch.Generator().manual_seed(seed))
    return noise.argsort(1)[:, :kept].sort(1).values


def model_and_inputs(route: torch.nn.Module | None = None) -> tuple:
    model = Backbone(**SIZES, route=route)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    x_t = torch.randn(3, 4, 8, 8, generator=generator)
    text = (
        torch.randn(3, 5, 8, generator=generator),
        torch.arange(5) < torch.tensor([5, 2, 1])[:, None],
    )
    return model, x_t, torch.rand(3, generator=generator), text


def test_take_then_put_restores_the_places() -> None:
    h = torch.randn(2, 6, 3)
    keep = torch.tensor([[0, 2, 5], [1, 3, 4]])
    part = Tokens(h).take(keep)
    assert torch.equal(part.h[1, 2], h[1, 4]) and torch.equal(part.index, keep)
    whole = Tokens(h).put(part._replace(h=part.h + 100))
    assert whole.index is None
    changed = (whole.h - h).mean(-1).round() == 100
    assert changed.tolist() == [
        [True, False, True, False, False, True],
        [False, True, False, True, True, False],
    ]


def test_taking_twice_still_speaks_of_the_grid() -> None:
    h = torch.randn(1, 6, 2)
    once = Tokens(h).take(torch.tensor([[1, 3, 5]]))
    twice = once.take(torch.tensor([[2, 0]]))
    assert twice.index.tolist() == [[5, 1]] and torch.equal(twice.h[0, 0], h[0, 5])
    with pytest.raises(ValueError, match="whole grid"):
        once.put(twice)
    with pytest.raises(ValueError, match="one row per image"):
        Tokens(h).take(torch.tensor([[0], [1]]))


def test_keeping_all_equals_dense() -> None:
    model, x_t, t, text = model_and_inputs(Carry(start=1, end=2))
    everything = torch.arange(16).expand(3, 16)
    dense, kept = model(x_t, t, text), model(x_t, t, text, keep=everything)
    assert (dense.pred - kept.pred).abs().max() < 1e-5 * dense.pred.abs().max()


def test_the_others_skip_the_span_and_the_kept_use_their_own_positions() -> None:
    model, x_t, t, text = model_and_inputs(Carry(start=1, end=2))
    keep = keep_of(3, 16, 6)
    out = model(x_t, t, text, keep=keep, taps=range(4))
    assert out.taps[0].index is None and out.taps[3].index is None
    assert torch.equal(out.taps[1].index, keep) and out.taps[2].h.shape == (3, 6, 16)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(1))
    # their order means nothing: positions travel with them
    shuffled = model(x_t, t, text, keep=keep[:, order])
    assert (shuffled.pred - out.pred).abs().max() < 1e-5 * out.pred.abs().max()
    moved = model(x_t, t, text, keep=keep_of(3, 16, 6, seed=9))
    assert (moved.pred - out.pred).abs().max() > 1e-3


def test_what_the_span_does_not_see_comes_back_unchanged() -> None:
    """With silent blocks after the span, a token that skipped it reaches the head as it was before
    it."""
    model, x_t, t, text = model_and_inputs(Carry(start=1, end=3))
    keep = keep_of(3, 16, 6)
    out = model(x_t, t, text, keep=keep, taps=(0, 3))
    merged = out.taps[0].put(out.taps[3])
    skipped = torch.ones(3, 16, dtype=torch.bool).scatter(1, keep, False)
    assert torch.equal(merged.h[skipped], out.taps[0].h[skipped])
    active = torch.nn.functional.silu(model.condition(x_t, t, None))
    head = model.final_layer(merged.h, active)
    assert (head - model.final_layer(out.taps[0].h, active)).abs().max() > 0


def test_bounds_and_misuse() -> None:
    assert span(Carry(start=2, end=-4), 16) == (2, 12) and span(None, 16) is None
    with pytest.raises(ValueError, match="does not fit 4 blocks"):
        span(Carry(start=2, end=4), 4)
    model, x_t, t, text = model_and_inputs()
    with pytest.raises(ValueError, match="route is dense"):
        model(x_t, t, text, keep=keep_of(3, 16, 6))
    with pytest.raises(ValueError, match="multiples of patch"):
        model(x_t[..., :7], t, text)


@pytest.mark.parametrize("kind", ["taps", "frozen_taps"])
def test_a_term_that_taps_no_block_is_refused_when_the_step_is_built(kind) -> None:
    model, *_ = model_and_inputs()
    term = torch.nn.Identity()
    setattr(term, kind, (1, 4))
    with pytest.raises(BadInput, match=r"no block to tap at \[4\]: this model has blocks 0 to 3"):
        Step(model, Velocity().build(None), {"own": term}, {"own": 1.0})
