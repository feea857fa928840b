"""Encoder and decoder with the graph and parameter names of diffusers' AutoencoderKL, so that either loads the other's
weights; without attention in the middle, and in PyTorch alone.

B batch, H W pixels, C latent channels, w0 w1 w2 widths of the levels: each level but the last halves the sides

    encoder   3 -> w0 at H -> w1 at H/2 -> w2 at H/4 -> two blocks -> 2C
    decoder   C -> w2 at H/4 -> two blocks -> w2 -> w1 at H/2 -> w0 at H -> 3
"""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

EPS = 1e-6  # of every group norm


class ResnetBlock(nn.Module):
    """x + conv(silu(norm(conv(silu(norm(x)))))), with a 1 x 1 convolution on x where the width changes."""

    def __init__(self, before: int, width: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, before, eps=EPS)
        self.conv1 = nn.Conv2d(before, width, 3, padding=1)
        self.norm2 = nn.GroupNorm(groups, width, eps=EPS)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(before, width, 1) if before != width else None

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.conv_shortcut is None else self.conv_shortcut(x))  # type: ignore[no-any-return]


class Downsample(nn.Module):
    """A convolution of stride 2; the border is padded on the right and at the bottom alone, as diffusers does it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)))  # type: ignore[no-any-return]


class Upsample(nn.Module):
    """Every pixel four times, then a convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))  # type: ignore[no-any-return]


class Level(nn.Module):
    """Blocks of one width, then a change of the sides; the last level of either half has none."""

    def __init__(self, before: int, width: int, layers: int, groups: int) -> None:
        super().__init__()
        widths = [before] + [width] * layers
        self.resnets = nn.ModuleList(ResnetBlock(one, other, groups) for one, other in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.resnets:
            x = block(x)
        return x


class DownLevel(Level):
    """One level of the encoder."""

    def __init__(self, before: int, width: int, layers: int, groups: int, halves: bool) -> None:
        super().__init__(before, width, layers, groups)
        self.downsamplers = nn.ModuleList([Downsample(width)] if halves else [])

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        for sampler in self.downsamplers:
            x = sampler(x)
        return x


class UpLevel(Level):
    """One level of the decoder."""

    def __init__(self, before: int, width: int, layers: int, groups: int, doubles: bool) -> None:
        super().__init__(before, width, layers, groups)
        self.upsamplers = nn.ModuleList([Upsample(width)] if doubles else [])

    def forward(self, x: Tensor) -> Tensor:
        x = super().forward(x)
        for sampler in self.upsamplers:
            x = sampler(x)
        return x


class LatentEncoder(nn.Module):
    """Pixels (B, 3, H, W) to (B, 2C, H/4, W/4): mean and log variance before `quant_conv`."""

    def __init__(self, channels: int, widths: Sequence[int], layers: int, groups: int) -> None:
        super().__init__()
        last = len(widths) - 1
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down_blocks = nn.ModuleList(
            DownLevel(before, width, layers, groups, halves=index < last)
            for index, (before, width) in enumerate(pairwise([widths[0], *widths]))
        )
        self.mid_block = Level(widths[-1], widths[-1], 2, groups)
        self.conv_norm_out = nn.GroupNorm(groups, widths[-1], eps=EPS)
        self.conv_out = nn.Conv2d(widths[-1], 2 * channels, 3, padding=1)

    def forward(self, pixels: Tensor) -> Tensor:
        h = self.conv_in(pixels)
        for level in self.down_blocks:
            h = level(h)
        return self.conv_out(F.silu(self.conv_norm_out(self.mid_block(h))))  # type: ignore[no-any-return]


class LatentDecoder(nn.Module):
    """Latents (B, C, H/4, W/4) after `post_quant_conv` to pixels (B, 3, H, W)."""

    def __init__(self, channels: int, widths: Sequence[int], layers: int, groups: int) -> None:
        super().__init__()
        upwards = widths[::-1]
        last = len(widths) - 1
        self.conv_in = nn.Conv2d(channels, upwards[0], 3, padding=1)
        self.mid_block = Level(upwards[0], upwards[0], 2, groups)
        self.up_blocks = nn.ModuleList(
            UpLevel(before, width, layers + 1, groups, doubles=index < last)
            for index, (before, width) in enumerate(pairwise([upwards[0], *upwards]))
        )
        self.conv_norm_out = nn.GroupNorm(groups, upwards[-1], eps=EPS)
        self.conv_out = nn.Conv2d(upwards[-1], 3, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        h = self.mid_block(self.conv_in(latents))
        for level in self.up_blocks:
            h = level(h)
        return self.conv_out(F.silu(self.conv_norm_out(h)))  # type: ignore[no-any-return]
