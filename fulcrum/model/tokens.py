"""Tokens that know where they come from, so that routing and alignment compose without knowing each other.

B batch, N tokens of the grid, K kept, D width
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Tokens(NamedTuple):
    """Features and the place of each on the grid; no index means that the whole grid is here, in order."""

    h: Tensor  # (B, N, D)
    index: Tensor | None = None  # type: ignore[assignment]  # (B, N) int64; hides tuple.index, which nobody calls

    def take(self, keep: Tensor) -> "Tokens":
        """The tokens at `keep`, positions in this sequence; their index still speaks of the grid."""
        if keep.shape[0] != self.h.shape[0] or keep.dim() != 2:
            raise ValueError(
                f"keep must be (batch, kept) = ({self.h.shape[0]}, K), found {tuple(keep.shape)}: one row per image"
            )
        index = keep if self.index is None else self.index.gather(1, keep)
        return Tokens(gather_rows(self.h, keep), index)  # (B, K, D)

    def put(self, part: "Tokens") -> "Tokens":
        """This whole grid, with the tokens of `part` in their places."""
        if self.index is not None:
            raise ValueError("put needs the whole grid on the left, found tokens that were already taken from it")
        if part.index is None:
            return part
        place = part.index[..., None].expand(-1, -1, self.h.shape[-1])
        return Tokens(self.h.scatter(1, place, part.h))  # (B, N, D)


def gather_rows(rows: Tensor, keep: Tensor) -> Tensor:
    """rows (B, N, ...) at keep (B, K) -> (B, K, ...)."""
    place = keep.reshape(*keep.shape, *(1,) * (rows.dim() - 2)).expand(-1, -1, *rows.shape[2:])
    return torch.gather(rows, 1, place)
