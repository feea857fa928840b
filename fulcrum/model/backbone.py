"""The denoiser: image tokens read text through a stack of blocks; parameter names are those of diffusers' PRX.

B batch, C channels, h w image size, N tokens, K kept, L text tokens, E text width, D width, d head width
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fulcrum.cost.flops import Sizes
from fulcrum.model.block import Block
from fulcrum.model.embed import SINUSOIDS, TIME_FACTOR, Head, ResolutionIn, VectorIn, patchify, sinusoids, unpatchify
from fulcrum.model.lanes import Lanes, run_passes
from fulcrum.model.linear import Linear
from fulcrum.model.roles import Role
from fulcrum.model.rope import rotary_table
from fulcrum.model.route import DenseRoute, span
from fulcrum.model.text import Packed, ReadText, pack
from fulcrum.model.tokens import Tokens, gather_rows

CACHED_TOKENS = 2048  # of a pass on the CPU; half as many where every pass has one core, and that core's cache, to itself


class Out(NamedTuple):
    pred: Tensor  # (B, C, h, w)
    taps: dict[int, Tokens]  # by block, the stream after it


class Backbone(nn.Module):
    def __init__(
        self,
        channels: int,
        patch: int,
        width: int,
        depth: int,
        heads: int,
        text_width: int,
        mlp_ratio: float = 3.5,
        axes: tuple[int, int] | None = None,
        theta: float = 10_000.0,
        bottleneck: int | None = None,
        resolution: bool = False,
        route: nn.Module | None = None,
        compute: torch.dtype = torch.float32,
    ):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not divisible by heads {heads}: choose a multiple")
        head = width // heads
        if axes is None and head % 4:
            raise ValueError(f"head width {head} cannot be halved into two even rotary axes: make it a multiple of 4")
        self.axes = (head // 2, head // 2) if axes is None else tuple(axes)
        if len(self.axes) != 2 or sum(self.axes) != head or any(a % 2 for a in self.axes):
            raise ValueError(f"axes {self.axes} must be two even numbers that add up to the head width {head}")
        self.channels, self.patch, self.width, self.depth, self.heads = channels, patch, width, depth, heads
        self.text_width, self.mlp_ratio, self.theta = text_width, mlp_ratio, theta
        self.bottleneck, self.resolution, self.compute = bottleneck, resolution, compute
        self.lanes = 1  # passes that run side by side on the CPU; `open_lanes` sets it
        self.graphs: set[Any] = set()  # what was run in lanes before: compiled by then
        self.compiled = False  # `compile_blocks` turns it on
        self.recompute = False  # activation checkpointing of each block; `recompute_blocks` turns it on

        features = channels * patch * patch
        if bottleneck is None:
            self.img_in: nn.Module = Linear(features, width, Role.embed, compute=compute)
        else:
            narrow = Linear(features, bottleneck, Role.embed, compute=compute)
            self.img_in = nn.Sequential(narrow, Linear(bottleneck, width, Role.embed, compute=compute))
        self.txt_in = Linear(text_width, width, Role.embed, compute=compute)
        self.time_in = VectorIn(width, compute)
        self.resolution_embedder = ResolutionIn(width, compute) if resolution else None
        self.blocks = nn.ModuleList(Block(width, heads, mlp_ratio, compute) for _ in range(depth))
        self.final_layer = Head(width, features, compute)
        self.route = DenseRoute() if route is None else route
        self.span = span(self.route, depth)

    def forward(
        self,
        x_t: Tensor,
        t: Tensor,
        text: tuple[Tensor, Tensor | None] | ReadText,
        keep: Tensor | None = None,
        taps: Collection[int] = (),
        size: Tensor | None = None,
        drop_path: Tensor | None = None,
        short: bool = False,
    ) -> Out:
        """x_t (B, C, h, w), t (B,) in [0, 1], text (emb (B, L, E), mask (B, L) true = keep) or what `read_text` gave,
        keep (B, K) positions that the routed span sees (none: all), size (B, 2) to condition on instead of (h, w),
        drop_path (B,) true where the span counts for nothing, short: it does for all, and its blocks do not run."""
        self.check(x_t, taps)
        self.check_route(taps, keep, drop_path, short)
        if size is None and self.resolution:
            size = x_t.new_tensor(x_t.shape[-2:], dtype=torch.float32).expand(len(x_t), 2)
        rows = rows_per_pass(len(x_t), x_t[0, 0].numel() // self.patch**2, x_t.device, self.lanes)
        xs, *others = (split_rows(value, rows) for value in (x_t, t, text, keep, size, drop_path))
        inputs = list(zip(*others, strict=False))  # of every pass, but for its x_t
        if len(inputs) == 1:
            return self.one_pass(x_t, *inputs[0], taps, short)
        passes = [lambda x, rest=rest: self.one_pass(x, *rest, taps, short) for rest in inputs]
        if self.lanes == 1:
            return join([one(x) for one, x in zip(passes, xs, strict=True)])
        graph = (torch.is_grad_enabled(), rows, x_t.shape[1:], keep is None or keep.shape[1], drop_path is None, short)
        lanes = Lanes(self.lanes, abreast=not self.compiled or graph in self.graphs)
        self.graphs.add(graph)
        return join(self.run_lanes(passes, list(xs), lanes))

    def run_lanes(self, passes: Sequence[Callable[[Tensor], Out]], xs: Sequence[Tensor], lanes: Lanes) -> list[Out]:
        """What the passes give, run side by side. Text gets no gradient: it comes from a frozen encoder."""
        indexes: dict[int, dict[int, Tensor | None]] = {}

        def tensors(number: int, x: Tensor) -> list[Tensor]:
            out = passes[number](x)
            indexes[number] = {layer: tokens.index for layer, tokens in out.taps.items()}
            return [out.pred, *(tokens.h for tokens in out.taps.values())]

        found = run_passes([partial(tensors, i) for i in range(len(passes))], xs, list(self.parameters()), lanes)
        return [
            Out(pred, {layer: Tokens(h, index) for (layer, index), h in zip(indexes[i].items(), streams, strict=True)})
            for i, (pred, *streams) in enumerate(found)
        ]

    def one_pass(
        self,
        x_t: Tensor,
        t: Tensor,
        text: tuple[Tensor, Tensor | None] | ReadText,
        keep: Tensor | None,
        size: Tensor | None,
        drop_path: Tensor | None,
        taps: Collection[int],
        short: bool,
    ) -> Out:
        height, width = x_t.shape[-2:]
        tokens = Tokens(self.img_in(patchify(x_t, self.patch)).float())  # (B, N, D)
        whole = rotary_table(height // self.patch, width // self.patch, self.axes, self.theta, x_t.device)  # (1, N, d)
        active = F.silu(self.condition(t, size))  # (B, D); every modulation begins with this SiLU
        if isinstance(text, ReadText):
            texts, place, bias = text.kv, None, text.bias
        else:
            rows, place, bias = self.pack_text(text)
            texts = (rows,) * self.depth  # (M, D), the same for every block
        routed = self.span is not None and (keep is not None or self.route.fuses)
        first, last = self.span if routed else (self.depth, self.depth)  # type: ignore[misc]

        seen: dict[int, Tokens] = {}
        before, table = tokens, whole
        for i, block in enumerate(self.blocks):
            if short and first <= i <= last:
                tokens = self.route.around(tokens) if i == last else tokens
                continue
            if i == first:
                before, tokens = tokens, self.route.split(tokens, keep)
                if tokens.index is not None:  # (B, K, d): rows of their own places
                    table = gather_rows(whole.expand(len(x_t), -1, -1), tokens.index)
            tokens = tokens._replace(h=self.run(block, tokens.h, active, table, texts[i], place, bias))
            if i in taps:
                seen[i] = tokens
            if i == last:
                tokens, table = self.route.merge(before, tokens, drop_path), whole
        return Out(unpatchify(self.final_layer(tokens.h, active).float(), self.patch, height, width), seen)

    def condition(self, t: Tensor, size: Tensor | None) -> Tensor:
        """The vector (B, D) of time, and of the resolution when the model was built to be told."""
        vector = self.time_in(sinusoids(t, SINUSOIDS, TIME_FACTOR))
        return vector if self.resolution_embedder is None else vector + self.resolution_embedder(size)

    def pack_text(self, text: tuple[Tensor, Tensor | None]) -> Packed:
        """The text's real tokens in the stream's width, and where they stand."""
        packed = pack(*text)
        packed = packed._replace(rows=self.txt_in(packed.rows).float())  # (M, D)
        if self.compiled and packed.place is not None:  # M is another number at every batch: one graph for all
            for varying in (packed.rows, packed.place):
                torch._dynamo.maybe_mark_dynamic(varying, 0)
        return packed

    def read_text(self, text: tuple[Tensor, Tensor | None]) -> ReadText:
        """Keys and values of every block for a text, to be passed to many forwards with other x_t and t."""
        rows, place, bias = self.pack_text(text)
        return ReadText(tuple(block.read(rows, place, len(text[0]), bias) for block in self.blocks), bias)

    def run(self, block: nn.Module, *inputs: Tensor | None) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)

    @property
    def sizes(self) -> Sizes:
        """What formulas of cost need to know of this model."""
        return Sizes(
            self.channels,
            self.patch,
            self.width,
            self.depth,
            self.text_width,
            self.mlp_ratio,
            self.bottleneck,
            self.resolution,
            self.span,
            self.route.fuses,
        )

    def check(self, x_t: Tensor, taps: Collection[int]) -> None:
        if x_t.dim() != 4 or x_t.shape[1] != self.channels or any(s % self.patch for s in x_t.shape[-2:]):
            raise ValueError(
                f"x_t must be (B, {self.channels}, h, w) with h and w multiples of patch {self.patch}, "
                f"found {tuple(x_t.shape)}"
            )
        if lost := [i for i in taps if not 0 <= i < self.depth]:
            raise ValueError(f"no block to tap at {lost}: this model has blocks 0..{self.depth - 1}")

    def check_route(self, taps: Collection[int], keep: Tensor | None, drop_path: Tensor | None, short: bool) -> None:
        if keep is not None and self.span is None:
            raise ValueError("keep was given, but the route is dense: give no keep, or build with a route that drops")
        if (drop_path is not None or short) and not self.route.fuses:
            raise ValueError(
                "the path through the span cannot be dropped: this route has no other one; build with a "
                "route that fuses, or give neither drop_path nor short"
            )
        if short and any(self.span[0] <= i <= self.span[1] for i in taps):
            raise ValueError(f"a short pass leaves out blocks {self.span[0]}..{self.span[1]}: they cannot be tapped")
        if short and keep is not None:
            raise ValueError("a short pass keeps no token in the span: give keep or short, not both")


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
    """Cut a tensor, or every tensor of a tuple, into groups of `rows`; None is None for every group."""
    if value is None:
        return repeat(None)
    if isinstance(value, Tensor):
        return iter(value.split(rows))
    parts = zip(*(split_rows(part, rows) for part in value), strict=False)
    return (type(value)(*part) for part in parts) if hasattr(value, "_fields") else parts


def join(outs: list[Out]) -> Out:
    """The outputs of several passes, one below the other."""
    taps = {}
    for layer, first in outs[0].taps.items():
        index = None if first.index is None else torch.cat([out.taps[layer].index for out in outs])
        taps[layer] = Tokens(torch.cat([out.taps[layer].h for out in outs]), index)
    return Out(torch.cat([out.pred for out in outs]), taps)


def open_lanes(backbone: Backbone, lanes: int) -> None:
    """Run the passes of a batch side by side on the CPU, a thread each. Not for sharded weights, which have hooks."""
    backbone.lanes = lanes


def compile_blocks(backbone: Backbone, **given: object) -> None:
    """Compile every block in place; they share one graph, since they differ in their parameters only.

    With several lanes the code between the kernels is C++ too: in Python lanes wait for each other (4-10 % of a step).
    """
    backbone.compiled = True
    if backbone.lanes > 1 and not given:
        given = {"options": {"cpp_wrapper": True}}
    for block in backbone.blocks:
        block.compile(fullgraph=True, **given)


def recompute_blocks(backbone: Backbone) -> None:
    """Activation checkpointing: keep only the inputs of each block, and compute the rest again in the backward."""
    backbone.recompute = True
