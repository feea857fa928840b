"""Pictures of the world in memory, in both domains, with what stands at each place: what the parts
train on.

n scenes, S side in pixels, P = 9 places
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.data.world.scene import Scenes, render, scenes

DOMAINS = ("synthetic", "real")
ATTRIBUTES = ("shape", "colour", "texture", "size")


@dataclass(frozen=True)
class Pictures:
    """n scenes, drawn once per domain: row k of both halves is the same scene."""

    scenes: Scenes
    images: Tensor  # (2, n, 3, S, S) uint8: synthetic, real
    grid: dict[str, Tensor]  # name -> (n, P) int64; -1 where a place is empty

    def draw(self, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """images (rows, 3, S, S) uint8, scene row and domain of each, at random."""
        row = torch.randint(self.images.shape[1], (rows,), generator=generator)
        domain = torch.randint(len(DOMAINS), (rows,), generator=generator)
        return self.images[domain, row], row, domain


def pictures(split: str, count: int, size: int = 32, start: int = 0) -> Pictures:
    """The scenes `start` to `start + count` of a split, rendered in both domains."""
    return drawn_pictures(scenes(split, np.arange(start, start + count, dtype=np.int64)), size)


def drawn_pictures(drawn: Scenes, size: int = 32) -> Pictures:
    """These scenes, rendered in both domains."""
    images = torch.stack([torch.from_numpy(render(drawn, size, domain)) for domain in DOMAINS])
    grid = {
        name: torch.from_numpy(np.asarray(values, dtype=np.int64))
        for name, values in drawn.grid().items()
    }
    return Pictures(drawn, images, grid)


def unlabelled(split: str, count: int, size: int = 32, start: int = 0) -> Tensor:
    """The same pictures without what they show: (2 * count, 3, S, S) uint8, both domains.  For who
    must not be told."""
    return pictures(split, count, size, start).images.flatten(0, 1)


def blurred(pixels: Tensor, sigma: float) -> Tensor:
    """Gaussian blur with a 5 x 5 kernel, borders replicated."""
    offset = torch.arange(-2.0, 3.0)
    line = torch.exp(-(offset**2) / (2 * sigma**2))
    kernel = torch.outer(line, line)
    kernel = (kernel / kernel.sum()).expand(3, 1, 5, 5)
    return F.conv2d(F.pad(pixels, (2, 2, 2, 2), mode="replicate"), kernel, groups=3)


def disturbed(
    pixels: Tensor, generator: torch.Generator, blur: float, noise: float, light: float
) -> tuple[Tensor, Tensor]:
    """Mild, random blur, grain, brightness and contrast; half of the pictures get none of one kind.

    Returns the pixels and how much blur and grain each got, (B, 2) in [0, 1].
    """
    rows = len(pixels)
    amount = torch.rand(rows, 2, generator=generator) * (
        torch.rand(rows, 2, generator=generator) < 0.5
    )
    soft = blurred(pixels, 0.8)
    pixels = pixels + (blur * amount[:, 0]).view(-1, 1, 1, 1) * (soft - pixels)
    gain, level = (light * (2 * torch.rand(2, rows, 1, 1, 1, generator=generator) - 1)).unbind(0)
    pixels = pixels * (1 + gain) + level
    grain = torch.randn(pixels.shape, generator=generator)
    return pixels + (noise * amount[:, 1]).view(-1, 1, 1, 1) * grain, amount
