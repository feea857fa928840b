"""Passes of a model side by side, one thread each, and their gradients as one node of the graph.

Two threads inside every operator meet at its end and wait for the slower; two passes with a thread each meet once. A lane
takes every so-many-th pass, in order, and lanes are added in their order: the result does not depend on who ends first.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
Pass = Callable[[Tensor], list[Tensor]]  # x of the pass -> its outputs that may have gradients


class Lanes(NamedTuple):
    number: int
    abreast: bool = True  # false: one after the other, for code that is being compiled, which must not happen twice at once


def run_passes(passes: Sequence[Pass], xs: Sequence[Tensor], weights: Sequence[Tensor], lanes: Lanes) -> list[list[Tensor]]:
    """The outputs of every pass, with gradients for `xs` and `weights` where they want them and the caller is recording."""
    if not torch.is_grad_enabled():
        return _forth(passes, xs, lanes)
    apply: Callable[..., tuple[Tensor, ...]] = _Passes.apply
    flat = apply(passes, len(xs), lanes, *xs, *weights)
    each = len(flat) // len(passes)
    return [list(flat[i * each : (i + 1) * each]) for i in range(len(passes))]


def _forth(passes: Sequence[Pass], xs: Sequence[Tensor], lanes: Lanes) -> list[list[Tensor]]:
    outs = side_by_side(lambda lane: [passes[i](xs[i]) for i in range(lane, len(xs), lanes.number)], lanes)
    return [outs[i % lanes.number][i // lanes.number] for i in range(len(xs))]


def side_by_side(work: Callable[[int], Result], lanes: Lanes) -> list[Result]:
    """work(0) ... work(count - 1), each in a thread of its own whose operators use one core."""
    recording, threads = torch.is_grad_enabled(), torch.get_num_threads()

    def alone(lane: int) -> Result:
        torch.set_num_threads(1)  # of the process, and of this thread's own OpenMP team: both are needed
        with torch.set_grad_enabled(recording):  # a thread begins with a setting of its own
            return work(lane)

    try:
        threads_of_lanes = _pool(lanes.number if lanes.abreast else 1)
        return list(threads_of_lanes.map(alone, range(lanes.number)))
    finally:
        torch.set_num_threads(threads)


@cache
def _pool(lanes: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lanes, thread_name_prefix="lane")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked child has the pool, but none of its threads


class _Passes(torch.autograd.Function):
    """Autograd walks one graph with one thread: here each lane walks the graphs of its own passes."""

    @staticmethod
    def forward(ctx: Any, passes: Sequence[Pass], count: int, lanes: Lanes, *leaves: Tensor) -> tuple[Tensor, ...]:
        xs = [x.detach().requires_grad_(x.requires_grad) for x in leaves[:count]]
        with torch.enable_grad():
            ctx.outs = _forth(passes, xs, lanes)
        ctx.lanes, ctx.xs = lanes, xs
        ctx.weights = [leaf for leaf in leaves[count:] if leaf.requires_grad]
        ctx.wanted = [leaf.requires_grad for leaf in leaves[count:]]
        return tuple(tensor.detach() for out in ctx.outs for tensor in out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        outs, xs, weights, each = ctx.outs, ctx.xs, ctx.weights, len(ctx.outs[0])
        of_x: list[Tensor | None] = [None] * len(xs)

        def back(lane: int) -> list[Tensor | None]:
            total: list[Tensor | None] = [None] * len(weights)
            for i in range(lane, len(xs), ctx.lanes.number):
                leaves = [xs[i], *weights] if xs[i].requires_grad else weights
                # A tap before the first weight that learns has no history.
                ends = [(out, grad) for out, grad in zip(outs[i], grads[i * each :], strict=False) if out.requires_grad]
                tails, slopes = zip(*ends, strict=True)
                gradients = list(torch.autograd.grad(tails, leaves, slopes, allow_unused=True))
                of_x[i] = gradients.pop(0) if xs[i].requires_grad else None
                total = added(total, gradients)
            return total

        total: list[Tensor | None] = [None] * len(weights)
        for part in side_by_side(back, ctx.lanes):
            total = added(total, part)
        left = iter(total)
        return (None, None, None, *of_x, *(next(left) if wanted else None for wanted in ctx.wanted))


def added(total: list[Tensor | None], part: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of the same weights added, in place; none is a gradient of nothing."""
    return [b if a is None else a if b is None else a.add_(b) for a, b in zip(total, part, strict=True)]
