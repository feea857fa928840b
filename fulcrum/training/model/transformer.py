"""The denoiser, from top to bottom: image tokens attend to text through a stack of blocks.

    x_t (B, C, h, w) ──► patches ──► img_in ──► h (B, N, D) ──► blocks ──► final_layer ──► pred
    text (B, L, E) ───────────────► txt_in ──► (M, D) ────────────┤          │
    t (B,), size ─────► sinusoids ► time_in ─► (B, D) ────────────┴──────────┘

Parameter names are those of diffusers' PRX. How the model is run is set from outside: compiled or
recomputed by the functions at the end, in passes by `passes`, for drawing by `fast_drawing`.

B batch          C channels       h w sides of x_t     p patch
N image tokens   K tokens kept    L text tokens        M text tokens that are real
D width          H heads          d head width, D/H    E text width
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fulcrum.spec.flops import Sizes, vector_multiply_adds
from fulcrum.training.model.parameters import ONE, ZERO, InitialValue, Role, Use, fan_in

# --------------------------------------------------------------------------------------------------
# Number formats. Matrix products run in the compute dtype; everything between them is fp32.
#
# An operation in bf16 takes numbers that bf16 can hold and gives such numbers. Inside it sums in
# fp32, as torch's own kernels do. Its gradient is rounded on the way in and on the way out, as it
# would be between two bf16 tensors.


def nearest(x: Tensor) -> Tensor:
    """Round fp32 values to the nearest that bf16 can hold, ties to even.

    Inductor takes a cast to bf16 and back out of its graphs (its pass `pointless_convert`), so a
    graph gets integer operations. A bf16 number is the upper half of an fp32 one.
    """
    if not torch.compiler.is_compiling():
        return x.bfloat16().float()
    bits = x.contiguous().view(torch.int32)
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
    return torch.where(x.isnan(), x, upper.view(torch.float32))


class RoundTrip(torch.autograd.Function):
    """To bf16 and back, forward and backward."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return nearest(x)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return nearest(gradient)


