"""One transformer block: attention, then a gated MLP, each shifted, scaled and gated by the condition (adaLN).

B batch, N tokens, L text tokens, M real text tokens of the batch, H heads, D width
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fulcrum.model.attention import Attention
from fulcrum.model.bf16 import ALL_FP32, OpDtypes
from fulcrum.model.embed import layer_norm
from fulcrum.model.init import ZERO
from fulcrum.model.linear import Linear
from fulcrum.model.packed_text import any_length, unpack
from fulcrum.model.roles import Role, Use

GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715 * GELU_LINEAR


class Modulation(nn.Module):
    """Condition -> shift, scale, gate for the attention, then for the MLP.

    Its weight is a `matrix`: a 2-D weight inside a block, with dense inputs and outputs; the published Muon
    orthogonalises it with the others.
    """

    __call__: Callable[..., tuple[Tensor, ...]]

    def __init__(self, width: int, compute: torch.dtype):
        super().__init__()
        self.lin = Linear(width, 6 * width, Role.matrix, start=ZERO, compute=compute, use=Use.modulation)

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

    def __init__(self, width: int, heads: int, mlp_ratio: float, compute: torch.dtype, ops: OpDtypes = ALL_FP32):
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.norm_dtype = ops.norm
        self.recomputed = False  # its activations are computed again in the backward; decided outside
        self.compiled: Callable[..., Tensor] | None = None  # `Block.run`, compiled; decided outside
        self.attention = Attention(width, heads, compute, ops)
        self.gate_proj = Linear(width, hidden, Role.matrix, bias=False, compute=compute, use=Use.feed_forward)
        self.up_proj = Linear(width, hidden, Role.matrix, bias=False, compute=compute, use=Use.feed_forward)
        self.down_proj = Linear(hidden, width, Role.matrix, bias=False, compute=compute, use=Use.feed_forward)
        self.modulation = Modulation(width, compute)

    def forward(
        self, h: Tensor, active: Tensor, table: Tensor, text: Tensor, place: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        """h (B, N, D), active = SiLU(condition) (B, D), table (1 or B, N, d), bias (B, 1, 1, L);
        text packed (M, D) with the place of each row, or as `read` gave it (B, L, 2, H, d)."""
        if self.compiled is None:
            return self.run(h, active, table, text, place, bias)
        any_length(text, place)
        return self.compiled(self, h, active, table, text, place, bias)

    def run(
        self, h: Tensor, active: Tensor, table: Tensor, text: Tensor, place: Tensor | None, bias: Tensor | None
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
