"""A backbone prepared for drawing on a CPU: what depends only on time and position is computed
once."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.training.model.transformer import (
    ALL_FP32,
    EXACT,
    GELU_CUBIC,
    GELU_LINEAR,
    SINUSOIDS,
    TIME_FACTOR,
    Attention,
    Backbone,
    Block,
    ReadText,
    attend,
    patchify,
    rotary_table,
    sinusoids,
    unpatchify,
)

# --------------------------------------------------------------------------------------------------
# Blocks without gradients, in half as many operations: what pictures are drawn with on a CPU. The
# same sums as `Block`.
#
#     one time for the whole batch   shift and scale are bias and gain of the layer norm: one
#                                    operation
#     queries and keys together      normalised, and turned in place as complex numbers
#     the MLP's activation           in place
#
# A block that rounds to bf16 anywhere runs as it is.
#
# B batch, N tokens, L text tokens, H heads, D width, d head width


EPS = 1e-6  # of every norm


class Changes(NamedTuple):
    """What the condition does to a block: (D,) each where it is one for the whole batch, else (B,
    1, D); and its norms."""

    gain: Tensor  # 1 + scale
    shift: Tensor
    gate: Tensor
    mlp_gain: Tensor
    mlp_shift: Tensor
    mlp_gate: Tensor
    norms: Tensor  # (2, 1, d): gains of queries and keys, times sqrt(d)


def freeze_blocks(backbone: Backbone) -> None:
    """Run the blocks of a backbone that needs no gradient in this way, in place."""
    for block in backbone.blocks:
        if exact(block):
            block.runner = run_block


def run_block(
    block: Block,
    h: Tensor,
    active: Tensor,
    table: Tensor,
    text: Tensor,
    place: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """Compute `Block.forward` with the operations below."""
    if text.dim() == 2:
        text = block.attention.read(text, place, len(h), bias)
    return run_frozen(
        block, h, changes_of(block, active), turn_of(table), text, padded(bias, h.shape[1])
    )


def exact(block: Block) -> bool:
    """Is everything fp32?"""
    stored = block.gate_proj.weight.dtype
    return (
        stored == torch.float32
        and block.attention.ops == ALL_FP32
        and block.attention.cast == EXACT
    )


def changes_of(block: Block, active: Tensor) -> Changes:
    """active = SiLU(condition), (1 or B, D)."""
    rows = block.modulation.lin(active)
    shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = (
        rows[0] if len(rows) == 1 else rows[:, None]
    ).chunk(6, dim=-1)
    part = block.attention
    norms = torch.stack((part.norm_q.weight, part.norm_k.weight))[:, None]
    return Changes(
        1 + scale, shift, gate, 1 + mlp_scale, mlp_shift, mlp_gate, norms * norms.shape[-1] ** 0.5
    )


def turn_of(table: Tensor) -> Tensor:
    """A rotary table (1 or B, N, d) as complex numbers (1 or B, N, 1, 1, d/2)."""
    cos, sin = table[:, :, None, None].chunk(2, dim=-1)
    return torch.complex(cos, sin)


def padded(bias: Tensor | None, tokens: int) -> Tensor | None:
    """The bias of text keys (B, 1, 1, L), with zeros for image tokens, all of which may be read:
    (B, 1, 1, L+N)."""
    return None if bias is None else F.pad(bias, (0, tokens))


def run_frozen(
    block: Block, h: Tensor, changes: Changes, turn: Tensor, text: Tensor, bias: Tensor | None
) -> Tensor:
    """`Block.forward`: h (B, N, D), text (B, L, 2, H, d) as read, bias (B, 1, 1, L+N) -> (B, N,
    D)."""
    x = modulated(h, changes.gain, changes.shift)
    h = torch.addcmul(h, changes.gate, looked(block.attention, x, changes.norms, turn, text, bias))
    return torch.addcmul(
        h, changes.mlp_gate, gated(block, modulated(h, changes.mlp_gain, changes.mlp_shift))
    )


def modulated(h: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """gain norm(h) + shift."""
    if gain.dim() == 1:
        return F.layer_norm(h, h.shape[-1:], gain, shift, EPS)
    return torch.addcmul(shift, F.layer_norm(h, h.shape[-1:], eps=EPS), gain)


def looked(
    part: Attention, x: Tensor, norms: Tensor, turn: Tensor, text: Tensor, bias: Tensor | None
) -> Tensor:
    """`Attention.forward`. RMSNorm is x sqrt(d) / sqrt(|x|^2 + d eps)."""
    # (B, N, 3, H, d)
    qkv = torch.unflatten(F.linear(x, part.img_qkv_proj.weight), -1, (3, part.heads, -1))
    both = qkv[:, :, :2]  # queries and keys; they are changed where they are
    size = (
        torch.linalg.vector_norm(both, dim=-1, keepdim=True)
        .square_()
        .add_(EPS * both.shape[-1])
        .rsqrt_()
    )
    both.mul_(size).mul_(norms)
    torch.view_as_complex(torch.unflatten(both, -1, (-1, 2))).mul_(turn)  # pairs of features
    kv = torch.cat((text, qkv[:, :, 1:]), dim=1)  # (B, L+N, 2, H, d)
    out: Tensor = part.to_out[0](attend(qkv[:, :, 0], kv[:, :, 0], kv[:, :, 1], bias).flatten(-2))
    return out


def gated(block: Block, x: Tensor) -> Tensor:
    """The gated MLP of `Block.forward`."""
    gate = F.linear(x, block.gate_proj.weight)
    active = gate.square().mul_(GELU_CUBIC).add_(GELU_LINEAR).mul_(gate).sigmoid_()
    return F.linear(
        active.mul_(gate).mul_(F.linear(x, block.up_proj.weight)), block.down_proj.weight
    )


# --------------------------------------------------------------------------------------------------
# A backbone whose weights stand still: what time and places do to it is computed once, for every
# picture and prompt.
#
# B batch, C channels, h w image size, N tokens, L text tokens, D width


KEPT = 1024  # times: more than any sampler has steps


class FrozenBackbone:
    """Full passes of a batch at one time, as a sampler makes them; the same sums as
    `Backbone.forward`."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.times: dict[float, tuple[Tensor, list[Changes]]] = {}
        self.turns: dict[tuple[int, int], Tensor] = {}

    @staticmethod
    def fits(backbone: Backbone) -> bool:
        """On a CPU, all in fp32, told nothing but the time, with a head and without a span that is
        fused."""
        conditioned = backbone.resolution_embedder is not None or backbone.own_condition is not None
        plain = (
            all(exact(block) for block in backbone.blocks) and backbone.time_dtype == torch.float32
        )
        on_cpu = backbone.txt_in.weight.device.type == "cpu"
        return (
            on_cpu
            and plain
            and not conditioned
            and backbone.final_layer is not None
            and not backbone.fuses
        )

    def __call__(self, x_t: Tensor, t: float, text: ReadText) -> Tensor:
        """x_t (B, C, h, w), text as `read_text` gave it -> the prediction, (B, C, h, w)."""
        backbone, (height, width) = self.backbone, x_t.shape[-2:]
        assert backbone.final_layer is not None
        active, changes = self.at(t)
        turn = self.turn(height // backbone.patch, width // backbone.patch)
        h = backbone.img_in(patchify(x_t, backbone.patch))  # (B, N, D)
        bias = padded(text.bias, h.shape[1])
        for block, change, kv in zip(backbone.blocks, changes, text.rows, strict=True):
            h = run_frozen(block, h, change, turn, kv, bias)
        return unpatchify(backbone.final_layer(h, active), backbone.patch, height, width)

    def at(self, t: float) -> tuple[Tensor, list[Changes]]:
        """The condition at a time, as modulations begin with it (1, D), and what it does to each
        block."""
        if t not in self.times:
            if len(self.times) >= KEPT:
                self.times.clear()
            time = sinusoids(torch.tensor([t]), SINUSOIDS, TIME_FACTOR)
            active = F.silu(self.backbone.time_in(time))
            self.times[t] = active, [changes_of(block, active) for block in self.backbone.blocks]
        return self.times[t]

    def turn(self, rows: int, columns: int) -> Tensor:
        """Rotary positions of a grid."""
        if (rows, columns) not in self.turns:
            backbone = self.backbone
            table = rotary_table(
                rows, columns, backbone.axes, backbone.theta, backbone.txt_in.weight.device
            )
            self.turns[rows, columns] = turn_of(table)
        return self.turns[rows, columns]
