"""Rows of what was encoded, by the numbers of their samples: of one shape, of several, and texts of any length.

n samples of the source, B rows asked for, L tokens, E width
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.data.caption import Chooser, which_wording
from fulcrum.encode.unit_pixels import to_unit
from fulcrum.files.arrays.stored_array import Ids, StoredArray

RowArray = NDArray[Any] | StoredArray  # in memory, mapped, or read from the store


class RowCache:
    """One tensor per sample."""

    def __init__(self, rows: RowArray) -> None:
        self._rows = rows  # (n, ...): float32, float16, or uint8 pixels
        self._kept: NDArray[np.int64] | slice = slice(None)  # which of them, and in which order

    def __len__(self) -> int:
        return len(self._rows) if isinstance(self._kept, slice) else len(self._kept)

    def taken(self, kept: NDArray[np.int64]) -> RowCache:
        """The rows of these samples, numbered anew; nothing is copied."""
        part = copy(self)
        part._kept = kept
        return part

    def rows(self, ids: Ids) -> Tensor:
        """(B, ...) float32; pixels that were stored as bytes come back in [-1, 1]."""
        ids = ids if isinstance(self._kept, slice) else self._kept[ids]
        rows = torch.from_numpy(self._rows[ids])  # fancy indexing copies: the map stays read-only
        return to_unit(rows) if rows.dtype == torch.uint8 else rows.float()


class ShapedCache:
    """Tensors of several shapes: one entry for each, and rows of one shape at a time."""

    def __init__(self, parts: list[RowCache]) -> None:
        self.parts = parts
        self._starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def rows(self, ids: Ids) -> Tensor:
        """(B, ...) float32, of samples that have one shape."""
        owners = np.unique(np.searchsorted(self._starts, ids, side="right") - 1)
        if len(owners) != 1:
            raise ValueError(f"a batch has one shape; these {len(ids)} samples have {len(owners)}: ask for one batch")
        number = int(owners[0])
        return self.parts[number].rows(ids - self._starts[number])


class TextCache:
    """Token embeddings of every sample's wordings in one style, packed without padding."""

    def __init__(
        self, tokens: RowArray, ends: NDArray[Any], empty: NDArray[Any], counts: NDArray[Any] | None = None
    ) -> None:
        self._tokens, self._ends = tokens, np.asarray(ends)  # (total, E) float16, (wordings,) int64
        self._starts = np.concatenate([[0], self._ends[:-1]])
        self._counts = np.ones(len(self._ends), np.int64) if counts is None else np.asarray(counts, np.int64)
        self._first = np.cumsum(self._counts) - self._counts  # (n,) where each sample's wordings begin
        self.empty = torch.from_numpy(np.array(empty)).float()  # (tokens of the empty prompt, E)
        self.longest = int(max((self._ends - self._starts).max(initial=1), len(empty)))

    def __len__(self) -> int:
        return len(self._first)

    def taken(self, kept: NDArray[np.int64]) -> TextCache:
        """The prompts of these samples, numbered anew; nothing is copied, and `longest` stays that of all."""
        part = copy(self)
        part._first, part._counts = self._first[kept], self._counts[kept]
        return part

    def rows(self, ids: Ids, length: int | None = None, numbers: Ids | None = None) -> tuple[Tensor, Tensor]:
        """emb (B, L, E) float32, zero where padded, and mask (B, L), true = keep.

        L is `length`, or the longest prompt of these rows; one length for a whole run keeps shapes static. `numbers` are
        those of the readings; without them a sample has the wording that is fixed by its own.
        """
        one = self._first[ids] + which_wording(ids if numbers is None else numbers, self._counts[ids])
        start, end = self._starts[one], self._ends[one]
        longest = int((end - start).max(initial=1))
        length = longest if length is None else length
        if longest > length:
            raise ValueError(f"asked to pad to {length} tokens, but a prompt has {longest}; pass length >= {longest}")
        at = start[:, None] + np.arange(length)  # (B, L)
        mask = at < end[:, None]
        emb = torch.from_numpy(self._tokens[np.minimum(at, end[:, None] - 1)]).float()  # (B, L, E)
        keep = torch.from_numpy(mask)
        return emb.mul_(keep[..., None]), keep


class MixedTexts:
    """Texts of several styles, one entry for each: which one a row is read from, its chooser picks."""

    def __init__(self, chooser: Chooser, styles: dict[int, TextCache]) -> None:
        self.chooser, self.styles = chooser, styles  # by their place in the chooser; those without weight are not there
        self.empty = next(iter(styles.values())).empty
        self.longest = max(texts.longest for texts in styles.values())

    def __len__(self) -> int:
        return len(next(iter(self.styles.values())))

    def rows(self, ids: Ids, length: int | None = None, numbers: Ids | None = None) -> tuple[Tensor, Tensor]:
        """As of one style; the length is that of the longest style unless it is given."""
        numbers, length = (ids if numbers is None else numbers), length or self.longest
        picked = self.chooser.pick(numbers)
        emb = torch.zeros(len(ids), length, self.empty.shape[-1])
        mask = torch.zeros(len(ids), length, dtype=torch.bool)
        for place, texts in self.styles.items():
            mine = np.flatnonzero(picked == place)
            if len(mine):
                emb[mine], mask[mine] = texts.rows(ids[mine], length, numbers[mine])
        return emb, mask
