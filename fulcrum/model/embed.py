"""From inputs to the stream and back: patches, sinusoids of time and size, and the last layer.

B batch, C channels, h w image size, p patch, N tokens, D width
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.model.bf16 import narrowed
from fulcrum.model.init import ZERO
from fulcrum.model.linear import Linear
from fulcrum.model.roles import Role

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
    x = tokens.reshape(batch, height // patch, width // patch, features // (patch * patch), patch, patch)
    return x.permute(0, 3, 1, 4, 2, 5).reshape(batch, -1, height, width)


def sinusoids(value: Tensor, width: int, factor: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """factor * value (B,) -> (B, width): cosines first, then sines, periods from 2 pi to 2 pi MAX_PERIOD.

    The factor comes last, as in diffusers: an angle near 1000 rounds to 6e-5, so the order is visible in the output.
    """
    half = width // 2
    steps = torch.arange(half, dtype=torch.float32, device=value.device)
    angles = factor * (narrowed(value.float(), dtype)[:, None] * torch.exp(-math.log(MAX_PERIOD) * steps / half))
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

    def __init__(self, width: int, features: int, compute: torch.dtype, norm: torch.dtype = torch.float32):
        super().__init__()
        self.norm_dtype = norm
        self.linear = Linear(width, features, Role.head, start=ZERO, compute=compute)
        modulation = Linear(width, 2 * width, Role.head, start=ZERO, compute=compute)
        self.adaLN_modulation = nn.ModuleList((nn.SiLU(), modulation))

    def forward(self, h: Tensor, active: Tensor) -> Tensor:
        """h (B, N, D), active = SiLU(condition) (B, D) -> (B, N, C p p)."""
        shift, scale = self.adaLN_modulation[1](active).float()[:, None].chunk(2, dim=-1)
        return self.linear((1 + scale) * layer_norm(h, self.norm_dtype) + shift)
