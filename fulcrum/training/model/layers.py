"""Layers of the transformer: linears with a compute dtype, positions, embeddings, tokens,
initialisation."""

import hashlib
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# --------------------------------------------------------------------------------------------------
# Numbers in bf16, 8 significant bits: rounding to them, the cast of a product's operands, and what
# else is computed so.
#
# An operation in bf16 takes numbers that bf16 can hold and gives such numbers; inside it sums in
# fp32, as torch's own kernels do. Its gradient is rounded on the way in and on the way out, as it
# would be between two bf16 tensors.


def nearest(x: Tensor) -> Tensor:
    """fp32 values, each the nearest that bf16 can hold, ties to even.

    Inductor takes a cast to bf16 and back out of its graphs (its pass `pointless_convert`): what it
    is to keep is written in integers. A bf16 number is the upper half of an fp32 one.
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
    """x, whose values and gradients the dtype can hold; it stays an fp32 tensor."""
    return x if dtype == torch.float32 else RoundTrip.apply(x)  # type: ignore[no-untyped-call]


class Cast(NamedTuple):
    """What happens to the operands and to the result of a matrix product.

    Emulated, they are rounded and multiplied in fp32: on CPUs without units for bf16 that is faster
    than torch's own products, and both sum in fp32. The backward's two products see rounded
    operands too, and their results are rounded.
    """

    dtype: torch.dtype
    emulated: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        return narrowed(x.float(), self.dtype) if self.emulated else x.to(self.dtype)


EXACT = Cast(torch.float32)


def emulate_bf16(module: nn.Module) -> None:
    """Multiply in rounded fp32 numbers wherever the module would in bf16. Decided outside, as
    compiling is."""
    for part in module.modules():
        cast = vars(part).get("cast")
        if isinstance(cast, Cast) and cast.dtype == torch.bfloat16:
            vars(part)["cast"] = cast._replace(emulated=True)


class OpDtypes(NamedTuple):
    """The operations that are said to need fp32, and what each computes in."""

    norm: torch.dtype = torch.float32
    softmax: torch.dtype = torch.float32
    rope: torch.dtype = torch.float32
    time: torch.dtype = torch.float32


ALL_FP32 = OpDtypes()


# --------------------------------------------------------------------------------------------------
# What each parameter is for: declared by the module where it is born, so that optimizers never
# guess from names.
#
# The declaration is an attribute of the module, not of the Parameter: FSDP2 replaces Parameters by
# sharded ones.


class Role(StrEnum):
    matrix = "matrix"  # a 2-D weight inside a block: what Muon orthogonalises
    embed = "embed"  # brings an input into the stream: image patches, text, time, resolution
    head = "head"  # the last layer, out of the stream; a layer that joins two paths of it
    vector = "vector"  # biases, norm scales, single learned tokens


class Use(StrEnum):
    """What a layer of a block is for."""

    attention_in = "attention_in"  # queries, keys and values of the image
    attention_out = "attention_out"
    text = "text"  # keys and values of the text
    feed_forward = "feed_forward"
    modulation = "modulation"  # by time, and by what else the model is told


def words(module: nn.Module) -> dict[str, frozenset[str]]:
    """The words that every parameter is chosen by: its role, and what its layer is for if that is
    said."""
    uses: dict[str, str] = {
        prefix: part.use for prefix, part in module.named_modules() if getattr(part, "use", None)
    }
    return {
        name: frozenset(
            {str(role)}
            | ({str(uses[layer])} if (layer := name.rpartition(".")[0]) in uses else set())
        )
        for name, role in roles(module).items()
    }


def roles(module: nn.Module) -> dict[str, Role]:
    """The role of every parameter by its full name; raises unless each is declared exactly once.

    A module declares with an attribute `parameter_roles`: {its own parameter's name, dotted if in a
    child: role}.
    """
    known: dict[str, Role] = {}
    for prefix, part in module.named_modules():
        declared: Mapping[str, Role] = getattr(part, "parameter_roles", {})
        for name, role in declared.items():
            full = f"{prefix}.{name}" if prefix else name
            if full in known:
                raise ValueError(
                    f"parameter '{full}' has two roles, {known[full]} and {role}: declare it once"
                )
            known[full] = Role(role)
    names = {name for name, _ in module.named_parameters()}
    if lost := sorted(names - known.keys()):
        raise ValueError(
            f"no role for {', '.join(lost)}: name each in `parameter_roles` of the module that"
            " makes it"
        )
    if ghost := sorted(known.keys() - names):
        raise ValueError(
            f"a role for what is no parameter: {', '.join(ghost)}; correct `parameter_roles`"
        )
    return {name: known[name] for name, _ in module.named_parameters()}


# --------------------------------------------------------------------------------------------------
# Keyed initialisation: each parameter from (seed, its name) alone, whatever else the model holds.


class InitialValue(NamedTuple):
    """Uniform between two bounds; equal bounds are a constant."""

    low: float
    high: float


ZERO, ONE = InitialValue(0.0, 0.0), InitialValue(1.0, 1.0)


def fan_in(inputs: int) -> InitialValue:
    """Uniform within 1/sqrt(inputs): torch's own rule for linears, weights and biases, which PRX
    keeps."""
    bound = 1 / math.sqrt(inputs)
    return InitialValue(-bound, bound)


def starts(module: nn.Module) -> dict[str, InitialValue]:
    """How every parameter begins, as the modules declare it in `parameter_starts`; raises where one
    does not."""
    values: dict[str, InitialValue] = {}
    for prefix, part in module.named_modules():
        declared: Mapping[str, InitialValue] = getattr(part, "parameter_starts", {})
        values |= {
            f"{prefix}.{name}" if prefix else name: start for name, start in declared.items()
        }
    names = [name for name, _ in module.named_parameters()]
    if lost := [name for name in names if name not in values]:
        raise ValueError(
            f"no start for {', '.join(lost)}: name each in `parameter_starts` of the module that"
            " makes it"
        )
    return {name: values[name] for name in names}


def draw(name: str, shape: torch.Size, start: InitialValue, seed: int) -> Tensor:
    """The whole parameter `name` of seed `seed`, fp32 on the CPU; no other parameter has a say in
    it."""
    if start.low == start.high:
        return torch.full(shape, start.low, dtype=torch.float32)
    key = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little")
    generator = torch.Generator().manual_seed(key >> 1)  # 63 bits: torch's seeds are signed
    return torch.empty(shape, dtype=torch.float32).uniform_(
        start.low, start.high, generator=generator
    )


@torch.no_grad()
def initialise(module: nn.Module, seed: int) -> None:
    """Fill every parameter in place, one at a time; sharded ones are
    `fulcrum.training.dist.shard`'s."""
    how = starts(module)
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            raise ValueError(
                f"parameter '{name}' is on the meta device: call `to_empty(device=...)` before"
                " initialise"
            )
        parameter.copy_(draw(name, parameter.shape, how[name], seed))


