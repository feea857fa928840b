"""The denoiser: image tokens read text through a stack of blocks; parameter names are those of diffusers' PRX.

How it is run (a batch in passes, side by side, compiled, with activations computed again) is decided outside: `passes`,
`run_block`.

B batch, C channels, h w image size, N tokens, K kept, L text tokens, E text width, D width, d head width
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.model.bf16 import ALL_FP32, OpDtypes
from fulcrum.model.block import Block
from fulcrum.model.condition import Condition, ResolutionIn
from fulcrum.model.embed import SINUSOIDS, TIME_FACTOR, Head, VectorIn, patchify, sinusoids, unpatchify
from fulcrum.model.linear import Linear
from fulcrum.model.packed_text import Packed, ReadText, Text, pack
from fulcrum.model.roles import Role
from fulcrum.model.rope import rotary_table
from fulcrum.model.route import DenseRoute, Route, span
from fulcrum.model.running.run_block import BlockRunner
from fulcrum.model.tokens import Tokens, gather_rows
from fulcrum.spec.flops import Sizes, vector_multiply_adds


class Out(NamedTuple):
    pred: Tensor  # (B, C, h, w); of a model without a head the stream that it ends with, (B, K, D)
    taps: dict[int, Tokens]  # by block, the stream after it


class Backbone(nn.Module):
    __call__: Callable[..., Out]

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
        route: Route | None = None,
        condition: Condition | None = None,
        compute: torch.dtype = torch.float32,
        ops: OpDtypes = ALL_FP32,
    ):
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not divisible by heads {heads}: choose a multiple")
        head = width // heads
        if axes is None and head % 4:
            raise ValueError(f"head width {head} cannot be halved into two even rotary axes: make it a multiple of 4")
        self.axes: tuple[int, int] = (head // 2, head // 2) if axes is None else axes
        if len(self.axes) != 2 or sum(self.axes) != head or any(a % 2 for a in self.axes):
            raise ValueError(f"axes {self.axes} must be two even numbers that add up to the head width {head}")
        self.channels, self.patch, self.width, self.depth, self.heads = channels, patch, width, depth, heads
        self.text_width, self.mlp_ratio, self.theta = text_width, mlp_ratio, theta
        self.bottleneck, self.time_dtype = bottleneck, ops.time
        self.run_block = BlockRunner()  # how a block is called; decided outside

        features = channels * patch * patch
        if bottleneck is None:
            self.img_in: nn.Module = Linear(features, width, Role.embed, compute=compute)
        else:
            narrow = Linear(features, bottleneck, Role.embed, compute=compute)
            self.img_in = nn.Sequential(narrow, Linear(bottleneck, width, Role.embed, compute=compute))
        self.txt_in = Linear(text_width, width, Role.embed, compute=compute)
        self.time_in = VectorIn(width, compute)
        condition = ResolutionIn(width, compute) if resolution else condition
        self.resolution = isinstance(condition, ResolutionIn)
        self.resolution_embedder: Condition | None = condition if self.resolution else None  # diffusers' name
        self.own_condition: Condition | None = None if self.resolution else condition
        blocks = nn.ModuleList(Block(width, heads, mlp_ratio, compute, ops) for _ in range(depth))
        self.blocks = cast(Sequence[Block], blocks)  # what a ModuleList holds, for the type checker
        self.final_layer: Head | None = Head(width, features, compute, ops.norm)
        self.route: Route = DenseRoute() if route is None else route
        self.span = span(self.route, depth)

    def forward(
        self,
        x_t: Tensor,
        t: Tensor,
        text: Text | Packed | ReadText,
        keep: Tensor | None = None,
        taps: Collection[int] = (),
        size: Tensor | None = None,
        drop_path: Tensor | None = None,
        short: bool = False,
    ) -> Out:
        """x_t (B, C, h, w), t (B,) in [0, 1], text (emb (B, L, E), mask (B, L) true = keep) or what `read_text` gave,
        keep (B, K) positions that the routed span sees (none: all), size: what the condition is told of each picture,
        drop_path (B,) true where the span counts for nothing, short: it does for all, and its blocks do not run."""
        self.check(x_t, taps)
        self.check_route(taps, keep, drop_path, short)
        height, width = x_t.shape[-2:]
        tokens = Tokens(self.img_in(patchify(x_t, self.patch)).float())  # (B, N, D)
        whole = rotary_table(height // self.patch, width // self.patch, self.axes, self.theta, x_t.device)  # (1, N, d)
        active = F.silu(self.condition(x_t, t, size))  # (B, D); every modulation begins with this SiLU
        texts, place, bias = text if isinstance(text, ReadText) else self.pack_text(text)
        first, last = self.span if self.span and (keep is not None or self.route.fuses) else (self.depth, self.depth)

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
            tokens = tokens._replace(h=self.run_block(block, tokens.h, active, table, texts[i], place, bias))
            if i in taps:
                seen[i] = tokens
            if i == last:
                tokens, table = self.route.merge(before, tokens, drop_path), whole
        if self.final_layer is None:
            return Out(tokens.h, seen)
        return Out(unpatchify(self.final_layer(tokens.h, active).float(), self.patch, height, width), seen)

    def condition(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        """The vector (B, D) of time, and of what the model was built to be told beside it."""
        vector = self.time_in(self.time_sinusoids(t))
        embedder = self.resolution_embedder or self.own_condition
        return vector if embedder is None else vector + embedder(x_t, t, size)

    def time_sinusoids(self, t: Tensor) -> Tensor:
        return sinusoids(t, SINUSOIDS, TIME_FACTOR, self.time_dtype)

    def pack_text(self, text: Text | Packed) -> ReadText:
        """The text's real tokens in the stream's width, the same for every block, and where they stand."""
        rows, place, bias = text if isinstance(text, Packed) else pack(*text)
        return ReadText((self.txt_in(rows).float(),) * self.depth, place, bias)  # (M, D) each

    def read_text(self, text: Text) -> ReadText:
        """Keys and values of every block for a text, to be passed to many forwards with other x_t and t."""
        packed = self.pack_text(text)
        batch = len(text[0])
        kv = (
            block.read(rows, packed.place, batch, packed.bias) for block, rows in zip(self.blocks, packed.rows, strict=True)
        )
        return ReadText(tuple(kv), None, packed.bias)

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
            vector_multiply_adds(self.width) if self.resolution else 0,
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
        first, last = self.span or (self.depth, self.depth)
        if short and any(first <= i <= last for i in taps):
            raise ValueError(f"a short pass leaves out blocks {first}..{last}: they cannot be tapped")
        if short and keep is not None:
            raise ValueError("a short pass keeps no token in the span: give keep or short, not both")
