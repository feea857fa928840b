"""The embedded vision teacher, and teacher tokens resized to another grid."""

from math import isqrt
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.files.shipped import load
from fulcrum.networks.protocols import TeacherNetwork

# --------------------------------------------------------------------------------------------------
# The vision teacher of the alignment levers: one token per 4 x 4 pixels, trained apart from every
# judge.
#
# Convolutional: on one core a ViT of four layers read 360 pictures a second, this reads 1,500.
#
# B batch, N tokens (side/4 squared, row by row), E token width


PATCH = 4  # pixels per token, along each side


class Wide(nn.Module):
    """h + conv(silu(conv(silu(h)))), the first convolution dilated: a token must know its
    surroundings."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation)
        self.last = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.last(F.silu(self.first(F.silu(h))))  # type: ignore[no-any-return]


class Teacher(nn.Module):
    """`tokens` are its last states, normalised; trained at 32 px, works at any multiple of 4."""

    def __init__(
        self,
        width: int = 128,
        fine: int = 32,
        coarse: int = 96,
        dilations: tuple[int, ...] = (1, 2),
    ) -> None:
        super().__init__()
        self.config = {"width": width, "fine": fine, "coarse": coarse, "dilations": list(dilations)}
        self.width = width
        self.body = nn.Sequential(
            nn.PixelUnshuffle(2),
            nn.Conv2d(12, fine, 3, padding=1),
            nn.SiLU(),  # S/2
            nn.PixelUnshuffle(2),
            nn.Conv2d(4 * fine, coarse, 1),  # S/4: one cell, one token
            *(Wide(coarse, dilation) for dilation in dilations),
            nn.SiLU(),
            nn.Conv2d(coarse, width, 1),
        )
        self.norm = nn.LayerNorm(width)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> Tensor:
        height, width = pixels.shape[-2:]
        if height % PATCH or width % PATCH:
            raise ValueError(
                f"the teacher needs sides that are multiples of {PATCH}, found {height} x {width}; "
                f"resize the pictures first"
            )
        h = self.body(pixels.contiguous(memory_format=torch.channels_last))  # (B, E, S/4, S/4)
        return self.norm(h.flatten(2).transpose(1, 2))  # type: ignore[no-any-return]  # (B, N, E)

    def stages(self, pixels: Tensor) -> list[Tensor]:
        """What it sees at half size, and after each of its wide parts; for a perceptual
        distance."""
        seen, h = [], pixels.contiguous(memory_format=torch.channels_last)
        parts = list(self.body)
        last = max(i for i, part in enumerate(parts) if isinstance(part, Wide))
        for part in parts[: last + 1]:
            h = part(h)
            if isinstance(part, nn.SiLU | Wide):
                seen.append(h)  # (B, fine, S/2, S/2), then (B, coarse, S/4, S/4)
        return seen

    @torch.no_grad()
    def tokens(self, pixels: Tensor) -> Tensor:
        """(B, 3, S, S) in [-1, 1] -> (B, (S/4)^2, E)."""
        return self(pixels.to(self.norm.weight.device))  # type: ignore[no-any-return]


def load_teacher(name: str = "teacher", folder: Path | None = None) -> Teacher:
    """The shipped teacher, frozen, in fp32 and eval mode."""
    return load(name, Teacher, folder)


# --------------------------------------------------------------------------------------------------
# A teacher's tokens on another grid than its own: resized once, before they are cached.
#
# B batch, n tokens of the teacher's grid, N tokens asked for, E token width


def to_grid(tokens: Tensor, side: int) -> Tensor:
    """(B, n, E) on a square grid -> (B, side x side, E), antialiased; the very same tensor when it
    has that grid."""
    own = isqrt(tokens.shape[1])
    if own * own != tokens.shape[1] or side > own:
        raise ValueError(
            f"expected a square grid of at least {side} x {side} tokens, found {tokens.shape[1]}: "
            f"take larger pictures or a teacher with smaller patches"
        )
    return resized(tokens, (own, own), (side, side))


def resized(tokens: Tensor, own: tuple[int, int], wanted: tuple[int, int]) -> Tensor:
    """(B, n, E) on a grid of `own` rows and columns -> (B, N, E) on the wanted one, antialiased."""
    if own == wanted:
        return tokens
    h = tokens.transpose(1, 2).reshape(len(tokens), -1, *own)  # (B, E, rows, columns)
    h = F.interpolate(h, size=wanted, mode="bilinear", antialias=True, align_corners=False)
    return h.flatten(2).transpose(1, 2)  # (B, N, E)


class OnGrid(nn.Module):
    """A frozen teacher that speaks on a grid of side x side; a cache knows it by its teacher and by
    its grid. Pictures that are not square get one token for `token` x `token` pixels, as square
    ones do."""

    def __init__(self, teacher: TeacherNetwork, side: int, token: int | None = None) -> None:
        super().__init__()
        self.teacher, self.side, self.token = teacher, side, token
        self.config = {
            "teacher": type(teacher).__qualname__,
            "of": getattr(teacher, "config", None),
            "side": side,
        }

    @torch.no_grad()
    def tokens(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] -> (B, side x side, E), or as many tokens as H x W has."""
        height, width = pixels.shape[-2:]
        tokens = self.teacher.tokens(pixels)
        if height == width or self.token is None:
            return to_grid(tokens, self.side)
        patch = isqrt(height * width // tokens.shape[1])  # of the teacher, in pixels
        return resized(
            tokens, (height // patch, width // patch), (height // self.token, width // self.token)
        )
