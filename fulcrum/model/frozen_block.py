"""Blocks without gradients, in half as many operations: what pictures are drawn with on a CPU. The same sums as `Block`.

    one time for the whole batch   shift and scale are bias and gain of the layer norm: one operation
    queries and keys together      normalised, and turned in place as complex numbers
    the MLP's activation           in place

A block that rounds to bf16 anywhere runs as it is.

B batch, N tokens, L text tokens, H heads, D width, d head width
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.model.attention import Attention, attend
from fulcrum.model.bf16 import ALL_FP32, EXACT
from fulcrum.model.block import GELU_CUBIC, GELU_LINEAR, Block
from fulcrum.model.run_block import BlockRunner

EPS = 1e-6  # of every norm


class FrozenRunner(BlockRunner):
    """How the blocks of a backbone are called where nothing needs a gradient."""

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
        plain = cast(Block, block)
        if plain.attention.ops != ALL_FP32 or plain.attention.cast != EXACT:
            return plain(h, active, table, text, place, bias)  # type: ignore[no-any-return]
        kv = plain.read(text, place, len(h), bias) if text.dim() == 2 else text
        changes = plain.modulation.lin(active)
        changes = changes[0] if len(changes) == 1 else changes[:, None]  # (D,) or (B, 1, D) each
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = changes.chunk(6, dim=-1)
        h = torch.addcmul(h, gate, looked(plain.attention, modulated(h, scale, shift), table, kv, bias))
        return torch.addcmul(h, mlp_gate, gated(plain, modulated(h, mlp_scale, mlp_shift)))


def modulated(h: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """(1 + scale) norm(h) + shift."""
    if scale.dim() == 1:
        return F.layer_norm(h, h.shape[-1:], 1 + scale, shift, EPS)
    return torch.addcmul(shift, F.layer_norm(h, h.shape[-1:], eps=EPS), 1 + scale)


def looked(part: Attention, x: Tensor, table: Tensor, text: Tensor, bias: Tensor | None) -> Tensor:
    """`Attention.forward`: x (B, N, D), table (1 or B, N, d), text (B, L, 2, H, d) as read, bias (B, 1, 1, L)."""
    qkv = torch.unflatten(part.img_qkv_proj(x), -1, (3, part.heads, -1))  # (B, N, 3, H, d)
    both = qkv[:, :, :2]
    size = torch.linalg.vector_norm(both, dim=-1, keepdim=True).square_().div_(both.shape[-1]).add_(EPS).rsqrt_()
    both = (both * size).mul_(torch.stack((part.norm_q.weight, part.norm_k.weight))[:, None])
    cos, sin = table[:, :, None, None].chunk(2, dim=-1)
    torch.view_as_complex(torch.unflatten(both, -1, (-1, 2))).mul_(torch.complex(cos, sin))  # turns the pairs in place
    k, v = torch.cat((text[:, :, 0], both[:, :, 1]), dim=1), torch.cat((text[:, :, 1], qkv[:, :, 2]), dim=1)
    bias = None if bias is None else F.pad(bias, (0, x.shape[1]))
    out: Tensor = part.to_out[0](attend(both[:, :, 0], k, v, bias).flatten(-2))
    return out


def gated(block: Block, x: Tensor) -> Tensor:
    """`Block.mlp`."""
    gate = block.gate_proj(x)
    active = gate.square().mul_(GELU_CUBIC).add_(GELU_LINEAR).mul_(gate).sigmoid_()
    return block.down_proj(active.mul_(gate).mul_(block.up_proj(x)))