def narrowed(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Round x and its gradient to what the dtype can hold; x stays an fp32 tensor."""
    return x if dtype == torch.float32 else RoundTrip.apply(x)  # type: ignore[no-untyped-call]


class Cast(NamedTuple):
    """The dtype of a matrix product: of its operands and of its result.

    Emulated, they are rounded and multiplied in fp32: on CPUs without units for bf16 that is faster
    than torch's own products, and both sum in fp32. The backward's two products see rounded
    operands too, and their results are rounded.
    """

    dtype: torch.dtype
    emulated: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return narrowed(x.float(), self.dtype) if self.emulated else x.to(self.dtype)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x W' + b."""
        return self(F.linear(self(x), self(weight), None if bias is None else self(bias)))


EXACT = Cast(torch.float32)


def emulate_bf16(module: nn.Module) -> None:
    """Emulate every product of the module that is in bf16."""
    for part in module.modules():
        cast = vars(part).get("cast")
        if isinstance(cast, Cast) and cast.dtype == torch.bfloat16:
            vars(part)["cast"] = cast._replace(emulated=True)


class OpDtypes(NamedTuple):
    """The dtypes of the operations that are believed to need fp32."""

    norm: torch.dtype = torch.float32
    softmax: torch.dtype = torch.float32
    rope: torch.dtype = torch.float32
    time: torch.dtype = torch.float32


ALL_FP32 = OpDtypes()


# --------------------------------------------------------------------------------------------------
# Linear layers and norms.


class Linear(nn.Linear):
    """A linear layer that stores fp32 and multiplies in the compute dtype. No other place casts.

    It declares the roles and initial values of its parameters. `use` says what a layer of a block
    is for. Set `whole` to false if the layer is never called because its weight is multiplied in
    parts.
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        inputs: int,
        outputs: int,
        role: Role,
        bias: bool = True,
        start: InitialValue | None = None,
        compute: torch.dtype = torch.float32,
        use: Use | None = None,
        whole: bool = True,
    ):
        super().__init__(inputs, outputs, bias=bias, dtype=torch.float32)
        self.use = use
        self.whole = whole
        self.beside: nn.Module | None = None  # learns in this layer's place: see `adapter`
        self.cast = Cast(compute)
        self.parameter_roles = {"weight": role, "bias": Role.vector} if bias else {"weight": role}
        self.parameter_starts = dict.fromkeys(self.parameter_roles, start or fan_in(inputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.cast.linear(x, self.weight, self.bias)
        return out if self.beside is None else out + self.beside(x)


class RMSNorm(nn.Module):
    """RMSNorm over the last axis with a learned gain, eps 1e-6."""

    __call__: Callable[..., Tensor]
    parameter_roles = {"weight": Role.vector}
    parameter_starts = {"weight": ONE}

    def __init__(self, width: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.dtype = dtype
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        x = narrowed(x.float(), self.dtype)
        size = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return narrowed(x * size * self.weight, self.dtype)


class LayerNorm(nn.Module):
    """LayerNorm over the last axis without parameters, eps 1e-6."""

    __call__: Callable[..., Tensor]

    def __init__(self, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.dtype = dtype

    def forward(self, h: Tensor) -> Tensor:
        h = narrowed(h.float(), self.dtype)
        return narrowed(F.layer_norm(h, h.shape[-1:], eps=1e-6), self.dtype)


# --------------------------------------------------------------------------------------------------
# Rotary positions on a grid.


def rotary_table(
    rows: int, cols: int, axes: tuple[int, int], theta: float, device: torch.device
) -> Tensor:
    """(1, N, d): cosines of the d/2 angles of each token, then their sines; rows first, then
    columns.

    Angles are computed in fp64 and stored in fp32, as in the published model. The table is computed
    at each call: that takes microseconds, and a cached or registered table would be wrong after
    `to_empty`, a deep copy or another grid.
    """
    exact = torch.float32 if device.type == "mps" else torch.float64
    parts = []
    for axis, (count, dim) in enumerate(zip((rows, cols), axes, strict=True)):
        omega = theta ** (-torch.arange(0, dim, 2, dtype=exact, device=device) / dim)  # (dim/2,)
        angle = torch.arange(count, dtype=exact, device=device)[:, None] * omega  # (count, dim/2)
        angle = angle[:, None] if axis == 0 else angle[None]
        parts.append(angle.expand(rows, cols, dim // 2))
    angles = torch.cat(parts, dim=-1).reshape(1, rows * cols, -1)  # (1, N, d/2)
    return torch.cat((angles.cos(), angles.sin()), dim=-1).float()


def rotate(x: Tensor, table: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Turn the pairs (x[2i], x[2i+1]) of x (B, N, H, d) by the angles of table (1 or B, N, d)."""
    x = narrowed(x, dtype)
    table = narrowed(table, dtype)
    cos, sin = table[:, :, None].chunk(2, dim=-1)  # (., N, 1, d/2)
    even, odd = torch.unflatten(x, -1, (-1, 2)).unbind(-1)  # (B, N, H, d/2)
    turned = torch.stack((cos * even - sin * odd, sin * even + cos * odd), dim=-1)
    return narrowed(turned.flatten(-2), dtype)


# --------------------------------------------------------------------------------------------------
# Patches, and sinusoids of time and size.

TIME_FACTOR = 1000.0  # t in [0, 1] is read as a step of 1000; PRX
MAX_PERIOD = 10_000.0  # of all sinusoids; PRX
SINUSOIDS = 256  # width of the sinusoid vector; PRX


def patchify(x: Tensor, patch: int) -> Tensor:
    """(B, C, h, w) -> (B, N, C p p), tokens in rows, features as (channel, row, column)."""
    batch, channels, height, width = x.shape
    x = x.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch * patch)


def unpatchify(tokens: Tensor, patch: int, height: int, width: int) -> Tensor:
    """(B, N, C p p) -> (B, C, h, w), the inverse of patchify."""
    batch, _, features = tokens.shape
    x = tokens.reshape(
        batch, height // patch, width // patch, features // (patch * patch), patch, patch
    )
    return x.permute(0, 3, 1, 4, 2, 5).reshape(batch, -1, height, width)


