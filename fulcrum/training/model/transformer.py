"""The denoiser: image tokens attend to text through a stack of blocks; parameter names are those of
diffusers."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fulcrum.spec.flops import Sizes, vector_multiply_adds
from fulcrum.training.model.layers import (
    ALL_FP32,
    SINUSOIDS,
    TIME_FACTOR,
    ZERO,
    Cast,
    Gain,
    Head,
    Linear,
    OpDtypes,
    Role,
    Tokens,
    Use,
    VectorIn,
    gather_rows,
    layer_norm,
    narrowed,
    patchify,
    rotary_table,
    rotate,
    sinusoids,
    unpatchify,
)

# --------------------------------------------------------------------------------------------------
# Text without its padding: only real tokens are projected, and keys are laid out where attention
# wants them.
#
# B batch, L text tokens, M real text tokens of the batch, N image tokens, E text width


# emb (B, L, E), mask (B, L) true = keep, and how many tokens are real at most, where the host has
# counted them
Text = tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, int | None]
# the number of keys is rounded up to this: CPU attention was 5-10 % faster over 48+64 keys than
# over 45+64
ALIGN = 8


class Packed(NamedTuple):
    rows: Tensor  # (M, E) the tokens that are read
    #: (M,) where each stands in the flattened (B, L); none: every place is taken, in order
    place: Tensor | None
    bias: Tensor | None  # (B, 1, 1, L) 0 for what may be read, -inf for padding


class ReadText(NamedTuple):
    """What every block needs of a text. Keys and values do not change between the steps of a
    sampler."""

    rows: tuple[Tensor, ...]  # per block: packed (M, D), or keys and values (B, L, 2, H, d)
    place: Tensor | None  # (M,) of the packed rows
    bias: Tensor | None  # (B, 1, 1, L)


def pack(emb: Tensor, mask: Tensor | None, most: int | None = None) -> Packed:
    """emb (B, L, E), mask (B, L) true = keep, padding anywhere; `most` real tokens.

    Off the CPU as many rows are taken as are real at most: to count them the host would have to
    wait for the device.
    """
    if mask is None:
        return Packed(emb.flatten(0, 1), None, None)
    if mask.shape != emb.shape[:2]:
        raise ValueError(
            f"the mask must be (batch, length) = {tuple(emb.shape[:2])}, found {tuple(mask.shape)}"
        )
    mask = mask.bool()
    if emb.device.type != "cpu":
        return pack_at_most(emb, mask, mask.numel() if most is None else most)
    rows = emb.flatten(0, 1)[mask.flatten()]  # (M, E)
    if most is not None and len(rows) > most:
        raise ValueError(f"{len(rows)} tokens are real, and at most {most} were said to be")
    mask = F.pad(mask, (0, -mask.shape[1] % ALIGN))
    return Packed(rows, mask.flatten().nonzero()[:, 0], key_bias(mask))


def pack_at_most(emb: Tensor, mask: Tensor, most: int) -> Packed:
    """The first `most` places, real ones before padding: no number of the device is read. What is
    padding among them goes to its own place, where attention does not look."""
    if most >= mask.numel():
        return Packed(emb.flatten(0, 1), None, key_bias(mask))
    place = mask.flatten().to(torch.uint8).argsort(descending=True, stable=True)[:most]
    return Packed(emb.flatten(0, 1)[place], place, key_bias(mask))


def unpack(rows: Tensor, place: Tensor | None, batch: int, bias: Tensor | None) -> Tensor:
    """rows (M, ...) -> (B, L, ...), zeros where no row is placed."""
    if place is None or bias is None:
        return torch.unflatten(rows, 0, (batch, -1))
    length = bias.shape[-1]
    placed = rows.new_zeros(batch * length, *rows.shape[1:]).index_copy(0, place, rows)
    return torch.unflatten(placed, 0, (batch, length))


def key_bias(mask: Tensor) -> Tensor:
    """mask (B, L) -> (B, 1, 1, L): one number per key, broadcast over heads and queries by the
    attention."""
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return zeros.masked_fill(~mask, -torch.inf)[:, None, None]


def any_length(rows: Tensor, place: Tensor | None) -> None:
    """A text has another number of real tokens at every batch: one graph for all."""
    if place is not None:
        for varying in (rows, place):
            torch._dynamo.maybe_mark_dynamic(varying, 0)


# --------------------------------------------------------------------------------------------------
# Attention of image tokens over [text; image]: projections, norms, positions, and the choice of the
# kernel.
#
# B batch, N image tokens, L text tokens, M text tokens in any arrangement, H heads, d head width, D
# = H d


def rms_norm(x: Tensor, gain: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """RMSNorm over the last axis, eps 1e-6."""
    x = narrowed(x.float(), dtype)
    return narrowed(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain, dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q k' / sqrt(d) + bias) v: q (B, N, H, d), k v (B, L+N, H, d), bias (B, 1, 1, L+N) ->
    (B, N, H, d)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


def attend_stepwise(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, cast: Cast, dtype: torch.dtype
) -> Tensor:
    """The same, product by product, for what no fused kernel offers: a softmax in bf16, or weights
    rounded to bf16 before they meet the values, as kernels with bf16 units do. It stores the
    scores, (B, H, N, L+N)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = (q @ k.mT).float() / math.sqrt(q.shape[-1])  # (B, H, N, L+N)
    scores = narrowed(scores if bias is None else scores + bias, dtype)
    return (cast(narrowed(scores.softmax(-1), dtype)) @ v).transpose(1, 2)


