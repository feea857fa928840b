"""A teacher's tokens on another grid than its own: resized once, before they are cached.

B batch, n tokens of the teacher's grid, N tokens asked for, E token width
"""

from math import isqrt

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.encode.networks.protocols import TeacherNetwork


def to_grid(tokens: Tensor, side: int) -> Tensor:
    """(B, n, E) on a square grid -> (B, side x side, E), antialiased; the very same tensor when it has that grid."""
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
    """A frozen teacher that speaks on a grid of side x side; a cache knows it by its teacher and by its grid. Pictures that
    are not square get one token for `token` x `token` pixels, as square ones do."""

    def __init__(self, teacher: TeacherNetwork, side: int, token: int | None = None) -> None:
        super().__init__()
        self.teacher, self.side, self.token = teacher, side, token
        self.config = {"teacher": type(teacher).__qualname__, "of": getattr(teacher, "config", None), "side": side}

    @torch.no_grad()
    def tokens(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) in [-1, 1] -> (B, side x side, E), or as many tokens as H x W has."""
        height, width = pixels.shape[-2:]
        tokens = self.teacher.tokens(pixels)
        if height == width or self.token is None:
            return to_grid(tokens, self.side)
        patch = isqrt(height * width // tokens.shape[1])  # of the teacher, in pixels
        return resized(tokens, (height // patch, width // patch), (height // self.token, width // self.token))
