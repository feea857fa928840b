"""One array of the store, read from its files as rows are asked for; a chunk is verified when it is first read.

Files are read by `pread`, never mapped: a slow disk keeps one thread waiting and not, by a page fault, the interpreter. A
small array stays in memory once it was read. Of a very large one a few chunks are verified, others at every open.

n rows of the array, c chunks of it, ids of rows in any shape
"""

import hashlib
import os
import secrets
import weakref
from collections.abc import Iterator
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.files.damaged import Damaged
from fulcrum.files.paths import open_regular

Ids = NDArray[np.integer[Any]]
CHUNK = np.dtype(
    [("array", "<i4"), ("segment", "<i4"), ("start", "<i8"), ("rows", "<i8"), ("sha256", "u1", (32,))]
)  # where the rows of one array of one chunk lie: from row `start` of the segment's file on
KEPT = 1 << 25  # bytes of an array that stays in memory
SPOTTED = 1 << 30  # bytes of an array of which only some chunks are verified: all would be terabytes at every start
SPOTS = 2  # that many of them, chosen anew at every open: processes and starts look at different ones
PIECE = 1 << 22  # bytes that are hashed at a time
MOST_OPEN = 128  # files that are open at a time


class StoredArray:
    """`array[ids]` copies rows, `np.asarray(array)` is the whole of it. A damaged chunk is `Damaged` with `hint`."""

    def __init__(
        self, dtype: np.dtype[Any], row: tuple[int, ...], chunks: NDArray[np.void], paths: dict[int, Path], hint: str
    ) -> None:
        """`chunks` (c,) of CHUNK in the order of their rows, `paths` by segment. Sizes are checked, nothing is read."""
        self._handles: dict[int, int] = {}  # by segment
        weakref.finalize(self, _close, self._handles)
        self._lock = Lock()  # one thread reads at a time: another might close its file
        self.dtype, self._paths, self._hint = dtype, paths, hint
        self._segments, self._digests = chunks["segment"], chunks["sha256"]
        self._ends = np.cumsum(chunks["rows"])
        self._shifts = chunks["start"] - (self._ends - chunks["rows"])  # from a row of the array to one of its file
        self._unread = chunks["rows"] > 0
        self.shape = (int(chunks["rows"].sum()), *row)
        self._row = dtype.itemsize * prod(row)
        for segment in paths:
            self._require_size(segment, chunks[self._segments == segment])
        if self.nbytes > SPOTTED:
            self._unread[:] = False
            self._unread[[secrets.randbelow(len(chunks)) for _ in range(SPOTS)]] = True
            self._unread &= chunks["rows"] > 0
        self._left = int(self._unread.sum())
        self._memory = np.empty(self.shape, dtype) if self.nbytes <= KEPT else None  # filled as chunks are verified
        if self.nbytes > SPOTTED:
            self._verify(np.arange(len(chunks)))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * prod(self.shape)

    def __getitem__(self, ids: Ids) -> NDArray[Any]:
        """Rows (*ids.shape, ...); ids below zero count from the end, as numpy's do."""
        if self._memory is not None and not self._left:
            return self._memory[ids]
        rows = np.empty((*ids.shape, *self.shape[1:]), self.dtype)
        self.read(ids.reshape(-1), rows.reshape(ids.size, *self.shape[1:]))
        return rows

    def read(self, ids: Ids, rows: NDArray[Any]) -> None:
        """Rows (B, ...) of ids (B,) into memory that somebody else has made."""
        if self._memory is not None and not self._left:
            rows[:] = self._memory[ids]
            return
        ids = np.where(ids < 0, ids + len(self), ids)
        if ids.size and not 0 <= ids.min() <= ids.max() < len(self):
            raise IndexError(f"asked for rows {ids.min()} to {ids.max()} of an array that has {len(self)}")
        if not rows.nbytes:
            return
        chunk = np.searchsorted(self._ends, ids, side="right")
        with self._lock:
            self._verify(chunk)
            if self._memory is not None:
                rows[:] = self._memory[ids]
                return
            segments, places = self._segments[chunk], ids + self._shifts[chunk]
            for first, last in _runs(segments, places):
                self._pread(int(segments[first]), int(places[first]), rows[first:last])

    def fill(self, rows: NDArray[Any], start: int) -> None:
        """The rows from `start` on, as many as `rows` has room for."""
        if self._memory is not None and not self._left:
            rows[:] = self._memory[start : start + len(rows)]
        else:
            self.read(np.arange(start, start + len(rows)), rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self[np.arange(len(self))]
        return np.array(whole, dtype) if copy else np.asarray(whole, dtype)

    def verify_all(self) -> None:
        """Hash every chunk, whatever was read or passed over before."""
        with self._lock:
            self._unread[:] = (self._ends - np.concatenate([[0], self._ends[:-1]])) > 0
            self._left = int(self._unread.sum())
            self._verify(np.arange(len(self._unread)))

    def _verify(self, chunks: Ids) -> None:
        """Hash those of these chunks that nobody has read yet; those of a small array stay in memory."""
        if not self._left:
            return
        for chunk in np.unique(chunks[self._unread[chunks]]):
            segment, end = int(self._segments[chunk]), int(self._ends[chunk])
            begin, shift = int(self._ends[chunk - 1]) if chunk else 0, int(self._shifts[chunk])
            step = max(1, PIECE // max(1, self._row))
            room = np.empty((min(step, end - begin), *self.shape[1:]), self.dtype) if self._memory is None else None
            digest = hashlib.sha256()
            for first in range(begin, end, step):
                rows = self._memory[first : min(first + step, end)] if room is None else room[: end - first]  # type: ignore[index]
                self._pread(segment, first + shift, rows)
                digest.update(rows.data)
            if digest.digest() != self._digests[chunk].tobytes():
                raise Damaged(
                    f"rows {begin + shift} to {end + shift - 1} of {self._paths[segment]} do not have their checksum: "
                    "a bit has changed",
                    self._hint,
                )
            self._unread[chunk] = False
            self._left -= 1

    def _pread(self, segment: int, place: int, rows: NDArray[Any]) -> None:
        """Rows of a segment's file from `place` on, straight into `rows`, without the interpreter's lock."""
        view, offset = rows.view(np.uint8).reshape(-1).data, place * self._row
        try:
            handle = self._handle(segment)
            while view:
                count = os.preadv(handle, [view], offset)
                if not count:
                    raise Damaged(
                        f"{self._paths[segment]} has no byte {offset}: it was cut after it was opened", self._hint
                    )
                view, offset = view[count:], offset + count
        except OSError as error:
            raise Damaged(f"{self._paths[segment]} cannot be read: {error}", self._hint) from None

    def _handle(self, segment: int) -> int:
        if segment not in self._handles:
            if len(self._handles) >= MOST_OPEN:
                os.close(self._handles.pop(next(iter(self._handles))))  # the one that was opened first
            self._handles[segment] = open_regular(self._paths[segment])
        return self._handles[segment]

    def _require_size(self, segment: int, chunks: NDArray[np.void]) -> None:
        """The file reaches to the end of its last chunk."""
        path, wanted = self._paths[segment], int((chunks["start"] + chunks["rows"]).max(initial=0)) * self._row
        try:
            size = os.fstat(self._handle(segment)).st_size
        except OSError as error:  # no such file, or no plain one
            raise Damaged(f"{path} cannot be read: {error}", self._hint) from None
        if size < wanted:
            raise Damaged(f"{path} should hold {wanted} bytes, found {size}", self._hint)


def _close(handles: dict[int, int]) -> None:
    for handle in handles.values():
        os.close(handle)


def _runs(segments: Ids, places: Ids) -> Iterator[tuple[int, int]]:
    """Where rows lie one behind the other in one file: from the first of them to behind the last."""
    breaks = np.flatnonzero((np.diff(segments) != 0) | (np.diff(places) != 1)) + 1
    bounds = [0, *breaks.tolist(), len(places)]
    return zip(bounds[:-1], bounds[1:], strict=True)