# --------------------------------------------------------------------------------------------------
# A linear layer that stores fp32, multiplies in the dtype it is told, and declares its parameters'
# roles and starts.


class Linear(nn.Linear):
    """The cast stands here and nowhere else: what is between two linears is fp32 arithmetic."""

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
        whole: bool = True,  # false: it is never called, its weight is multiplied in parts
    ):
        super().__init__(inputs, outputs, bias=bias, dtype=torch.float32)
        self.use, self.whole = use, whole
        self.beside: nn.Module | None = None  # what learns in its place: `adapter`
        self.cast = Cast(compute)
        self.parameter_roles = {"weight": role, "bias": Role.vector} if bias else {"weight": role}
        self.parameter_starts = dict.fromkeys(self.parameter_roles, start or fan_in(inputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.product(x, self.weight, self.bias)
        return out if self.beside is None else out + self.beside(x)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x W' + b in the layer's dtype, with a part of its weight or the whole."""
        cast = self.cast
        return cast(F.linear(cast(x), cast(weight), None if bias is None else cast(bias)))


class Gain(nn.Module):
    """The learned gain of a norm, (D,), under the name `weight`; the norm itself is arithmetic of
    the caller."""

    parameter_roles = {"weight": Role.vector}
    parameter_starts = {"weight": ONE}

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.float32))


# --------------------------------------------------------------------------------------------------
# Rotary positions on a grid: the table of angles, and turning pairs of features by them.
#
# B batch, N tokens, H heads, d head width


def rotary_table(
    rows: int, cols: int, axes: tuple[int, int], theta: float, device: torch.device
) -> Tensor:
    """(1, N, d): cosines of the d/2 angles of each token, then their sines; rows first, then
    columns.

    Angles are made in fp64 and stored in fp32, as the published model does. It is made anew at each
    call: it costs microseconds, and a cached or registered table would be wrong after `to_empty`, a
    deep copy or another grid.
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
    x, table = narrowed(x, dtype), narrowed(table, dtype)
    cos, sin = table[:, :, None].chunk(2, dim=-1)  # (., N, 1, d/2)
    even, odd = torch.unflatten(x, -1, (-1, 2)).unbind(-1)  # (B, N, H, d/2)
    return narrowed(
        torch.stack((cos * even - sin * odd, sin * even + cos * odd), dim=-1).flatten(-2), dtype
    )


# --------------------------------------------------------------------------------------------------
# From inputs to the stream and back: patches, sinusoids of time and size, and the last layer.
#
# B batch, C channels, h w image size, p patch, N tokens, D width


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


def layer_norm(h: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """LayerNorm without parameters, eps 1e-6."""
    return narrowed(F.layer_norm(narrowed(h.float(), dtype), h.shape[-1:], eps=1e-6), dtype)


class VectorIn(nn.Module):
    """Sinusoids, `inputs` of them -> vector of the stream's width, by two linears around a SiLU."""

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, compute: torch.dtype, inputs: int = SINUSOIDS):
        super().__init__()
        self.in_layer = Linear(inputs, width, Role.embed, compute=compute)
        self.out_layer = Linear(width, width, Role.embed, compute=compute)

    def forward(self, vector: Tensor) -> Tensor:  # (B, inputs) -> (B, D)
        return self.out_layer(F.silu(self.in_layer(vector).float())).float()


class Head(nn.Module):
    """The last layer: LayerNorm, shift and scale from the condition, linear to patches."""

    __call__: Callable[..., Tensor]

    def __init__(
        self, width: int, features: int, compute: torch.dtype, norm: torch.dtype = torch.float32
    ):
        super().__init__()
        self.norm_dtype = norm
        self.linear = Linear(width, features, Role.head, start=ZERO, compute=compute)
        modulation = Linear(width, 2 * width, Role.head, start=ZERO, compute=compute)
        self.adaLN_modulation = nn.ModuleList((nn.SiLU(), modulation))

    def forward(self, h: Tensor, active: Tensor) -> Tensor:
        """h (B, N, D), active = SiLU(condition) (B, D) -> (B, N, C p p)."""
        shift, scale = self.adaLN_modulation[1](active).float()[:, None].chunk(2, dim=-1)
        return self.linear((1 + scale) * layer_norm(h, self.norm_dtype) + shift)


# --------------------------------------------------------------------------------------------------
# Tokens that know where they come from, so that routing and alignment compose without knowing each
# other.
#
# B batch, N tokens of the grid, K kept, D width


class Tokens(NamedTuple):
    """Features and the place of each on the grid; no index means that the whole grid is here, in
    order."""

    h: Tensor  # (B, N, D)
    index: Tensor | None = None  # type: ignore[assignment]  # (B, N) int64; hides tuple.index, which nobody calls

    def take(self, keep: Tensor) -> "Tokens":
        """The tokens at `keep`, positions in this sequence; their index still speaks of the
        grid."""
        if keep.shape[0] != self.h.shape[0] or keep.dim() != 2:
            raise ValueError(
                f"keep must be (batch, kept) = ({self.h.shape[0]}, K), found {tuple(keep.shape)}:"
                " one row per image"
            )
        index = keep if self.index is None else self.index.gather(1, keep)
        return Tokens(gather_rows(self.h, keep), index)  # (B, K, D)

    def put(self, part: "Tokens") -> "Tokens":
        """This whole grid, with the tokens of `part` in their places."""
        if self.index is not None:
            raise ValueError(
                "put needs the whole grid on the left, found tokens that were already taken from it"
            )
        if part.index is None:
            return part
        whole = self.h.flatten(0, 1).index_copy(
            0, flat_places(part.index, self.h.shape[1]), part.h.flatten(0, 1)
        )
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
