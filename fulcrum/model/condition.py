"""What is added to the time vector, which every modulation reads: the picture's size, or a part of the user's own.

B batch, C channels, h w image size, D width
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from fulcrum.model.embed import SINUSOIDS, VectorIn, sinusoids


class Condition(Protocol):
    """A torch module that is part of the denoiser."""

    def __call__(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        """x_t (B, C, h, w), t (B,), size (B, 2) to be told instead of (h, w) -> (B, D)."""


class ResolutionIn(nn.Module):
    """Height and width, 128 sinusoids each, through two linears."""

    def __init__(self, width: int, compute: torch.dtype):
        super().__init__()
        self.mlp = VectorIn(width, compute)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        if size is None:
            size = x_t.new_tensor(x_t.shape[-2:], dtype=torch.float32).expand(len(x_t), 2)
        half = SINUSOIDS // 2
        vector: Tensor = self.mlp(torch.cat((sinusoids(size[:, 0], half), sinusoids(size[:, 1], half)), dim=-1))
        return vector
