"""Rows of what was encoded, by the numbers of their samples: of one shape, of several, and texts of any length.

`stored` gives them in the dtype that they are kept in, which is how they travel to a device; `rows` as float32.

n samples of the source, B rows asked for, L tokens, E width
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.data.captions import Chooser, which_wording
from fulcrum.encode.unit_pixels import to_unit
from fulcrum.files.array_store import Ids, StoredArray

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

    def stored(self, ids: Ids, pinned: bool = False) -> Tensor:
        """(B, ...) as they are kept, read straight into memory that a GPU can copy from if it is `pinned`."""
        ids = ids if isinstance(self._kept, slice) else self._kept[ids]
        rows = torch.empty(len(ids), *self._rows.shape[1:], dtype=dtype_of(self._rows), pin_memory=pinned)
        if isinstance(self._rows, StoredArray):
            self._rows.read(ids, rows.numpy())
        else:
            np.take(self._rows, ids, axis=0, out=rows.numpy())
        return rows

    def rows(self, ids: Ids) -> Tensor:
        """(B, ...) float32; pixels that were stored as bytes come back in [-1, 1]."""
        return widened(self.stored(ids))


def widened(rows: Tensor) -> Tensor:
    """Stored rows as a step reads them: float32, and bytes as pixels in [-1, 1]; on whichever device they are."""
    return to_unit(rows) if rows.dtype == torch.uint8 else rows.float()


def dtype_of(array: RowArray) -> torch.dtype:
    return torch.from_numpy(np.empty(0, array.dtype)).dtype


class ShapedCache:
    """Tensors of several shapes: one entry for each, and rows of one shape at a time."""

    def __init__(self, parts: list[RowCache]) -> None:
        self.parts = parts
        self._starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def stored(self, ids: Ids, pinned: bool = False) -> Tensor:
        """(B, ...) as they are kept, of samples that have one shape."""
        owners = np.unique(np.searchsorted(self._starts, ids, side="right") - 1)
        if len(owners) != 1:
            raise ValueError(f"a batch has one shape; these {len(ids)} samples have {len(owners)}: ask for one batch")
        number = int(owners[0])
        return self.parts[number].stored(ids - self._starts[number], pinned)

    def rows(self, ids: Ids) -> Tensor:
        """(B, ...) float32, of samples that have one shape."""
        return widened(self.stored(ids))


class TextCache:
    """Token embeddings of every sample's wordings in one style, packed without padding."""

    def __init__(
        self, tokens: RowArray, ends: NDArray[Any], empty: NDArray[Any], counts: NDArray[Any] | None = None
    ) -> None:
        self._tokens, self._ends = tokens, np.asarray(ends)  # (total, E) float16, (wordings,) int64
        # (n,) how many wordings a sample has and where they begin; None: one each, in order. Eight bytes a sample are left.
        several = counts is not None and bool((np.asarray(counts) != 1).any())  # else there is nothing to choose
        self._counts = np.asarray(counts, np.int64) if several else None
        self._first = None if self._counts is None else np.cumsum(self._counts) - self._counts
        self.empty = torch.from_numpy(np.array(empty)).float()  # (tokens of the empty prompt, E)
        self.longest = int(max(np.diff(self._ends, prepend=0).max(initial=1), len(empty)))

    def __len__(self) -> int:
        return len(self._ends) if self._first is None else len(self._first)

    def taken(self, kept: NDArray[np.int64]) -> TextCache:
        """The prompts of these samples, numbered anew; nothing is copied, and `longest` stays that of all."""
        part = copy(self)
        part._first = kept if self._first is None else self._first[kept]
        part._counts = None if self._counts is None else self._counts[kept]
        return part

    @property
    def dtype(self) -> torch.dtype:
        return dtype_of(self._tokens)

    def rows(self, ids: Ids, length: int | None = None, numbers: Ids | None = None) -> tuple[Tensor, Tensor]:
        """As `stored`, in float32."""
        emb, mask = self.stored(ids, length, numbers)
        return emb.float(), mask

    def stored(
        self, ids: Ids, length: int | None = None, numbers: Ids | None = None, pinned: bool = False
    ) -> tuple[Tensor, Tensor]:
        """emb (B, L, E) as it is kept, zero where padded, and mask (B, L), true = keep.

        L is `length`, or the longest prompt of these rows; one length for a whole run keeps shapes static. `numbers` are
        those of the readings; without them a sample has the wording that is fixed by its own.
        """
        one = ids if self._first is None else self._first[ids]
        if self._counts is not None:
            one = one + which_wording(ids if numbers is None else numbers, self._counts[ids])
        start, end = np.where(one == 0, 0, self._ends[one - 1]), self._ends[one]
        longest = int((end - start).max(initial=1))
        length = longest if length is None else length
        if longest > length:
            raise ValueError(f"asked to pad to {length} tokens, but a prompt has {longest}; pass length >= {longest}")
        emb = torch.zeros(len(ids), length, self.empty.shape[-1], dtype=self.dtype, pin_memory=pinned)
        for prompt, first, last in zip(emb.numpy(), start.tolist(), end.tolist(), strict=True):
            if isinstance(self._tokens, StoredArray):
                self._tokens.fill(prompt[: last - first], first)
            else:
                prompt[: last - first] = self._tokens[first:last]
        return emb, torch.from_numpy(np.arange(length) < (end - start)[:, None])


class MixedTexts:
    """Texts of several styles, one entry for each: which one a row is read from, its chooser picks."""

    def __init__(self, chooser: Chooser, styles: dict[int, TextCache]) -> None:
        self.chooser, self.styles = chooser, styles  # by their place in the chooser; those without weight are not there
        self.empty = next(iter(styles.values())).empty
        self.longest = max(texts.longest for texts in styles.values())

    def __len__(self) -> int:
        return len(next(iter(self.styles.values())))

    def rows(self, ids: Ids, length: int | None = None, numbers: Ids | None = None) -> tuple[Tensor, Tensor]:
        """As `stored`, in float32."""
        emb, mask = self.stored(ids, length, numbers)
        return emb.float(), mask

    def stored(
        self, ids: Ids, length: int | None = None, numbers: Ids | None = None, pinned: bool = False
    ) -> tuple[Tensor, Tensor]:
        """As of one style; the length is that of the longest style unless it is given."""
        numbers, length = (ids if numbers is None else numbers), length or self.longest
        picked = self.chooser.pick(numbers)
        kept_as = next(iter(self.styles.values())).dtype
        emb = torch.zeros(len(ids), length, self.empty.shape[-1], dtype=kept_as, pin_memory=pinned)
        mask = torch.zeros(len(ids), length, dtype=torch.bool)
        for place, texts in self.styles.items():
            mine = np.flatnonzero(picked == place)
            if len(mine):
                emb[mine], mask[mine] = texts.stored(ids[mine], length, numbers[mine])
        return emb, mask
