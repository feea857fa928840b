"""Attention of image tokens over [text; image]: projections, norms, positions, and the choice of the kernel.

B batch, N image tokens, L text tokens, M text tokens in any arrangement, H heads, d head width, D = H d
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.model.linear import Gain, Linear
from fulcrum.model.roles import Role
from fulcrum.model.rope import rotate


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """RMSNorm over the last axis, eps 1e-6, in fp32."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q k' / sqrt(d) + bias) v: q (B, N, H, d), k v (B, L+N, H, d), bias (B, 1, 1, L+N) -> (B, N, H, d)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


class Attention(nn.Module):
    """Image tokens ask; text and image tokens answer. Text has no position and is not updated."""

    __call__: Callable[..., Tensor]

    def __init__(self, width: int, heads: int, compute: torch.dtype):
        super().__init__()
        self.heads, self.compute = heads, compute
        self.img_qkv_proj = Linear(width, 3 * width, Role.matrix, bias=False, compute=compute)
        self.txt_kv_proj = Linear(width, 2 * width, Role.matrix, bias=False, compute=compute)
        self.norm_q, self.norm_k, self.norm_added_k = (Gain(width // heads) for _ in range(3))
        self.to_out = nn.ModuleList((Linear(width, width, Role.matrix, bias=False, compute=compute),))

    def read(self, text: Tensor) -> Tensor:
        """text (M, D) -> keys and values (M, 2, H, d)."""
        k, v = torch.unflatten(self.txt_kv_proj(text), -1, (2, self.heads, -1)).unbind(-3)
        return torch.stack((rms_norm(k, self.norm_added_k.weight).to(self.compute), v), dim=-3)

    def forward(self, x: Tensor, table: Tensor, text: Tensor, bias: Tensor | None) -> Tensor:
        """x (B, N, D), table (1 or B, N, d), text (B, L, 2, H, d) as read, bias (B, 1, 1, L) -> (B, N, D)."""
        q, k, v = torch.unflatten(self.img_qkv_proj(x), -1, (3, self.heads, -1)).unbind(-3)  # (B, N, H, d)
        q = rotate(rms_norm(q, self.norm_q.weight), table).to(self.compute)
        k = rotate(rms_norm(k, self.norm_k.weight), table).to(self.compute)
        k, v = torch.cat((text[:, :, 0], k), dim=1), torch.cat((text[:, :, 1], v), dim=1)  # (B, L+N, H, d)
        if bias is not None:
            bias = F.pad(bias, (0, x.shape[1])).to(self.compute)  # every image token may be read
        out: Tensor = self.to_out[0](attend(q, k, v, bias).flatten(-2))
        return out
