"""What is added to the time vector, which every modulation reads: the picture's size, what it was cut from, or a part of
the user's own.

B batch, C channels, h w image size, D width
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from fulcrum.model.embed import SINUSOIDS, VectorIn, sinusoids


class Condition(Protocol):
    """A torch module that is part of the denoiser."""

    def __call__(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        """x_t (B, C, h, w), t (B,), size: numbers about each picture to be told instead of what x_t says by itself, (B, 2)
        height and width or (B, 4) as a batch's `geometry` -> (B, D)."""


class ResolutionIn(nn.Module):
    """Height and width, 128 sinusoids each, through two linears."""

    def __init__(self, width: int, compute: torch.dtype):
        super().__init__()
        self.mlp = VectorIn(width, compute)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        if size is None:
            size = written(x_t, *x_t.shape[-2:])
        half = SINUSOIDS // 2
        vector: Tensor = self.mlp(torch.cat((sinusoids(size[:, 0], half), sinusoids(size[:, 1], half)), dim=-1))
        return vector


class SizeCropIn(nn.Module):
    """SDXL (arXiv:2307.01952, section 2.2): original height, original width, top and left of the crop, 256 sinusoids each,
    one after the other through two linears. A picture of which nothing is told is whole: its own size, cropped at 0, 0."""

    def __init__(self, width: int, compute: torch.dtype, stride: int):
        super().__init__()
        self.stride = stride  # pixels of a cell of x_t, along each side
        self.mlp = VectorIn(width, compute, 4 * SINUSOIDS)

    def forward(self, x_t: Tensor, t: Tensor, size: Tensor | None) -> Tensor:
        if size is None:
            height, width = (side * self.stride for side in x_t.shape[-2:])
            size = written(x_t, height, width, 0, 0)
        vector: Tensor = self.mlp(torch.cat([sinusoids(number, SINUSOIDS) for number in size.unbind(1)], dim=-1))
        return vector


def written(x_t: Tensor, *numbers: int) -> Tensor:
    """(B, numbers), the same for every row; filled in on the device: a tensor of the host would be waited for."""
    return torch.stack([x_t.new_full((len(x_t),), number, dtype=torch.float32) for number in numbers], dim=1)