class Attention(nn.Module):
    """Image tokens ask; text and image tokens answer. Text has no position and is not updated."""

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, heads: int, compute: torch.dtype, ops: OpDtypes = ALL_FP32):
        super().__init__()
        self.heads, self.cast, self.ops = heads, Cast(compute), ops
        self.img_qkv_proj = Linear(
            width, 3 * width, Role.matrix, bias=False, compute=compute, use=Use.attention_in
        )
        self.txt_kv_proj = Linear(
            width, 2 * width, Role.matrix, bias=False, compute=compute, use=Use.text
        )
        self.norm_q, self.norm_k, self.norm_added_k = (Gain(width // heads) for _ in range(3))
        out = Linear(width, width, Role.matrix, bias=False, compute=compute, use=Use.attention_out)
        self.to_out = nn.ModuleList((out,))

    def read(self, text: Tensor) -> Tensor:
        """text (M, D) -> keys and values (M, 2, H, d)."""
        k, v = torch.unflatten(self.txt_kv_proj(text), -1, (2, self.heads, -1)).unbind(-3)
        return torch.stack(
            (self.cast(rms_norm(k, self.norm_added_k.weight, self.ops.norm)), v), dim=-3
        )

    def forward(self, x: Tensor, table: Tensor, text: Tensor, bias: Tensor | None) -> Tensor:
        """x (B, N, D), table (1 or B, N, d), text (B, L, 2, H, d) as read, bias (B, 1, 1, L) -> (B,
        N, D)."""
        # (B, N, H, d)
        q, k, v = torch.unflatten(self.img_qkv_proj(x), -1, (3, self.heads, -1)).unbind(-3)
        q = self.cast(self.placed(q, self.norm_q.weight, table))
        k = self.cast(self.placed(k, self.norm_k.weight, table))
        # (B, L+N, H, d)
        k, v = torch.cat((text[:, :, 0], k), dim=1), torch.cat((text[:, :, 1], v), dim=1)
        if bias is not None:
            bias = F.pad(bias, (0, x.shape[1])).to(self.cast.dtype)  # every image token may be read
        out: Tensor = self.to_out[0](self.attend(q, k, v, bias).flatten(-2))
        return out

    def placed(self, x: Tensor, gain: Tensor, table: Tensor) -> Tensor:
        """Queries or keys (B, N, H, d), normalised, and turned to their places."""
        return rotate(rms_norm(x, gain, self.ops.norm), table, self.ops.rope)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        if self.ops.softmax == torch.float32 and not self.cast.emulated:
            return attend(q, k, v, bias)
        return attend_stepwise(q, k, v, bias, self.cast, self.ops.softmax)


# --------------------------------------------------------------------------------------------------
# One transformer block: attention, then a gated MLP, each shifted, scaled and gated by the
# condition (adaLN).
#
# B batch, N tokens, L text tokens, M real text tokens of the batch, H heads, D width


GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715 * GELU_LINEAR


class Modulation(nn.Module):
    """Condition -> shift, scale, gate for the attention, then for the MLP.

    Its weight is a `matrix`: a 2-D weight inside a block, with dense inputs and outputs; the
    published Muon orthogonalises it with the others.
    """

    __call__: Callable[..., tuple[Tensor, ...]]

    def __init__(self, width: int, compute: torch.dtype):
        super().__init__()
        self.lin = Linear(
            width, 6 * width, Role.matrix, start=ZERO, compute=compute, use=Use.modulation
        )

    def forward(self, active: Tensor) -> tuple[Tensor, ...]:  # (B, D) -> six of (B, 1, D)
        return self.lin(active).float()[:, None].chunk(6, dim=-1)


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form, written with a sigmoid: 0.5 x (1 + tanh z) = x sigmoid(2 z).

    The same function, but an exponential costs the CPU a third of a tanh: 8 % of a whole step.
    """
    two_z = x * (GELU_LINEAR + GELU_CUBIC * x.square())
    return x * torch.sigmoid(two_z)


class Block(nn.Module):
    """h -> h + gate attention(adaLN h) -> h + gate mlp(adaLN h); the stream h is fp32."""

    def __init__(
        self,
        width: int,
        heads: int,
        mlp_ratio: float,
        compute: torch.dtype,
        ops: OpDtypes = ALL_FP32,
    ):
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.norm_dtype = ops.norm
        # its activations are computed again in the backward; decided outside
        self.recomputed = False
        self.compiled: Callable[..., Tensor] | None = None  # `Block.run`, compiled; decided outside
        self.attention = Attention(width, heads, compute, ops)
        self.gate_proj = Linear(
            width, hidden, Role.matrix, bias=False, compute=compute, use=Use.feed_forward
        )
        self.up_proj = Linear(
            width, hidden, Role.matrix, bias=False, compute=compute, use=Use.feed_forward
        )
        self.down_proj = Linear(
            hidden, width, Role.matrix, bias=False, compute=compute, use=Use.feed_forward
        )
        self.modulation = Modulation(width, compute)

    def forward(
        self,
        h: Tensor,
        active: Tensor,
        table: Tensor,
        text: Tensor,
        place: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        """h (B, N, D), active = SiLU(condition) (B, D), table (1 or B, N, d), bias (B, 1, 1, L);
        text packed (M, D) with the place of each row, or as `read` gave it (B, L, 2, H, d)."""
        if self.compiled is None:
            return self.run(h, active, table, text, place, bias)
        any_length(text, place)
        return self.compiled(self, h, active, table, text, place, bias)

    def run(
        self,
        h: Tensor,
        active: Tensor,
        table: Tensor,
        text: Tensor,
        place: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        kv = self.read(text, place, len(h), bias) if text.dim() == 2 else text
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.modulation(active)
        h = h + gate * self.attention((1 + scale) * self.norm(h) + shift, table, kv, bias)
        return h + mlp_gate * self.mlp((1 + mlp_scale) * self.norm(h) + mlp_shift)

    def norm(self, h: Tensor) -> Tensor:
        return layer_norm(h, self.norm_dtype)

    def read(self, text: Tensor, place: Tensor | None, batch: int, bias: Tensor | None) -> Tensor:
        """Keys and values of the text, (M, D) -> (B, L, 2, H, d)."""
        return unpack(self.attention.read(text), place, batch, bias)

    def mlp(self, x: Tensor) -> Tensor:
        return self.down_proj(gelu(self.gate_proj(x).float()) * self.up_proj(x))


# --------------------------------------------------------------------------------------------------
# What is added to the time vector, which every modulation reads: the picture's size, what it was
# cut from, or a part of the user's own.
#
# B batch, C channels, h w image size, D width


class Condition(Protocol):
    """A torch module that is part of the denoiser."""

    def __call__(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        """x_t (B, C, h, w), t (B,), size: numbers about each picture to be told instead of what x_t
        says by itself, (B, 2) height and width or (B, 4) as a batch's `geometry` -> (B, D)."""


class ResolutionIn(nn.Module):
    """Height and width, 128 sinusoids each, through two linears."""

    def __init__(self, width: int, compute: torch.dtype):
        super().__init__()
        self.mlp = VectorIn(width, compute)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        if size is None:
            size = written(x_t, *x_t.shape[-2:])
        half = SINUSOIDS // 2
        vector: Tensor = self.mlp(
            torch.cat((sinusoids(size[:, 0], half), sinusoids(size[:, 1], half)), dim=-1)
        )
        return vector


class SizeCropIn(nn.Module):
    """SDXL (arXiv:2307.01952, section 2.2): original height, original width, top and left of the
    crop, 256 sinusoids each, one after the other through two linears. A picture of which nothing is
    told is whole: its own size, cropped at 0, 0."""

    def __init__(self, width: int, compute: torch.dtype, stride: int):
        super().__init__()
        self.stride = stride  # pixels of a cell of x_t, along each side
        self.mlp = VectorIn(width, compute, 4 * SINUSOIDS)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        if size is None:
            height, width = (side * self.stride for side in x_t.shape[-2:])
            size = written(x_t, height, width, 0, 0)
        vector: Tensor = self.mlp(
            torch.cat([sinusoids(number, SINUSOIDS) for number in size.unbind(1)], dim=-1)
        )
        return vector


def written(x_t: Tensor, *numbers: int) -> Tensor:
    """(B, numbers), the same for every row; filled in on the device: a tensor of the host would be
    waited for."""
    return torch.stack(
        [x_t.new_full((len(x_t),), number, dtype=torch.float32) for number in numbers], dim=1
    )


# --------------------------------------------------------------------------------------------------
# Which tokens a span of blocks sees, and how the others come back.
#
# B batch, N tokens, K kept, D width


class Route(Protocol):
    """Blocks start..end (inclusive, negative from the end) see split(tokens, keep); merge restores
    the grid."""

    start: int | None
    end: int | None
    #: has a path around the span: merges even when every token was kept, and may leave the span out
    fuses: bool

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens: ...

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        """`dropped` (B,) true where the whole path through the span counts for nothing."""

    def around(self, before: Tokens) -> Tokens:
        """What merge would give had the path been dropped for every sample: the span need not
        run."""


class DenseRoute(nn.Module):
    """Every block sees every token: no span."""

    start: int | None = None
    end: int | None = None
    fuses = False

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens:
        raise ValueError(
            "keep was given, but the route is dense: give no keep, or build with a route that drops"
        )

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        return after

    def around(self, before: Tokens) -> Tokens:
        raise ValueError("a dense route has no span to leave out: build with a route that fuses")


class CarryRoute(nn.Module):
    """TREAD (arXiv:2501.04765): the span sees the kept tokens; the others come back as they were
    before it."""

    fuses = False

    def __init__(self, start: int, end: int):
        super().__init__()
        self.start: int | None = start
        self.end: int | None = end

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens:
        return tokens if keep is None else tokens.take(keep)  # (B, N, D) -> (B, K, D)

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        return before.put(after)  # (B, N, D)

    def around(self, before: Tokens) -> Tokens:
        raise ValueError(
            "this route was never trained without its span: build with a route that fuses"
        )


class FuseRoute(nn.Module):
    """SPRINT (arXiv:2510.21986): fused = W [dense; sparse] + b, where `dense` is what entered the
    span and `sparse` what left it, on a grid filled with the mask token m, which begins at zero and
    stays there unless it is learned.

    W is applied in halves, W = [W_dense, W_sparse]: the places that hold m all get the same
    W_sparse m, so only the K kept tokens are multiplied, and neither the filled grid nor the
    concatenation (B, N, 2 D) is ever stored. W is a `head`: no weight inside a block, so a rule for
    the blocks' matrices leaves it alone.
    """

    fuses = True

    def __init__(
        self,
        start: int,
        end: int,
        width: int,
        compute: torch.dtype = torch.float32,
        learned_mask: bool = True,
    ):
        super().__init__()
        self.start: int | None = start
        self.end: int | None = end
        self.mask = nn.Parameter(torch.zeros(width, dtype=torch.float32)) if learned_mask else None
        self.parameter_roles = {"mask": Role.vector} if learned_mask else {}
        self.parameter_starts = {"mask": ZERO} if learned_mask else {}
        self.fuse = Linear(2 * width, width, Role.head, compute=compute, whole=False)

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens:
        return tokens if keep is None else tokens.take(keep)  # (B, N, D) -> (B, K, D)

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        missing = self.missing(before.h)  # (D,)
        # (B, N, D)
        whole = Tokens(missing.expand_as(before.h)).put(after._replace(h=self.sparse(after.h)))
        sparse = (
            whole.h if dropped is None else torch.where(dropped[:, None, None], missing, whole.h)
        )
        return Tokens(self.dense(before.h) + sparse)

    def around(self, before: Tokens) -> Tokens:
        return Tokens(self.dense(before.h) + self.missing(before.h))

    def missing(self, h: Tensor) -> Tensor:
        """W_sparse m: what a place gets that the span did not see."""
        return h.new_zeros(h.shape[-1]) if self.mask is None else self.sparse(self.mask)

    def dense(self, h: Tensor) -> Tensor:
        weight = self.fuse.weight
        return self.fuse.product(h, weight[:, : len(weight)], self.fuse.bias).float()

    def sparse(self, h: Tensor) -> Tensor:
        weight = self.fuse.weight
        return self.fuse.product(h, weight[:, len(weight) :]).float()


def span(route: Route, depth: int) -> tuple[int, int] | None:
    """The route's first and last block as plain indices of a stack of `depth`, or None when it has
    no span."""
    if route.start is None or route.end is None:
        return None
    start, end = (i + depth if i < 0 else i for i in (route.start, route.end))
    if not 0 <= start <= end < depth:
        raise ValueError(
            f"a route over blocks {route.start}..{route.end} does not fit {depth} blocks: "
            f"need 0 <= start <= end < {depth} (negative counts from the end)"
        )
    return start, end


# --------------------------------------------------------------------------------------------------
# How a backbone is run: as it is, compiled (in one graph, or block by block), or with activations
# computed again.


ONE_GRAPH = 6  # blocks: a graph of more takes minutes to compile
# A graph for every shape: a routed span or a stage of larger pictures would else get slower code,
# for shapes of any size. Up to 64 of a function in one process: cells of a study differ in routes,
# taps and shapes.
STATIC: dict[str, Any] = {"fullgraph": True, "dynamic": False, "recompile_limit": 64}


class BlockRunner(NamedTuple):
    graphs: Literal["none", "blocks", "one"] = "none"

    def __call__(
        self,
        block: nn.Module,
        h: Tensor,
        active: Tensor,
        table: Tensor,
        text: Tensor,
        place: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        inputs = (h, active, table, text, place, bias)
        if getattr(block, "recomputed", False) and torch.is_grad_enabled():
            h = checkpoint(block, *inputs, use_reentrant=False)
        else:
            h = block(*inputs)
        return h


def run_backbone(
    backbone: Backbone, x_t: Tensor, t: Tensor, text: Text | Packed | ReadText, **more: Any
) -> Out:
    """The backbone's forward. One graph is given packed text: how many tokens are real no compiler
    knows."""
    if backbone.run_block.graphs == "one" and not isinstance(text, Packed | ReadText):
        text = pack(*text)
        any_length(text.rows, text.place)
    return backbone(x_t, t, text, **more)


def compile_backbone(backbone: Backbone, lanes: int = 1, **options: Any) -> None:
    """Compile in place: a shallow stack in one graph, forward and backward, which is entered once;
    a deep one by blocks.

    One graph made a step of three blocks 7-9 % faster, and takes half as long again to compile
    (docs/decisions/0037).
    """
    if backbone.depth > ONE_GRAPH:
        compile_blocks(backbone, lanes, **options)
        return
    backbone.compile(**STATIC, **(options or _options(lanes)))
    backbone.run_block = backbone.run_block._replace(graphs="one")


def compile_blocks(backbone: Backbone, lanes: int = 1, **options: Any) -> None:
    """Compile every block in place; they share one graph, since they differ in their parameters
    only. For sharded models too, whose weights are gathered by what is called around
    `Block.forward`: it hands on tensors of its own, so how a text may vary is said inside of that
    (said before, it was lost, and every length of a text was compiled anew)."""

    compiled = torch.compile(Block.run, **STATIC, **(options or _options(lanes)))
    for block in backbone.blocks:
        block.compiled = compiled
    backbone.run_block = backbone.run_block._replace(graphs="blocks")


def _options(lanes: int) -> dict[str, Any]:
    """Several lanes: the code between the kernels is C++ too; in Python they wait for each other
    (4-10 % of a step)."""
    return {"options": {"cpp_wrapper": True}} if lanes > 1 else {}


def recompute_blocks(backbone: Backbone, every: int = 1) -> None:
    """Activation checkpointing: of each block, or `every` second one and so on, keep only the
    inputs, and compute the rest again in the backward."""
    for block in list(backbone.blocks)[::every]:
        block.recomputed = True


# --------------------------------------------------------------------------------------------------
# The denoiser: image tokens read text through a stack of blocks; parameter names are those of
# diffusers' PRX.
#
# How it is run (a batch in passes, side by side, compiled, with activations computed again) is
# decided outside: `passes`, `run_block`.
#
# B batch, C channels, h w image size, N tokens, K kept, L text tokens, E text width, D width, d
# head width


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
            raise ValueError(
                f"head width {head} cannot be halved into two even rotary axes: make it a multiple"
                " of 4"
            )
        self.axes: tuple[int, int] = (head // 2, head // 2) if axes is None else axes
        if len(self.axes) != 2 or sum(self.axes) != head or any(a % 2 for a in self.axes):
            raise ValueError(
                f"axes {self.axes} must be two even numbers that add up to the head width {head}"
            )
        self.channels, self.patch, self.width, self.depth, self.heads = (
            channels,
            patch,
            width,
            depth,
            heads,
        )
        self.text_width, self.mlp_ratio, self.theta = text_width, mlp_ratio, theta
        self.bottleneck, self.time_dtype = bottleneck, ops.time
        self.run_block = BlockRunner()  # how a block is called; decided outside

        features = channels * patch * patch
        if bottleneck is None:
            self.img_in: nn.Module = Linear(features, width, Role.embed, compute=compute)
        else:
            narrow = Linear(features, bottleneck, Role.embed, compute=compute)
            self.img_in = nn.Sequential(
                narrow, Linear(bottleneck, width, Role.embed, compute=compute)
            )
        self.txt_in = Linear(text_width, width, Role.embed, compute=compute)
        self.time_in = VectorIn(width, compute)
        condition = ResolutionIn(width, compute) if resolution else condition
        self.resolution = isinstance(condition, ResolutionIn)
        # diffusers' name
        self.resolution_embedder: Condition | None = condition if self.resolution else None
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
        """x_t (B, C, h, w), t (B,) in [0, 1], text (emb (B, L, E), mask (B, L) true = keep) or what
        `read_text` gave, keep (B, K) positions that the routed span sees (none: all), size: what
        the condition is told of each picture, drop_path (B,) true where the span counts for
        nothing, short: it does for all, and its blocks do not run."""
        self.check(x_t, taps)
        self.check_route(taps, keep, drop_path, short)
        height, width = x_t.shape[-2:]
        tokens = Tokens(self.img_in(patchify(x_t, self.patch)).float())  # (B, N, D)
        # (1, N, d)
        whole = rotary_table(
            height // self.patch, width // self.patch, self.axes, self.theta, x_t.device
        )
        # (B, D); every modulation begins with this SiLU
        active = F.silu(self.condition(x_t, t, size))
        texts, place, bias = text if isinstance(text, ReadText) else self.pack_text(text)
        first, last = (
            self.span
            if self.span and (keep is not None or self.route.fuses)
            else (self.depth, self.depth)
        )

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
            tokens = tokens._replace(
                h=self.run_block(block, tokens.h, active, table, texts[i], place, bias)
            )
            if i in taps:
                seen[i] = tokens
            if i == last:
                tokens, table = self.route.merge(before, tokens, drop_path), whole
        if self.final_layer is None:
            return Out(tokens.h, seen)
        return Out(
            unpatchify(self.final_layer(tokens.h, active).float(), self.patch, height, width), seen
        )

    def condition(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        """The vector (B, D) of time, and of what the model was built to be told beside it."""
        vector = self.time_in(self.time_sinusoids(t))
        embedder = self.resolution_embedder or self.own_condition
        return vector if embedder is None else vector + embedder(x_t, t, size)

    def time_sinusoids(self, t: Tensor) -> Tensor:
        return sinusoids(t, SINUSOIDS, TIME_FACTOR, self.time_dtype)

    def pack_text(self, text: Text | Packed) -> ReadText:
        """The text's real tokens in the stream's width, the same for every block, and where they
        stand."""
        rows, place, bias = text if isinstance(text, Packed) else pack(*text)
        return ReadText((self.txt_in(rows).float(),) * self.depth, place, bias)  # (M, D) each

    def read_text(self, text: Text) -> ReadText:
        """Keys and values of every block for a text, to be passed to many forwards with other x_t
        and t."""
        packed = self.pack_text(text)
        batch = len(text[0])
        kv = (
            block.read(rows, packed.place, batch, packed.bias)
            for block, rows in zip(self.blocks, packed.rows, strict=True)
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
        if (
            x_t.dim() != 4
            or x_t.shape[1] != self.channels
            or any(s % self.patch for s in x_t.shape[-2:])
        ):
            raise ValueError(
                f"x_t must be (B, {self.channels}, h, w) with h and w multiples of patch"
                f" {self.patch}, found {tuple(x_t.shape)}"
            )
        if lost := [i for i in taps if not 0 <= i < self.depth]:
            raise ValueError(
                f"no block to tap at {lost}: this model has blocks 0..{self.depth - 1}"
            )

    def check_route(
        self, taps: Collection[int], keep: Tensor | None, drop_path: Tensor | None, short: bool
    ) -> None:
        if keep is not None and self.span is None:
            raise ValueError(
                "keep was given, but the route is dense: give no keep, or build with a route that"
                " drops"
            )
        if (drop_path is not None or short) and not self.route.fuses:
            raise ValueError(
                "the path through the span cannot be dropped: this route has no other one; build"
                " with a route that fuses, or give neither drop_path nor short"
            )
        first, last = self.span or (self.depth, self.depth)
        if short and any(first <= i <= last for i in taps):
            raise ValueError(
                f"a short pass leaves out blocks {first}..{last}: they cannot be tapped"
            )
        if short and keep is not None:
            raise ValueError(
                "a short pass keeps no token in the span: give keep or short, not both"
            )
