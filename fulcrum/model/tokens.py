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
        whole = self.h.flatten(0, 1).index_copy(0, flat_places(part.index, self.h.shape[1]), part.h.flatten(0, 1))
        return Tokens(torch.unflatten(whole, 0, self.h.shape[:2]))  # (B, N, D)


def gather_rows(rows: Tensor, keep: Tensor) -> Tensor:
    """rows (B, N, ...) at keep (B, K) -> (B, K, ...). Whole rows are moved: on a CPU three times as fast as `gather`."""
    taken = rows.flatten(0, 1).index_select(0, flat_places(keep, rows.shape[1]))
    return torch.unflatten(taken, 0, keep.shape)


def flat_places(keep: Tensor, tokens: int) -> Tensor:
    """Places (B, K) on grids of so many tokens -> (B K,) in the batch's tokens, one grid after the other."""
    first = torch.arange(0, len(keep) * tokens, tokens, device=keep.device)
    return (keep + first[:, None]).flatten()
