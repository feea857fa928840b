"""The contrastive term: against a naive loop, and the same however a batch is cut."""

from types import SimpleNamespace

import pytest
import torch

from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training.build import assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.flow.fillers import EvenWeight, MinSNR
from fulcrum.training.loop import train
from fulcrum.training.loss.terms import ContrastiveTerm, View


def view(rows):
    generator = torch.Generator().manual_seed(0)
    v, target = (torch.randn(rows, 2, 3, 3, generator=generator) for _ in range(2))
    return View(
        None,
        SimpleNamespace(t=torch.rand(rows, generator=generator)),
        v=v,
        target=target,
        x=v,
        taps={},
    )


def cut(whole, rows):
    return whole._replace(
        v=whole.v[rows], target=whole.target[rows], draw=SimpleNamespace(t=whole.draw.t[rows])
    )


@pytest.mark.parametrize("weight", [EvenWeight(), MinSNR()], ids=str)
def test_equals_a_naive_loop(weight):
    seen, weigh = (
        view(11),
        weight.build(SimpleNamespace(run=SimpleNamespace(flow=SimpleNamespace(noise_scale=1.0)))),
    )
    expected = torch.zeros(11)
    for chunk in range(0, 8, 4):  # rows 8, 9, 10 belong to no whole chunk
        for row in range(4):
            other = chunk + (row - 1) % 4
            apart = ((seen.v[chunk + row] - seen.target[other]) ** 2).mean()
            expected[chunk + row] = -apart * weigh(seen.draw.t)[chunk + row]
    assert torch.allclose(ContrastiveTerm(4, weigh)(seen), expected)


def test_every_row_meets_another_row_of_its_chunk():
    """Targets that name their row: the distance to oneself is zero, so it must not appear."""
    rows = torch.arange(12.0).view(12, 1, 1, 1)
    seen = view(12)._replace(v=rows, target=rows)
    losses = ContrastiveTerm(4, torch.ones_like)(seen)
    assert set(losses.tolist()) == {-1.0, -9.0}  # a neighbour, or once round the chunk of four


def test_cutting_a_batch_at_chunk_bounds_changes_nothing():
    whole, term = view(16), ContrastiveTerm(4, torch.ones_like)
    parts = [term(cut(whole, rows)) for rows in (slice(0, 4), slice(4, 12), slice(12, 16))]
    assert torch.equal(term(whole), torch.cat(parts))


@pytest.mark.parametrize(("chunk", "rows"), [(1, 6), (8, 6)])
def test_nobody_to_compare_with_gives_nothing(chunk, rows):
    assert torch.equal(ContrastiveTerm(chunk, torch.ones_like)(view(rows)), torch.zeros(rows))


def test_its_minimum_is_the_stretched_velocity():
    """u' is independent of u: minimising E (v - u)^2 - w E (v - u')^2 over v gives (E u - w E u') /
    (1 - w)."""
    target, weight = view(64).target, 0.05
    v = torch.zeros_like(target, requires_grad=True)
    seen = view(64)._replace(v=v, target=target)
    loss = (v - target).square().flatten(1).mean(1).sum() + weight * ContrastiveTerm(
        8, torch.ones_like
    )(seen).sum()
    (gradient,) = torch.autograd.grad(loss, v)
    # the loss is quadratic: one Newton step is the minimum
    curvature = 2 * (1 - weight) / target[0].numel()
    others = target.unflatten(0, (-1, 8)).roll(1, dims=1).flatten(0, 1)
    assert torch.allclose(
        -gradient / curvature, (target - weight * others) / (1 - weight), atol=1e-5
    )


def test_accumulation_gives_the_same_weights(tiny, cache):
    # with 1e-15 a step is a sign, and rounding turns it where a gradient is nearly zero
    smooth = "optim.rule.eps=1e-5"
    run = tiny("spark + contrastive_flow(chunk=4, weight=0.3)", "budget.images=16", smooth)
    whole, parts = (after(run, cache, System(microbatch=rows)) for rows in (None, 4))
    for name, value in whole.items():
        assert (value - parts[name]).abs().max() < 1e-6, name  # of weights of size one
    other = after(
        tiny("spark + contrastive_flow(chunk=8, weight=0.3)", "budget.images=16"), cache, System()
    )
    # the chunk matters
    assert max(float((other[name] - value).abs().max()) for name, value in whole.items()) > 1e-4


def after(run, cache, system):
    built = assemble(run, 0, system, Feed(run, 0, cache))
    train(built, State(), [], lambda: False)
    return built.step.backbone.state_dict()


def test_a_microbatch_may_not_cut_a_chunk(tiny, cache):
    run = tiny("spark + contrastive_flow")
    for rows in (4, 3):
        with pytest.raises(
            BadInput, match=f"compares chunks of 8 rows, but a backward pass has {rows}"
        ):
            assemble(run, 0, System(microbatch=rows), Feed(run, 0, cache))
    # more than the batch: one pass holds it all
    assemble(run, 0, System(microbatch=12), Feed(run, 0, cache))
    # no term that compares: any size
    assemble(tiny(), 0, System(microbatch=3), Feed(tiny(), 0, cache))
