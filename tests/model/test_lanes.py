"""Passes side by side give the values and gradients of one after the other, the same at every
call."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fulcrum.training.model import passes as room
from fulcrum.training.model.fillers import Carry
from fulcrum.training.model.passes import Lanes, Passes, rows_per_pass, run_passes, side_by_side
from fulcrum.training.model.transformer import (
    Backbone,
    Out,
    compile_backbone,
    compile_blocks,
    recompute_blocks,
)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Backbone:
    # two images of 16 tokens in a pass, where there are two lanes
    monkeypatch.setattr(room, "CACHED_TOKENS", 64)
    torch.manual_seed(0)
    made = Backbone(4, 2, 32, 4, 2, 24, route=Carry(start=1, end=2))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.1)
    return made


def given(grad: bool = False, rows: int = 8) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    torch.manual_seed(1)
    mask = torch.arange(6) < torch.randint(1, 7, (rows, 1))
    return (
        torch.randn(rows, 4, 8, 8, requires_grad=grad),
        torch.rand(rows),
        (torch.randn(rows, 6, 24), mask),
    )


def numbers(denoise: Passes, rows: int = 8) -> list[Tensor]:
    """Outputs, taps, and the gradients of everything, for a loss that uses all of them."""
    x_t, t, text = given(grad=True, rows=rows)
    keep = torch.arange(0, 16, 2).expand(rows, 8)
    out: Out = denoise(x_t, t, text, keep=keep, taps=(0, 1))
    loss = out.pred.square().mean() + sum(tokens.h.square().mean() for tokens in out.taps.values())
    assert out.taps[0].index is None and torch.equal(out.taps[1].index, keep)
    grads = torch.autograd.grad(loss, (x_t, *denoise.backbone.parameters()), allow_unused=True)
    return [out.pred, out.taps[0].h, out.taps[1].h, *(grad for grad in grads if grad is not None)]


@pytest.mark.parametrize(("lanes", "rows"), [(2, 8), (3, 8), (2, 6), (4, 8)])
def test_lanes_change_nothing_but_the_last_bits(model: Backbone, lanes: int, rows: int) -> None:
    expected = numbers(Passes(model), rows)
    side_by_side = Passes(model, lanes)
    found = numbers(side_by_side, rows)
    assert len(found) == len(expected) > 20
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max() + 1e-8
    for a, b in zip(numbers(side_by_side, rows), found, strict=True):
        assert torch.equal(a, b), "another call gave other bits"


def test_lanes_run_in_threads_of_their_own_and_give_back_the_setting() -> None:
    before, meeting, seen = torch.get_num_threads(), threading.Barrier(2, timeout=20), set()

    def work(lane: int) -> int:
        meeting.wait()  # breaks if the two do not run at the same time
        seen.add((threading.get_ident(), torch.get_num_threads(), torch.is_grad_enabled()))
        return lane

    with torch.no_grad():
        assert side_by_side(work, Lanes(2)) == [0, 1]
    assert len(seen) == 2 and {(threads, recording) for _, threads, recording in seen} == {
        (1, False)
    }
    assert torch.get_num_threads() == before


def test_an_error_in_a_lane_reaches_the_caller_and_the_lanes_go_on() -> None:
    def fails(lane: int) -> None:
        raise ValueError(f"lane {lane}")

    with pytest.raises(ValueError, match="lane 0"):
        side_by_side(fails, Lanes(2))
    assert side_by_side(lambda lane: lane, Lanes(2)) == [0, 1]


def test_frozen_weights_and_unused_ones_get_no_gradient() -> None:
    used, frozen, unused = (torch.ones(3, requires_grad=wanted) for wanted in (True, False, True))
    xs = [torch.full((3,), float(i)) for i in range(4)]
    outs = run_passes([lambda x: [x * used * frozen]] * 4, xs, [used, frozen, unused], Lanes(2))
    sum(out[0].sum() for out in outs).backward()
    assert (
        torch.equal(used.grad, torch.full((3,), 6.0))
        and frozen.grad is None
        and unused.grad is None
    )


def test_no_graph_is_kept_without_gradients(model: Backbone) -> None:
    expected = model(*given()).pred.detach()
    with torch.no_grad():
        out = Passes(model, 2)(*given())
    assert (
        out.pred.grad_fn is None and (out.pred - expected).abs().max() < 1e-5 * expected.abs().max()
    )


# the compiler looks at it itself
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("compiled", [compile_blocks, compile_backbone])
def test_recomputed_and_compiled_blocks_run_in_lanes(
    model: Backbone, compiled: Callable[..., None]
) -> None:
    expected = numbers(Passes(model))
    denoise = Passes(model, 2)
    recompute_blocks(model)
    compiled(model, backend="eager")
    for _ in range(2):  # compiled one after the other, then abreast
        for a, b in zip(numbers(denoise), expected, strict=True):
            assert (a - b).abs().max() <= 1e-5 * b.abs().max() + 1e-8
    torch._dynamo.reset()


def test_every_lane_gets_as_many_passes_if_that_can_be() -> None:
    cpu = torch.device("cpu")
    for batch, tokens, lanes in ((64, 16, 2), (64, 64, 2), (64, 256, 2), (48, 100, 4), (32, 16, 8)):
        rows = rows_per_pass(batch, tokens, cpu, lanes)
        assert (
            batch % rows == 0
            and batch // rows % lanes == 0
            and rows * tokens <= room.CACHED_TOKENS // 2
        )
    assert (
        rows_per_pass(1, 16, cpu, 2) == 1
        and rows_per_pass(7, 16, cpu, 2) == 7
        and rows_per_pass(2, 4096, cpu, 2) == 1
    )
