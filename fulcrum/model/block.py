"""One transformer block: attention, then a gated MLP, each shifted, scaled and gated by the condition (adaLN).

B batch, N tokens, L text tokens, D width
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.model.attention import Attention
from fulcrum.model.embed import layer_norm
from fulcrum.model.init import ZERO
from fulcrum.model.linear import Linear
from fulcrum.model.roles import Role


class Modulation(nn.Module):
    """Condition -> shift, scale, gate for the attention, then for the MLP.

    Its weight is a `matrix`: a 2-D weight inside a block, with dense inputs and outputs; the published Muon
    orthogonalises it with the others.
    """

    def __init__(self, width: int, compute: torch.dtype):
        super().__init__()
        self.lin = Linear(width, 6 * width, Role.matrix, start=ZERO, compute=compute)

    def forward(self, active: Tensor) -> tuple[Tensor, ...]:  # (B, D) -> six of (B, 1, D)
        return self.lin(active).float()[:, None].chunk(6, dim=-1)


class Block(nn.Module):
    """h -> h + gate attention(adaLN h) -> h + gate mlp(adaLN h); the stream h is fp32."""

    def __init__(self, width: int, heads: int, mlp_ratio: float, compute: torch.dtype):
        super().__init__()
        hidden = int(width * mlp_ratio)
        self.attention = Attention(width, heads, compute)
        self.gate_proj = Linear(width, hidden, Role.matrix, bias=False, compute=compute)
        self.up_proj = Linear(width, hidden, Role.matrix, bias=False, compute=compute)
        self.down_proj = Linear(hidden, width, Role.matrix, bias=False, compute=compute)
        self.modulation = Modulation(width, compute)

    def forward(self, h: Tensor, active: Tensor, table: Tensor, text: Tensor, bias: Tensor | None) -> Tensor:
        """h (B, N, D), active = SiLU(condition) (B, D), table (1 or B, N, d), text (B, L, D), or already read."""
        if text.dim() == 3:
            text = self.attention.read(text)  # (B, L, 2, H, d)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self.modulation(active)
        h = h + gate * self.attention((1 + scale) * layer_norm(h) + shift, table, text, bias)
        return h + mlp_gate * self.mlp((1 + mlp_scale) * layer_norm(h) + mlp_shift)

    def mlp(self, x: Tensor) -> Tensor:
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))
