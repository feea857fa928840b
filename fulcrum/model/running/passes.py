"""A batch through a backbone in several passes, side by side where there are lanes: the same sum, faster on a CPU.

B batch, N tokens
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from fulcrum.model.backbone import Backbone, Out
from fulcrum.model.packed_text import ReadText, Text
from fulcrum.model.running.lanes import Lanes, run_passes
from fulcrum.model.running.run_block import run_backbone
from fulcrum.model.tokens import Tokens

CACHED_TOKENS = 2048  # of a pass on the CPU; half as many where every pass has one core, and that core's cache, to itself


class Passes:
    """Called like the backbone, and gives what it gives for the whole batch.

    Several lanes are threads, each with passes of its own: not for sharded weights, which have hooks.
    """

    def __init__(self, backbone: Backbone, lanes: int = 1) -> None:
        self.backbone, self.lanes = backbone, lanes
        self.known: set[tuple[Any, ...]] = set()  # shapes that were run in lanes before: compiled by then

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
        rows = rows_per_pass(len(x_t), x_t[0, 0].numel() // self.backbone.patch**2, x_t.device, self.lanes)
        if rows == len(x_t):
            return run_backbone(
                self.backbone, x_t, t, text, keep=keep, taps=taps, size=size, drop_path=drop_path, short=short
            )
        parts = zip(*(split_rows(value, rows) for value in (t, text, keep, size, drop_path)), strict=False)
        run = partial(run_backbone, self.backbone, taps=taps, short=short)
        passes = [
            partial(run, t=t, text=text, keep=keep, size=size, drop_path=drop_path)
            for t, text, keep, size, drop_path in parts
        ]
        xs = torch.split(x_t, rows)
        if self.lanes == 1:
            return join([one(x) for one, x in zip(passes, xs, strict=True)])
        shapes = (torch.is_grad_enabled(), rows, x_t.shape[1:], keep is None or keep.shape[1], drop_path is None, short)
        lanes = Lanes(self.lanes, abreast=self.backbone.run_block.graphs == "none" or shapes in self.known)
        self.known.add(shapes)
        return join(self.run_lanes(passes, xs, lanes))

    def run_lanes(self, passes: Sequence[Callable[[Tensor], Out]], xs: Sequence[Tensor], lanes: Lanes) -> list[Out]:
        """What the passes give, run side by side. Text gets no gradient: it comes from a frozen encoder."""
        indexes: dict[int, dict[int, Tensor | None]] = {}

        def tensors(number: int, x: Tensor) -> list[Tensor]:
            out = passes[number](x)
            indexes[number] = {layer: tokens.index for layer, tokens in out.taps.items()}
            return [out.pred, *(tokens.h for tokens in out.taps.values())]

        weights = list(self.backbone.parameters())
        outputs = run_passes([partial(tensors, i) for i in range(len(passes))], xs, weights, lanes)
        return [
            Out(pred, {layer: Tokens(h, index) for (layer, index), h in zip(indexes[i].items(), streams, strict=True)})
            for i, (pred, *streams) in enumerate(outputs)
        ]


def rows_per_pass(batch: int, tokens: int, device: torch.device, lanes: int = 1) -> int:
    """How many images go through the stack together: on a CPU as many as keep a layer's features in its cache.

    One batch in several passes is the same sum; equal passes, so that they share one graph, and as many for every lane if
    that can be. Measured at width 128: linears 10-15 % faster at 1,024-2,048 tokens than at 4,096 and more.
    """
    if device.type != "cpu" or (lanes == 1 and batch * tokens <= CACHED_TOKENS):
        return batch
    most = CACHED_TOKENS // min(lanes, 2)
    fitting = [rows for rows in range(2, batch // lanes + 1) if batch % rows == 0 and rows * tokens <= most]
    even = [rows for rows in fitting if batch // rows % lanes == 0]
    return max(even or fitting, default=1 if batch * tokens > CACHED_TOKENS else batch)


def split_rows(value: Any, rows: int) -> Iterator[Any]:
    """Cut a tensor, or every tensor of a tuple, into groups of `rows`; None and numbers are the same for every group."""
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
            torch.cat([tokens.h for tokens in streams]), None if first.index is None else torch.cat(indexes)
        )
    return Out(torch.cat([out.pred for out in outs]), taps)