def sinusoids(
    value: Tensor, width: int, factor: float = 1.0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """factor * value (B,) -> (B, width): cosines first, then sines, periods from 2 pi to 2 pi
    MAX_PERIOD.

    The factor comes last, as in diffusers: an angle near 1000 rounds to 6e-5, so the order is
    visible in the output.
    """
    half = width // 2
    steps = torch.arange(half, dtype=torch.float32, device=value.device)
    angles = factor * (
        narrowed(value.float(), dtype)[:, None] * torch.exp(-math.log(MAX_PERIOD) * steps / half)
    )
    return narrowed(torch.cat((angles.cos(), angles.sin()), dim=-1), dtype)


class VectorIn(nn.Module):
    """Sinusoids, `inputs` of them -> a vector of the stream's width, by two linears around a
    SiLU."""

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, compute: torch.dtype, inputs: int = SINUSOIDS):
        super().__init__()
        self.in_layer = Linear(inputs, width, Role.embed, compute=compute)
        self.out_layer = Linear(width, width, Role.embed, compute=compute)

    def forward(self, vector: Tensor) -> Tensor:  # (B, inputs) -> (B, D)
        return self.out_layer(F.silu(self.in_layer(vector).float())).float()


# --------------------------------------------------------------------------------------------------
# Conditions: what is added to the time vector, which every modulation reads.


