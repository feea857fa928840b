"""One array of the store, read from its files as rows are asked for; a chunk is verified when it is first read.

n rows of the array, c chunks of it, ids of rows in any shape
"""

import hashlib
import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.files.damaged import Damaged
from fulcrum.files.paths import open_regular

Ids = NDArray[np.integer[Any]]
CHUNK = np.dtype(
    [("array", "<i4"), ("segment", "<i4"), ("start", "<i8"), ("rows", "<i8"), ("sha256", "u1", (32,))]
)  # where the rows of one array of one chunk lie: from row `start` of the segment's file on
LARGE = 4096  # bytes of a row


class StoredArray:
    """`array[ids]` copies rows, `np.asarray(array)` is the whole of it. A damaged chunk is `Damaged` with `hint`."""

    def __init__(
        self, dtype: np.dtype[Any], row: tuple[int, ...], chunks: NDArray[np.void], paths: dict[int, Path], hint: str
    ) -> None:
        """`chunks` (c,) of CHUNK in the order of their rows, `paths` by segment. Sizes are checked, nothing is read."""
        self.dtype, self._paths, self._hint = dtype, paths, hint
        self._segments, self._starts, self._digests = chunks["segment"], chunks["start"], chunks["sha256"]
        self._ends = np.cumsum(chunks["rows"])
        self._shifts = self._starts - (self._ends - chunks["rows"])  # from a row of the array to one of its file
        self._unread = chunks["rows"] > 0
        self._left = int(self._unread.sum())
        self.shape = (int(chunks["rows"].sum()), *row)
        self._files = {
            segment: _mapped(path, dtype, row, chunks[self._segments == segment], hint) for segment, path in paths.items()
        }
        self._only = next(iter(self._files.values())) if len(paths) == 1 else None
        self._plain = None if self._shifts.any() else self._only  # it holds the rows in their order

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape)

    def __getitem__(self, ids: Ids) -> NDArray[Any]:
        """Rows (*ids.shape, ...); ids below zero count from the end, as numpy's do."""
        if self._plain is not None and not self._left:
            return self._plain[ids]
        ids = np.where(ids < 0, ids + len(self), ids)
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self):
            raise IndexError(f"asked for rows {ids.min()} to {ids.max()} of an array that has {len(self)}")
        chunk = np.searchsorted(self._ends, ids, side="right")
        self._verify(chunk)
        if self._plain is not None:
            return self._plain[ids]
        places: Ids = ids + self._shifts[chunk]
        segments = self._segments[chunk]
        if self._only is not None:
            return self._only[places]
        rows = np.empty((*ids.shape, *self.shape[1:]), self.dtype)
        if ids.ndim == 1 and self.nbytes >= LARGE * len(self):  # one by one: gathering by file would copy them twice
            for at, (segment, place) in enumerate(zip(segments.tolist(), places.tolist(), strict=True)):
                rows[at] = self._files[segment][place]
            return rows
        for segment in np.unique(segments):
            here = segments == segment
            rows[here] = self._files[segment][places[here]]
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        self._verify(np.arange(len(self._ends)))
        whole = self[np.arange(len(self))] if self._plain is None else self._plain
        return np.array(whole, dtype) if copy else np.asarray(whole, dtype)

    def _verify(self, chunks: Ids) -> None:
        """Hash those of these chunks that nobody has read yet."""
        if not self._left:
            return
        for chunk in np.unique(chunks[self._unread[chunks]]):
            segment, start = int(self._segments[chunk]), int(self._starts[chunk])
            end = int(self._ends[chunk] + self._shifts[chunk])
            if hashlib.sha256(self._files[segment][start:end].data).digest() != self._digests[chunk].tobytes():
                raise Damaged(
                    f"rows {start} to {end - 1} of {self._paths[segment]} do not have their checksum: a bit has changed",
                    self._hint,
                )
            self._unread[chunk] = False
            self._left -= 1


def _mapped(path: Path, dtype: np.dtype[Any], row: tuple[int, ...], chunks: NDArray[np.void], hint: str) -> NDArray[Any]:
    """The rows of a file up to the end of its last chunk, mapped read-only."""
    rows = int((chunks["start"] + chunks["rows"]).max(initial=0))
    wanted = rows * dtype.itemsize * prod(row)
    try:
        with open(open_regular(path), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < wanted:
                raise Damaged(f"{path} should hold {wanted} bytes, found {size}", hint)
            if not wanted:
                return np.zeros((rows, *row), dtype)
            return np.asarray(np.memmap(stream, dtype=dtype, mode="r", shape=(rows, *row)))
    except (OSError, ValueError) as error:  # no such file, no plain one, or a shape that no array can have
        raise Damaged(f"{path} cannot be read: {error}", hint) from None
