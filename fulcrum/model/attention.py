"""Attention of image tokens over [text; image]: projections, norms, positions, and the choice of the kernel.

B batch, N image tokens, L text tokens, M text tokens in any arrangement, H heads, d head width, D = H d
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.model.bf16 import ALL_FP32, Cast, OpDtypes, narrowed
from fulcrum.model.linear import Gain, Linear
from fulcrum.model.roles import Role, Use
from fulcrum.model.rope import rotate


def rms_norm(x: Tensor, gain: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """RMSNorm over the last axis, eps 1e-6."""
    x = narrowed(x.float(), dtype)
    return narrowed(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain, dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """softmax(q k' / sqrt(d) + bias) v: q (B, N, H, d), k v (B, L+N, H, d), bias (B, 1, 1, L+N) -> (B, N, H, d)."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2)


def attend_stepwise(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, cast: Cast, dtype: torch.dtype) -> Tensor:
    """The same, product by product, for what no fused kernel offers: a softmax in bf16, or weights rounded to bf16 before
    they meet the values, as kernels with bf16 units do. It stores the scores, (B, H, N, L+N)."""
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
        self.img_qkv_proj = Linear(width, 3 * width, Role.matrix, bias=False, compute=compute, use=Use.attention_in)
        self.txt_kv_proj = Linear(width, 2 * width, Role.matrix, bias=False, compute=compute, use=Use.text)
        self.norm_q, self.norm_k, self.norm_added_k = (Gain(width // heads) for _ in range(3))
        out = Linear(width, width, Role.matrix, bias=False, compute=compute, use=Use.attention_out)
        self.to_out = nn.ModuleList((out,))

    def read(self, text: Tensor) -> Tensor:
        """text (M, D) -> keys and values (M, 2, H, d)."""
        k, v = torch.unflatten(self.txt_kv_proj(text), -1, (2, self.heads, -1)).unbind(-3)
        return torch.stack((self.cast(rms_norm(k, self.norm_added_k.weight, self.ops.norm)), v), dim=-3)

    def forward(self, x: Tensor, table: Tensor, text: Tensor, bias: Tensor | None) -> Tensor:
        """x (B, N, D), table (1 or B, N, d), text (B, L, 2, H, d) as read, bias (B, 1, 1, L) -> (B, N, D)."""
        q, k, v = torch.unflatten(self.img_qkv_proj(x), -1, (3, self.heads, -1)).unbind(-3)  # (B, N, H, d)
        q = self.cast(self.placed(q, self.norm_q.weight, table))
        k = self.cast(self.placed(k, self.norm_k.weight, table))
        k, v = torch.cat((text[:, :, 0], k), dim=1), torch.cat((text[:, :, 1], v), dim=1)  # (B, L+N, H, d)
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
