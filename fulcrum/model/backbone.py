"""The denoiser: image tokens read text through a stack of blocks; parameter names are those of diffusers' PRX.

B batch, C channels, h w image size, N tokens, K kept, L text tokens, E text width, D width, d head width
"""

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fulcrum.model.block import Block
from fulcrum.model.embed import SINUSOIDS, TIME_FACTOR, Head, ResolutionIn, VectorIn, patchify, sinusoids, unpatchify
from fulcrum.model.linear import Linear
from fulcrum.model.roles import Role
from fulcrum.model.rope import rotary_table
from fulcrum.model.route import DenseRoute, span
from fulcrum.model.tokens import Tokens, gather_rows


class Out(NamedTuple):
    pred: Tensor  # (B, C, h, w)
    taps: dict[int, Tokens]  # by block, the stream after it


class ReadText(NamedTuple):
    """What every block needs of a text: it does not change between the steps of a sampler."""

    kv: tuple[Tensor, ...]  # per block (B, L, 2, H, d)
    mask: Tensor | None  # (B, L) bool, true = keep


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
    ) -> Out:
        """x_t (B, C, h, w), t (B,) in [0, 1], text (emb (B, L, E), mask (B, L) true = keep) or what `read_text` gave,
        keep (B, K) positions that the routed span sees (none: all), size (B, 2) to condition on instead of (h, w)."""
        height, width = x_t.shape[-2:]
        self.check(x_t, taps, keep)
        tokens = Tokens(self.img_in(patchify(x_t, self.patch)).float())  # (B, N, D)
        whole = rotary_table(height // self.patch, width // self.patch, self.axes, self.theta, x_t.device)  # (1, N, d)
        active = F.silu(self.condition(x_t, t, size))  # (B, D); every modulation begins with this SiLU
        if isinstance(text, ReadText):
            texts, mask = text.kv, text.mask
        else:
            texts, mask = (self.txt_in(text[0]),) * self.depth, text[1]  # (B, L, D)
        first, last = self.span if keep is not None and self.span is not None else (None, None)

        seen: dict[int, Tokens] = {}
        before, table, bias = tokens, whole, key_bias(mask, tokens.h)
        for i, block in enumerate(self.blocks):
            if i == first:
                before, tokens = tokens, self.route.split(tokens, keep)
                table = gather_rows(whole.expand(len(x_t), -1, -1), tokens.index)  # (B, K, d): rows of their own places
                bias = key_bias(mask, tokens.h)
            tokens = tokens._replace(h=self.run(block, tokens.h, active, table, texts[i], bias))
            if i in taps:
                seen[i] = tokens
            if i == last:
                tokens, table, bias = self.route.merge(before, tokens), whole, key_bias(mask, before.h)
        return Out(unpatchify(self.final_layer(tokens.h, active).float(), self.patch, height, width), seen)

    def condition(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        """The vector (B, D) of time, and of the resolution when the model was built to be told."""
        vector = self.time_in(sinusoids(t, SINUSOIDS, TIME_FACTOR))
        if self.resolution_embedder is None:
            return vector
        if size is None:
            size = x_t.new_tensor(x_t.shape[-2:], dtype=torch.float32).expand(len(x_t), 2)
        return vector + self.resolution_embedder(size)

    def read_text(self, text: tuple[Tensor, Tensor | None]) -> ReadText:
        """Keys and values of every block for a text, to be passed to many forwards with other x_t and t."""
        emb, mask = text
        h = self.txt_in(emb)
        return ReadText(tuple(block.attention.read(h) for block in self.blocks), mask)

    def run(self, block: nn.Module, *inputs: Tensor | None) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)

    def check(self, x_t: Tensor, taps: Collection[int], keep: Tensor | None) -> None:
        if x_t.dim() != 4 or x_t.shape[1] != self.channels or any(s % self.patch for s in x_t.shape[-2:]):
            raise ValueError(
                f"x_t must be (B, {self.channels}, h, w) with h and w multiples of patch {self.patch}, "
                f"found {tuple(x_t.shape)}"
            )
        if lost := [i for i in taps if not 0 <= i < self.depth]:
            raise ValueError(f"no block to tap at {lost}: this model has blocks 0..{self.depth - 1}")
        if keep is not None and self.span is None:
            raise ValueError("keep was given, but the route is dense: give no keep, or build with a route that drops")


def key_bias(mask: Tensor | None, h: Tensor) -> Tensor | None:
    """mask (B, L), h (B, N, D) -> (B, 1, 1, L+N): 0 for what may be read, -inf for padding of the text."""
    if mask is None:
        return None
    bias = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device).masked_fill_(~mask.bool(), -torch.inf)
    return F.pad(bias, (0, h.shape[1]))[:, None, None]


def compile_blocks(backbone: Backbone, **options: object) -> None:
    """Compile every block in place; they share one graph, since they differ in their parameters only."""
    for block in backbone.blocks:
        block.compile(fullgraph=True, **options)


def recompute_blocks(backbone: Backbone) -> None:
    """Activation checkpointing: keep only the inputs of each block, and compute the rest again in the backward."""
    backbone.recompute = True
