"""Run a batch through the backbone in several passes, in parallel threads where that is faster."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from fulcrum.training.model.transformer import Backbone, Out, ReadText, Text, Tokens

# --------------------------------------------------------------------------------------------------
# Passes of a model side by side, one thread each, and their gradients as one node of the graph.
#
# Two threads inside every operator meet at its end and wait for the slower; two passes with a
# thread each meet once. A lane takes every so-many-th pass, in order, and lanes are added in their
# order: the result does not depend on who ends first.


Result = TypeVar("Result")
Pass = Callable[[Tensor], list[Tensor]]  # x of the pass -> its outputs that may have gradients


class Lanes(NamedTuple):
    number: int
    #: false: one after the other, for code that is being compiled, which must not happen twice at
    #: once
    abreast: bool = True


def run_passes(
    passes: Sequence[Pass], xs: Sequence[Tensor], weights: Sequence[Tensor], lanes: Lanes
) -> list[list[Tensor]]:
    """The outputs of every pass, with gradients for `xs` and `weights` where they want them and the
    caller is recording."""
    if not torch.is_grad_enabled():
        return _forth(passes, xs, lanes)
    apply: Callable[..., tuple[Tensor, ...]] = _Passes.apply
    flat = apply(passes, len(xs), lanes, *xs, *weights)
    each = len(flat) // len(passes)
    return [list(flat[i * each : (i + 1) * each]) for i in range(len(passes))]


def _forth(passes: Sequence[Pass], xs: Sequence[Tensor], lanes: Lanes) -> list[list[Tensor]]:
    outs = side_by_side(
        lambda lane: [passes[i](xs[i]) for i in range(lane, len(xs), lanes.number)], lanes
    )
    return [outs[i % lanes.number][i // lanes.number] for i in range(len(xs))]


def side_by_side(work: Callable[[int], Result], lanes: Lanes) -> list[Result]:
    """work(0) ... work(count - 1), each in a thread of its own whose operators use one core."""
    recording, threads = torch.is_grad_enabled(), torch.get_num_threads()

    def alone(lane: int) -> Result:
        # of the process, and of this thread's own OpenMP team: both are needed
        torch.set_num_threads(1)
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


# a forked child has the pool, but none of its threads
os.register_at_fork(after_in_child=_pool.cache_clear)


class _Passes(torch.autograd.Function):
    """Autograd walks one graph with one thread: here each lane walks the graphs of its own
    passes."""

    @staticmethod
    def forward(
        ctx: Any, passes: Sequence[Pass], count: int, lanes: Lanes, *leaves: Tensor
    ) -> tuple[Tensor, ...]:
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
                ends = [
                    (out, grad)
                    for out, grad in zip(outs[i], grads[i * each :], strict=False)
                    if out.requires_grad
                ]
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
    return [
        b if a is None else a if b is None else a.add_(b) for a, b in zip(total, part, strict=True)
    ]


# --------------------------------------------------------------------------------------------------
# A batch through a backbone in several passes, side by side where there are lanes: the same sum,
# faster on a CPU.
#
# B batch, N tokens


# of a pass on the CPU; half as many where every pass has one core, and that core's cache, to itself
CACHED_TOKENS = 2048


class Passes:
    """Called like the backbone, and gives what it gives for the whole batch.

    Several lanes are threads, each with passes of its own: not for sharded weights, which have
    hooks.
    """

    def __init__(self, backbone: Backbone, lanes: int = 1) -> None:
        self.backbone = backbone
        self.lanes = lanes
        # Shapes that were run before. The first run of a shape may compile: one lane at a time.
        self.known: set[tuple[Any, ...]] = set()

    def __call__(
        self,
        x_t: Tensor,
        t: Tensor,
        text: Text | ReadText,
        keep: Tensor | None = None,
        taps: Collection[int] = (),
        size: Tensor | None = None,
        drop_path: Tensor | None = None,
        short: bool = False,
    ) -> Out:
        tokens = x_t[0, 0].numel() // self.backbone.patch**2
        rows = rows_per_pass(len(x_t), tokens, x_t.device, self.lanes)
        if rows == len(x_t):
            return self.backbone(x_t, t, text, keep, taps, size, drop_path, short)
        parts = zip(
            *(split_rows(value, rows) for value in (t, text, keep, size, drop_path)), strict=False
        )
        passes = [
            partial(
                self.backbone,
                t=t,
                text=text,
                keep=keep,
                taps=taps,
                size=size,
                drop_path=drop_path,
                short=short,
            )
            for t, text, keep, size, drop_path in parts
        ]
        xs = torch.split(x_t, rows)
        if self.lanes == 1:
            return join([one(x) for one, x in zip(passes, xs, strict=True)])
        shapes = (
            torch.is_grad_enabled(),
            rows,
            x_t.shape[1:],
            keep is None or keep.shape[1],
            drop_path is None,
            short,
        )
        lanes = Lanes(self.lanes, abreast=shapes in self.known)
        self.known.add(shapes)
        return join(self.run_lanes(passes, xs, lanes))

    def run_lanes(
        self, passes: Sequence[Callable[[Tensor], Out]], xs: Sequence[Tensor], lanes: Lanes
    ) -> list[Out]:
        """What the passes give, run side by side. Text gets no gradient: it comes from a frozen
        encoder."""
        indexes: dict[int, dict[int, Tensor | None]] = {}

        def tensors(number: int, x: Tensor) -> list[Tensor]:
            out = passes[number](x)
            indexes[number] = {layer: tokens.index for layer, tokens in out.taps.items()}
            return [out.pred, *(tokens.h for tokens in out.taps.values())]

        weights = list(self.backbone.parameters())
        outputs = run_passes([partial(tensors, i) for i in range(len(passes))], xs, weights, lanes)
        return [
            Out(
                pred,
                {
                    layer: Tokens(h, index)
                    for (layer, index), h in zip(indexes[i].items(), streams, strict=True)
                },
            )
            for i, (pred, *streams) in enumerate(outputs)
        ]


def rows_per_pass(batch: int, tokens: int, device: torch.device, lanes: int = 1) -> int:
    """How many images go through the stack together: on a CPU as many as keep a layer's features in
    its cache.

    One batch in several passes is the same sum; equal passes, so that they share one graph, and as
    many for every lane if that can be. Measured at width 128: linears 10-15 % faster at 1,024-2,048
    tokens than at 4,096 and more.
    """
    if device.type != "cpu" or (lanes == 1 and batch * tokens <= CACHED_TOKENS):
        return batch
    most = CACHED_TOKENS // min(lanes, 2)
    fitting = [
        rows for rows in range(2, batch // lanes + 1) if batch % rows == 0 and rows * tokens <= most
    ]
    even = [rows for rows in fitting if batch // rows % lanes == 0]
    return max(even or fitting, default=1 if batch * tokens > CACHED_TOKENS else batch)


def split_rows(value: Any, rows: int) -> Iterator[Any]:
    """Cut a tensor, or every tensor of a tuple, into groups of `rows`; None and numbers are the
    same for every group."""
    if value is None or isinstance(value, int):
        return repeat(value)
    if isinstance(value, Tensor):
        return iter(torch.split(value, rows))
    parts = zip(*(split_rows(part, rows) for part in value), strict=False)
    return (type(value)(*part) for part in parts) if hasattr(value, "_fields") else parts


def join(outs: list[Out]) -> Out:
    """The outputs of several passes, one below the other."""
    taps = {}
    for layer, first in outs[0].taps.items():
        streams = [out.taps[layer] for out in outs]
        indexes = [tokens.index for tokens in streams if tokens.index is not None]
        taps[layer] = Tokens(
            torch.cat([tokens.h for tokens in streams]),
            None if first.index is None else torch.cat(indexes),
        )
    return Out(torch.cat([out.pred for out in outs]), taps)