class Condition(Protocol):
    """A torch module that is part of the denoiser."""

    def __call__(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        """x_t (B, C, h, w), t (B,) -> (B, D). `size` replaces the sizes of x_t: (B, 2) height and
        width of each picture, or (B, 4) as a batch's `geometry`."""


class ResolutionIn(nn.Module):
    """Height and width, 128 sinusoids each, through two linears."""

    def __init__(self, width: int, compute: torch.dtype):
        super().__init__()
        self.mlp = VectorIn(width, compute)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        if size is None:
            size = same_for_all(x_t, *x_t.shape[-2:])
        half = SINUSOIDS // 2
        both = torch.cat((sinusoids(size[:, 0], half), sinusoids(size[:, 1], half)), dim=-1)
        return self.mlp(both)


class SizeCropIn(nn.Module):
    """SDXL (arXiv:2307.01952, section 2.2): original height, original width, top and left of the
    crop, 256 sinusoids each, concatenated, through two linears. A picture without such numbers is
    whole: its own size, cropped at 0, 0."""

    def __init__(self, width: int, compute: torch.dtype, stride: int):
        super().__init__()
        self.stride = stride  # pixels of a cell of x_t, along each side
        self.mlp = VectorIn(width, compute, 4 * SINUSOIDS)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        if size is None:
            height, width = (side * self.stride for side in x_t.shape[-2:])
            size = same_for_all(x_t, height, width, 0, 0)
        return self.mlp(
            torch.cat([sinusoids(number, SINUSOIDS) for number in size.unbind(1)], dim=-1)
        )


def same_for_all(x_t: Tensor, *numbers: int) -> Tensor:
    """(B, numbers), filled in on the device: a copy from the host would be waited for."""
    return torch.stack(
        [x_t.new_full((len(x_t),), number, dtype=torch.float32) for number in numbers], dim=1
    )


# --------------------------------------------------------------------------------------------------
# Text without its padding: only real tokens are projected, and keys are laid out where attention
# needs them.


# emb (B, L, E), mask (B, L) true = keep, and how many tokens are real at most, where the host has
# counted them
Text = tuple[Tensor, Tensor | None] | tuple[Tensor, Tensor | None, int | None]
# the number of keys is rounded up to this: CPU attention was 5-10 % faster over 48+64 keys than
# over 45+64
ALIGN = 8


class Packed(NamedTuple):
    rows: Tensor  # (M, E) the tokens that are read
    #: (M,) the place of each in the flattened (B, L); none: every place is taken, in order
    place: Tensor | None
    bias: Tensor | None  # (B, 1, 1, L) 0 for what may be read, -inf for padding


class ReadText(NamedTuple):
    """What every block needs of a text. Keys and values do not change between the steps of a
    sampler."""

    rows: tuple[Tensor, ...]  # per block: packed (M, D), or keys and values (B, L, 2, H, d)
    place: Tensor | None  # (M,) of the packed rows
    bias: Tensor | None  # (B, 1, 1, L)


def pack(emb: Tensor, mask: Tensor | None, most: int | None = None) -> Packed:
    """Pack emb (B, L, E) by mask (B, L), true = keep, padding anywhere; at most `most` are real.

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
    """Pack the first `most` tokens, real ones before padding, without reading a number of the
    device. Padding among them goes to its own place, where attention does not look."""
    if most >= mask.numel():
        return Packed(emb.flatten(0, 1), None, key_bias(mask))
    place = mask.flatten().to(torch.uint8).argsort(descending=True, stable=True)[:most]
    return Packed(emb.flatten(0, 1)[place], place, key_bias(mask))


def key_bias(mask: Tensor) -> Tensor:
    """mask (B, L) -> (B, 1, 1, L): one number per key, broadcast over heads and queries by the
    attention."""
    zeros = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
    return zeros.masked_fill(~mask, -torch.inf)[:, None, None]


# --------------------------------------------------------------------------------------------------
# Tokens carry their index, so that routing and alignment compose without knowing each other.


class Tokens(NamedTuple):
    """Features and the place of each on the grid. No index: the whole grid is here, in order."""

    h: Tensor  # (B, N, D)
    # (B, N) int64; hides tuple.index, which has no use here
    index: Tensor | None = None  # type: ignore[assignment]

    def take(self, keep: Tensor) -> Tokens:
        """The tokens at `keep` (B, K), positions in this sequence. Their index still refers to the
        grid."""
        if keep.shape[0] != self.h.shape[0] or keep.dim() != 2:
            raise ValueError(
                f"keep must be (batch, kept) = ({self.h.shape[0]}, K), found {tuple(keep.shape)}:"
                " one row per image"
            )
        index = keep if self.index is None else self.index.gather(1, keep)
        return Tokens(gather_rows(self.h, keep), index)  # (B, K, D)

    def put(self, part: Tokens) -> Tokens:
        """This whole grid, with the tokens of `part` in their places."""
        if self.index is not None:
            raise ValueError(
                "put needs the whole grid on the left, found tokens that were already taken from it"
            )
        if part.index is None:
            return part
        places = flat_places(part.index, self.h.shape[1])
        whole = self.h.flatten(0, 1).index_copy(0, places, part.h.flatten(0, 1))
        return Tokens(torch.unflatten(whole, 0, self.h.shape[:2]))  # (B, N, D)


def gather_rows(rows: Tensor, keep: Tensor) -> Tensor:
    """rows (B, N, ...) at keep (B, K) -> (B, K, ...). Whole rows are moved: on a CPU three times as
    fast as `gather`."""
    taken = rows.flatten(0, 1).index_select(0, flat_places(keep, rows.shape[1]))
    return torch.unflatten(taken, 0, keep.shape)


def flat_places(keep: Tensor, tokens: int) -> Tensor:
    """Places (B, K) on grids of so many tokens -> (B K,) in the batch's tokens, one grid after the
    other."""
    first = torch.arange(0, len(keep) * tokens, tokens, device=keep.device)
    return (keep + first[:, None]).flatten()


# --------------------------------------------------------------------------------------------------
# Attention of image tokens over [text; image].


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    cast: Cast = EXACT,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """softmax(q k' / sqrt(d) + bias) v: q (B, N, H, d), k v (B, L+N, H, d), bias (B, 1, 1, L+N) ->
    (B, N, H, d).

    No fused kernel offers a softmax in bf16 (`dtype`), nor weights rounded to bf16 before they meet
    the values, as kernels with bf16 units do (an emulated `cast`). These go product by product and
    store the scores, (B, H, N, L+N).
    """
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if dtype == torch.float32 and not cast.emulated:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)
    scores = (q @ k.mT).float() / math.sqrt(q.shape[-1])  # (B, H, N, L+N)
    scores = narrowed(scores if bias is None else scores + bias, dtype)
    return (cast(narrowed(scores.softmax(-1), dtype)) @ v).transpose(1, 2)


class Attention(nn.Module):
    """Queries are image tokens; keys and values are text and image tokens. Text has no position and
    is not updated."""

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, heads: int, compute: torch.dtype, ops: OpDtypes = ALL_FP32):
        super().__init__()
        self.heads = heads
        self.cast = Cast(compute)
        self.ops = ops
        self.img_qkv_proj = Linear(
            width, 3 * width, Role.matrix, bias=False, compute=compute, use=Use.attention_in
        )
        self.txt_kv_proj = Linear(
            width, 2 * width, Role.matrix, bias=False, compute=compute, use=Use.text
        )
        head = width // heads
        self.norm_q = RMSNorm(head, ops.norm)
        self.norm_k = RMSNorm(head, ops.norm)
        self.norm_added_k = RMSNorm(head, ops.norm)
        out = Linear(width, width, Role.matrix, bias=False, compute=compute, use=Use.attention_out)
        self.to_out = nn.ModuleList((out,))

    def forward(
        self, x: Tensor, table: Tensor, text: Tensor, place: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """x (B, N, D), table (1 or B, N, d), bias (B, 1, 1, L) -> (B, N, D). The text is packed,
        (M, D), with the place of each row, or (B, L, 2, H, d) as `read` gave it."""
        if text.dim() == 2:
            text = self.read(text, place, len(x), bias)
        # (B, N, H, d)
        q, k, v = torch.unflatten(self.img_qkv_proj(x), -1, (3, self.heads, -1)).unbind(-3)
        q = self.cast(rotate(self.norm_q(q), table, self.ops.rope))
        k = self.cast(rotate(self.norm_k(k), table, self.ops.rope))
        k = torch.cat((text[:, :, 0], k), dim=1)  # (B, L+N, H, d)
        v = torch.cat((text[:, :, 1], v), dim=1)
        if bias is not None:
            bias = F.pad(bias, (0, x.shape[1])).to(self.cast.dtype)  # every image token may be read
        seen = attend(q, k, v, bias, self.cast, self.ops.softmax)
        out: Tensor = self.to_out[0](seen.flatten(-2))
        return out

    def read(self, text: Tensor, place: Tensor | None, batch: int, bias: Tensor | None) -> Tensor:
        """Keys and values of a packed text, (M, D) -> (B, L, 2, H, d), zeros where no row is
        placed."""
        k, v = torch.unflatten(self.txt_kv_proj(text), -1, (2, self.heads, -1)).unbind(-3)
        kv = torch.stack((self.cast(self.norm_added_k(k)), v), dim=-3)  # (M, 2, H, d)
        if place is None or bias is None:
            return torch.unflatten(kv, 0, (batch, -1))
        length = bias.shape[-1]
        placed = kv.new_zeros(batch * length, *kv.shape[1:]).index_copy(0, place, kv)
        return torch.unflatten(placed, 0, (batch, length))


# --------------------------------------------------------------------------------------------------
# One block: attention, then a gated MLP, each shifted, scaled and gated by the condition (adaLN).


GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715 * GELU_LINEAR


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form, written with a sigmoid: 0.5 x (1 + tanh z) = x sigmoid(2 z).

    The same function, but an exponential costs the CPU a third of a tanh: 8 % of a whole step.
    """
    two_z = x * (GELU_LINEAR + GELU_CUBIC * x.square())
    return x * torch.sigmoid(two_z)


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
        # Both are set from outside: see `recompute_blocks`, `compile_blocks` and `fast_drawing`.
        self.recomputed = False  # compute activations again in the backward?
        self.runner: Callable[..., Tensor] | None = None  # computes what `forward` does, faster
        self.norm = LayerNorm(ops.norm)
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
        """h (B, N, D), active = SiLU(condition) (B, D) -> (B, N, D); table, text, place and bias
        are those of `Attention.forward`."""
        # a runner may be this function, compiled: then the graph is made of what follows
        if not torch.compiler.is_compiling() and self.runner is not None:
            return self.runner(self, h, active, table, text, place, bias)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.modulation(active)
        x = (1 + scale) * self.norm(h) + shift
        h = h + gate * self.attention(x, table, text, place, bias)
        x = (1 + mlp_scale) * self.norm(h) + mlp_shift
        return h + mlp_gate * self.down_proj(gelu(self.gate_proj(x).float()) * self.up_proj(x))


# --------------------------------------------------------------------------------------------------
# Routes: which tokens a span of blocks sees, and how the others come back.


class Route(Protocol):
    """Blocks start..end (inclusive, negative from the end) see split(tokens, keep); merge restores
    the grid. A route without weights is the record of `fillers` itself."""

    @property
    def start(self) -> int | None: ...

    @property
    def end(self) -> int | None: ...

    @property
    def fuses(self) -> bool:
        """Does a path lead around the span? Then it merges even when every token was kept, and may
        leave the span out."""

    def split(self, tokens: Tokens, keep: Tensor | None) -> Tokens: ...

    def merge(self, before: Tokens, after: Tokens, dropped: Tensor | None) -> Tokens:
        """`dropped` (B,) true where the whole path through the span counts for nothing."""

    def around(self, before: Tokens) -> Tokens:
        """What merge would give had the path been dropped for every sample: the span need not
        run."""


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
        grid = Tokens(missing.expand_as(before.h))  # (B, N, D)
        sparse = grid.put(after._replace(h=self.sparse(after.h))).h
        if dropped is not None:
            sparse = torch.where(dropped[:, None, None], missing, sparse)
        return Tokens(self.dense(before.h) + sparse)

    def around(self, before: Tokens) -> Tokens:
        return Tokens(self.dense(before.h) + self.missing(before.h))

    def missing(self, h: Tensor) -> Tensor:
        """W_sparse m: what a place gets that the span did not see."""
        return h.new_zeros(h.shape[-1]) if self.mask is None else self.sparse(self.mask)

    def dense(self, h: Tensor) -> Tensor:
        weight = self.fuse.weight[:, : self.fuse.out_features]
        return self.fuse.cast.linear(h, weight, self.fuse.bias).float()

    def sparse(self, h: Tensor) -> Tensor:
        weight = self.fuse.weight[:, self.fuse.out_features :]
        return self.fuse.cast.linear(h, weight).float()


def span(route: Route | None, depth: int) -> tuple[int, int] | None:
    """The route's first and last block as plain indices of a stack of `depth`. None: no span."""
    if route is None or route.start is None or route.end is None:
        return None
    start, end = (i + depth if i < 0 else i for i in (route.start, route.end))
    if not 0 <= start <= end < depth:
        raise ValueError(
            f"a route over blocks {route.start}..{route.end} does not fit {depth} blocks: "
            f"need 0 <= start <= end < {depth} (negative counts from the end)"
        )
    return start, end


# --------------------------------------------------------------------------------------------------
# The last layer, and the whole.


class Head(nn.Module):
    """LayerNorm, shift and scale from the condition, linear to patches."""

    __call__: Callable[..., Tensor]

    def __init__(
        self, width: int, features: int, compute: torch.dtype, norm: torch.dtype = torch.float32
    ):
        super().__init__()
        self.norm = LayerNorm(norm)
        self.linear = Linear(width, features, Role.head, start=ZERO, compute=compute)
        modulation = Linear(width, 2 * width, Role.head, start=ZERO, compute=compute)
        self.adaLN_modulation = nn.ModuleList((nn.SiLU(), modulation))

    def forward(self, h: Tensor, active: Tensor) -> Tensor:
        """h (B, N, D), active = SiLU(condition) (B, D) -> (B, N, C p p)."""
        shift, scale = self.adaLN_modulation[1](active).float()[:, None].chunk(2, dim=-1)
        return self.linear((1 + scale) * self.norm(h) + shift)


class Out(NamedTuple):
    pred: Tensor  # (B, C, h, w); of a model without a head the stream that it ends with, (B, K, D)
    taps: dict[int, Tokens]  # by block, the stream after it


class Backbone(nn.Module):
    """The denoiser. No route: every block sees every token."""

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
        self.channels = channels
        self.patch = patch
        self.width = width
        self.depth = depth
        self.heads = heads
        self.text_width = text_width
        self.mlp_ratio = mlp_ratio
        self.theta = theta
        self.bottleneck = bottleneck
        self.time_dtype = ops.time
        self.runner: Callable[..., Out] | None = None  # `forward`, compiled: `compile_backbone`

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
        self.route = route
        self.fuses = route is not None and route.fuses
        self.span = span(route, depth)

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
        """Predict from x_t (B, C, h, w) at t (B,) in [0, 1].

        text: emb (B, L, E) with mask (B, L), true = keep, or what `read_text` gave
        keep: (B, K) positions that the routed span sees; None: all
        taps: blocks whose stream is returned as well
        size: sizes of each picture, for the condition
        drop_path: (B,) true where the span counts for nothing
        short: it counts for nothing everywhere, and its blocks do not run
        """
        if not torch.compiler.is_compiling() and self.runner is not None:
            return self.runner(self, x_t, t, text, keep, taps, size, drop_path, short)
        self.check(x_t, keep, taps, drop_path, short)
        height, width = x_t.shape[-2:]
        rows, columns = height // self.patch, width // self.patch
        tokens = Tokens(self.img_in(patchify(x_t, self.patch)).float())  # (B, N, D)
        whole = rotary_table(rows, columns, self.axes, self.theta, x_t.device)  # (1, N, d)
        # (B, D); every modulation begins with this SiLU
        active = F.silu(self.condition(x_t, t, size))
        texts, place, bias = text if isinstance(text, ReadText) else self.pack_text(text)
        first, last = (self.depth, self.depth)
        if self.span is not None and (keep is not None or self.fuses):
            first, last = self.span
        route = cast(Route, self.route)  # there is one where a block is the first or last of a span

        seen: dict[int, Tokens] = {}
        before = tokens
        table = whole
        for i, block in enumerate(self.blocks):
            if short and first <= i <= last:
                tokens = route.around(tokens) if i == last else tokens
                continue
            if i == first:
                before = tokens
                tokens = route.split(tokens, keep)
                if tokens.index is not None:  # (B, K, d): rows of their own places
                    table = gather_rows(whole.expand(len(x_t), -1, -1), tokens.index)
            inputs = (tokens.h, active, table, texts[i], place, bias)
            if block.recomputed and torch.is_grad_enabled():
                h = checkpoint(block, *inputs, use_reentrant=False)
            else:
                h = block(*inputs)
            tokens = tokens._replace(h=h)
            if i in taps:
                seen[i] = tokens
            if i == last:
                tokens = route.merge(before, tokens, drop_path)
                table = whole
        if self.final_layer is None:
            return Out(tokens.h, seen)
        patches = self.final_layer(tokens.h, active).float()
        return Out(unpatchify(patches, self.patch, height, width), seen)

    def check(
        self,
        x_t: Tensor,
        keep: Tensor | None,
        taps: Collection[int],
        drop_path: Tensor | None,
        short: bool,
    ) -> None:
        """Refuse inputs that this model cannot take."""
        if (
            x_t.dim() != 4
            or x_t.shape[1] != self.channels
            or any(side % self.patch for side in x_t.shape[-2:])
        ):
            raise ValueError(
                f"x_t must be (B, {self.channels}, h, w) with h and w multiples of patch"
                f" {self.patch}, found {tuple(x_t.shape)}"
            )
        if keep is not None and self.span is None:
            raise ValueError(
                "keep was given, but the route is dense: give no keep, or build with a route that"
                " drops"
            )
        if (drop_path is not None or short) and not self.fuses:
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

    def condition(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        """The vector (B, D) of time, plus that of the condition if the model has one."""
        vector = self.time_in(sinusoids(t, SINUSOIDS, TIME_FACTOR, self.time_dtype))
        embedder = self.resolution_embedder or self.own_condition
        return vector if embedder is None else vector + embedder(x_t, t, size)

    def pack_text(self, text: Text | Packed) -> ReadText:
        """The text's real tokens in the stream's width, the same for every block, and their
        places."""
        rows, place, bias = text if isinstance(text, Packed) else pack(*text)
        return ReadText((self.txt_in(rows).float(),) * self.depth, place, bias)  # (M, D) each

    def read_text(self, text: Text) -> ReadText:
        """Keys and values of every block for a text, to be passed to many forwards with other x_t
        and t."""
        packed = self.pack_text(text)
        batch = len(text[0])
        kv = (
            block.attention.read(rows, packed.place, batch, packed.bias)
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
            self.fuses,
        )


# --------------------------------------------------------------------------------------------------
# Compile a backbone, in one graph or block by block, or recompute its activations.


ONE_GRAPH = 6  # blocks: a graph of more takes minutes to compile
# A graph for every shape: otherwise a routed span or a stage of larger pictures would get slower
# code for shapes of any size. Up to 64 graphs of a function in one process: cells of a study differ
# in routes, taps and shapes.
STATIC: dict[str, Any] = {"fullgraph": True, "dynamic": False, "recompile_limit": 64}


def compile_backbone(backbone: Backbone, lanes: int = 1, **options: Any) -> None:
    """Compile in place: a shallow stack in one graph, forward and backward, which is entered once;
    a deep one by blocks.

    One graph made a step of three blocks 7-9 % faster, and takes half as long again to compile
    (docs/decisions/0037).
    """
    if backbone.depth > ONE_GRAPH:
        compile_blocks(backbone, lanes, **options)
        return
    compiled = torch.compile(Backbone.forward, **STATIC, **(options or _options(lanes)))

    def run(
        backbone: Backbone, x_t: Tensor, t: Tensor, text: Text | Packed | ReadText, *more: Any
    ) -> Out:
        if not isinstance(text, Packed | ReadText):  # a graph cannot count the real tokens
            text = pack(*text)
            any_length(text.rows, text.place)
        return compiled(backbone, x_t, t, text, *more)

    backbone.runner = run


def compile_blocks(backbone: Backbone, lanes: int = 1, **options: Any) -> None:
    """Compile every block in place. Blocks share one graph, since they differ in their parameters
    only.

    This works for sharded models too. FSDP2 gathers the weights around `Block.forward` and passes
    on new tensors, so the mark that a text may have any length is set inside of that. Set earlier,
    it would be lost, and each length would be compiled again.
    """
    compiled = torch.compile(Block.forward, **STATIC, **(options or _options(lanes)))

    def run(
        block: Block,
        h: Tensor,
        active: Tensor,
        table: Tensor,
        text: Tensor,
        place: Tensor | None,
        bias: Tensor | None,
    ) -> Tensor:
        any_length(text, place)
        return compiled(block, h, active, table, text, place, bias)

    for block in backbone.blocks:
        block.runner = run


def any_length(rows: Tensor, place: Tensor | None) -> None:
    """Mark the number of real tokens as varying: each batch has another, and one graph serves
    all."""
    if place is not None:
        for varying in (rows, place):
            torch._dynamo.maybe_mark_dynamic(varying, 0)


def _options(lanes: int) -> dict[str, Any]:
    """With several lanes, generate the code between kernels in C++ too: in Python the lanes wait
    for each other (4-10 % of a step)."""
    return {"options": {"cpp_wrapper": True}} if lanes > 1 else {}


def recompute_blocks(backbone: Backbone, every: int = 1) -> None:
    """Activation checkpointing: of each block, or `every` second one and so on, keep only the
    inputs, and compute the rest again in the backward."""
    for block in list(backbone.blocks)[::every]:
        block.recomputed = True
