"""A content-addressed store of arrays that are written in chunks and verified when they are
read."""

import hashlib
import json
import os
import secrets
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from math import prod
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, ValidationError

from fulcrum.files.atomic import rename_folder, write_atomic
from fulcrum.files.lock import locked
from fulcrum.files.paths import Damaged, explained, open_regular, read_regular
from fulcrum.files.sealed import (
    CHECK,
    SEAL,
    append_records,
    is_intact,
    read_records,
    read_sealed,
    sealed,
    sha256_bytes,
    sha256_json,
    write_sealed,
)
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.record import Frozen

# --------------------------------------------------------------------------------------------------
# One array of the store, read from its files as rows are asked for; a chunk is verified when it is
# first read.
#
# Files are read by `pread`, never mapped: a slow disk keeps one thread waiting and not, by a page
# fault, the interpreter. A small array stays in memory once it was read. Of a very large one a few
# chunks are verified, others at every open.
#
# n rows of the array, c chunks of it, ids of rows in any shape


Ids = NDArray[np.integer[Any]]
CHUNK = np.dtype(
    [
        ("array", "<i4"),
        ("segment", "<i4"),
        ("start", "<i8"),
        ("rows", "<i8"),
        ("sha256", "u1", (32,)),
    ]
)  # where the rows of one array of one chunk lie: from row `start` of the segment's file on
KEPT = 1 << 25  # bytes of an array that stays in memory
# bytes of an array of which only some chunks are verified: all would be terabytes at every start
SPOTTED = 1 << 30
# that many of them, chosen anew at every open: processes and starts look at different ones
SPOTS = 2
PIECE = 1 << 22  # bytes that are hashed at a time
MOST_OPEN = 128  # files that are open at a time


class StoredArray:
    """`array[ids]` copies rows, `np.asarray(array)` is the whole of it. A damaged chunk is
    `Damaged` with `hint`."""

    def __init__(
        self,
        dtype: np.dtype[Any],
        row: tuple[int, ...],
        chunks: NDArray[np.void],
        paths: dict[int, Path],
        hint: str,
    ) -> None:
        """`chunks` (c,) of CHUNK in the order of their rows, `paths` by segment. Sizes are checked,
        nothing is read."""
        self._handles: dict[int, int] = {}  # by segment
        weakref.finalize(self, _close, self._handles)
        self._lock = Lock()  # one thread reads at a time: another might close its file
        self.dtype = dtype
        self._paths = paths
        self._hint = hint
        self._segments = chunks["segment"]
        self._digests = chunks["sha256"]
        self._ends = np.cumsum(chunks["rows"])
        # from a row of the array to one of its file
        self._shifts = chunks["start"] - (self._ends - chunks["rows"])
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
        # filled as chunks are verified
        self._memory = np.empty(self.shape, dtype) if self.nbytes <= KEPT else None
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
        """Read rows (B, ...) of ids (B,) into memory of the caller."""
        if self._memory is not None and not self._left:
            rows[:] = self._memory[ids]
            return
        count = self.shape[0]
        ids = np.where(ids < 0, ids + count, ids)
        if ids.size and not 0 <= ids.min() <= ids.max() < count:
            raise IndexError(
                f"asked for rows {ids.min()} to {ids.max()} of an array that has {count}"
            )
        if not rows.nbytes:
            return
        chunk = np.searchsorted(self._ends, ids, side="right")
        with self._lock:
            if self._left:
                self._verify(chunk)
            if self._memory is not None:
                rows[:] = self._memory[ids]
                return
            segments = self._segments[chunk]
            places = ids + self._shifts[chunk]
            for first, last in _runs(segments, places):
                self._pread(int(segments[first]), int(places[first]), rows[first:last])

    def fill(self, rows: NDArray[Any], start: int) -> None:
        """Read the rows from `start` on, as many as `rows` has room for."""
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
        """Hash those of these chunks that nobody has read yet; those of a small array stay in
        memory."""
        for chunk in np.unique(chunks[self._unread[chunks]]):
            segment = int(self._segments[chunk])
            begin = int(self._ends[chunk - 1]) if chunk else 0
            end = int(self._ends[chunk])
            shift = int(self._shifts[chunk])
            step = max(1, PIECE // max(1, self._row))
            room = (
                np.empty((min(step, end - begin), *self.shape[1:]), self.dtype)
                if self._memory is None
                else None
            )
            digest = hashlib.sha256()
            for first in range(begin, end, step):
                rows = self._memory if room is None else room
                assert rows is not None
                rows = rows[first : min(first + step, end)] if room is None else rows[: end - first]
                self._pread(segment, first + shift, rows)
                digest.update(rows.data)
            if digest.digest() != self._digests[chunk].tobytes():
                raise Damaged(
                    f"rows {begin + shift} to {end + shift - 1} of {self._paths[segment]} do not"
                    " have their checksum: a bit has changed",
                    self._hint,
                )
            self._unread[chunk] = False
            self._left -= 1

    def _pread(self, segment: int, place: int, rows: NDArray[Any]) -> None:
        """Rows of a segment's file from `place` on, straight into `rows`, without the interpreter's
        lock."""
        view = rows.view(np.uint8).reshape(-1).data
        offset = place * self._row
        try:
            handle = self._handle(segment)
            while view:
                count = os.preadv(handle, [view], offset)
                if not count:
                    raise Damaged(
                        f"{self._paths[segment]} has no byte {offset}: it was cut after it was"
                        " opened",
                        self._hint,
                    )
                view = view[count:]
                offset += count
        except OSError as error:
            raise Damaged(f"{self._paths[segment]} cannot be read: {error}", self._hint) from None

    def _handle(self, segment: int) -> int:
        if segment not in self._handles:
            if len(self._handles) >= MOST_OPEN:
                # the one that was opened first
                os.close(self._handles.pop(next(iter(self._handles))))
            self._handles[segment] = open_regular(self._paths[segment])
        return self._handles[segment]

    def _require_size(self, segment: int, chunks: NDArray[np.void]) -> None:
        """The file reaches to the end of its last chunk."""
        path = self._paths[segment]
        wanted = int((chunks["start"] + chunks["rows"]).max(initial=0)) * self._row
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
    """Where rows lie one behind the other in one file: from the first of them to behind the
    last."""
    breaks = np.flatnonzero((np.diff(segments) != 0) | (np.diff(places) != 1)) + 1
    bounds = [0, *breaks.tolist(), len(places)]
    return zip(bounds[:-1], bounds[1:], strict=True)


# --------------------------------------------------------------------------------------------------
# What the array store writes down about its arrays: the header of an entry, and the journal of one
# in the making.


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*$")]
# numbers, never Python objects
Dtype = Annotated[str, StringConstraints(pattern=r"^[<|][biuf][1248]$")]
Natural = Annotated[int, Field(ge=0, lt=1 << 48)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

HEADER, TABLE, JOURNAL = "header.json", "chunks.bin", ".journal"


def file_of(folder: Path, name: str, segment: int) -> Path:
    """Where the rows of an array lie that one process wrote."""
    return folder / f"{name}.{segment:05d}.bin"


class StoredRows(Frozen):
    """What rows a file holds."""

    dtype: Dtype
    shape: Annotated[tuple[Natural, ...], Field(min_length=1)]

    @property
    def row_bytes(self) -> int:
        return prod((np.dtype(self.dtype).itemsize, *self.shape[1:]))


class EntryHeader(Frozen):
    facts: dict[str, Any]
    arrays: dict[Name, StoredRows]
    seal: str
    layout: Literal[2]
    chunks: Sha256  # of the table


class Region(StoredRows):
    """The rows of one array of a finished chunk."""

    sha256: Sha256
    start: Natural  # row of the segment's file

    @property
    def end(self) -> int:
        return self.start + self.shape[0]


class FinishedChunk(Frozen):
    """A line of a segment's journal, where it is sealed: the rows have a hash of their own, their
    number has none."""

    chunk: Natural
    arrays: dict[Name, Region]


# --------------------------------------------------------------------------------------------------
# An entry of the array store in the making: chunks are appended to a segment, and noted in its
# journal when whole.


Arrays = dict[str, NDArray[Any]]
SEGMENT = 1 << 30  # bytes of a file after which a process begins another


class SegmentTaken(RunFailed):
    """Another process appends to it."""


class UnfinishedEntry:
    """Its finished chunks, and the segment that this process appends to."""

    def __init__(self, entry: Path, held: ExitStack, verify: bool) -> None:
        """`held` keeps the locks; `verify`: hash what others have finished before it is used."""
        self.entry, self.folder = entry, entry.with_name(entry.name + ".making")
        self.held, self.verify, self.segment = held, verify, -1
        # by number: its segment and arrays
        self.chunks: dict[int, tuple[int, dict[str, Region]]] = {}
        # the furthest of a segment's array: others go behind it
        self.last: dict[tuple[int, str], Region] = {}
        self.first: dict[str, Region] = {}  # of each array: others have its dtype and shape
        if self.folder.is_symlink():
            raise Damaged(
                f"{self.folder} is a link, expected a folder of chunks",
                "remove the link and start again",
            )
        self.folder.mkdir(exist_ok=True)

    def take_segment(self) -> None:
        """Hold the next segment that has room and that nobody holds."""
        while True:
            self.segment += 1
            with suppress(SegmentTaken):
                self.held.enter_context(
                    locked(self._journal(self.segment), patience=0, busy_kind=SegmentTaken)
                )
                self._read([self._journal(self.segment)])
                if not self._is_full():
                    return

    def take_all_segments(self) -> None:
        """Wait until nobody else appends, hold them all, and look what is finished; the first is
        the one to append to."""
        self.segment = 0
        for journal in sorted({self._journal(0), *self._journals()}):
            self.held.enter_context(locked(journal))
        self.read_all()

    def add(self, number: int, chunk: Callable[[int], Arrays]) -> int:
        """Make a chunk unless it is there, and append all of it or nothing; returns its number."""
        if number in self.chunks:
            return number
        arrays = {
            name: np.ascontiguousarray(rows, rows.dtype.newbyteorder("<"))
            for name, rows in chunk(number).items()
        }
        if self._is_full():
            self.take_segment()
        regions = {name: self._region(name, rows) for name, rows in arrays.items()}
        try:
            for name, rows in arrays.items():
                self._write(name, regions[name], rows)
            finished = FinishedChunk(chunk=number, arrays=regions)
            append_records(self._journal(self.segment), sealed(finished.model_dump(mode="json")))
        except BaseException:
            for name, region in regions.items():
                with suppress(OSError):  # what went wrong first is what a person must see
                    self._write(name, region, np.empty(0))
            raise
        self._note(self.segment, finished)
        return number

    def seal(self, facts: dict[str, Any], order: list[int]) -> None:
        """Write the table of the chunks in this order and the header, and give the entry its
        name."""
        firsts = sorted(self.first.items())
        table = np.array(
            [
                (
                    at,
                    segment,
                    arrays[name].start,
                    arrays[name].shape[0],
                    list(bytes.fromhex(arrays[name].sha256)),
                )
                for at, (name, _) in enumerate(firsts)
                for segment, arrays in map(self.chunks.__getitem__, order)
                if name in arrays
            ],
            CHUNK,
        )
        counts = np.bincount(table["array"], table["rows"], len(firsts)).astype(int).tolist()
        about = {
            name: {"dtype": first.dtype, "shape": [count, *first.shape[1:]]}
            for count, (name, first) in zip(counts, firsts, strict=True)
        }
        write_atomic(self.folder / TABLE, table.tobytes())
        header = {
            "facts": facts,
            "layout": 2,
            "arrays": about,
            "chunks": sha256_bytes(table.tobytes()),
        }
        write_sealed(self.folder / HEADER, header, SEAL)
        journals = self._journals()
        rename_folder(self.folder, self.entry)
        for journal in journals:
            (self.entry / journal.name).unlink()

    def _region(self, name: str, rows: NDArray[Any]) -> Region:
        """Where rows will stand in this process's segment."""
        last, first = self.last.get((self.segment, name)), self.first.get(name)
        region = Region(
            dtype=rows.dtype.str,
            shape=rows.shape,
            sha256=sha256_bytes(rows.data),
            start=last.end if last else 0,
        )
        if first is not None and not _alike(first, region):
            raise ValueError(
                f"array {name!r} holds {first.dtype} rows of shape {first.shape[1:]}, found"
                f" {region.dtype} of {region.shape[1:]}"
            )
        return region

    def _write(self, name: str, region: Region, rows: NDArray[Any]) -> None:
        """Put rows into their place, and nothing behind them: what stands there was never
        finished."""
        path = file_of(self.folder, name, self.segment)
        with open(open_regular(path, os.O_WRONLY | os.O_CREAT), "wb") as stream:
            stream.seek(region.start * region.row_bytes)
            stream.write(rows.data)
            stream.truncate()

    def read_all(self) -> None:
        """Look what is finished in all segments."""
        self._read(self._journals())

    def _read(self, journals: list[Path]) -> None:
        """Take over what journals call finished, as far as it is there (and as it was written, if
        we `verify`)."""
        for journal in journals:
            for value in filter(is_intact, read_records(journal).values):
                with suppress(ValidationError, OSError):
                    finished = FinishedChunk.model_validate(
                        {name: value[name] for name in value if name != CHECK}
                    )
                    segment = int(journal.stem)
                    if all(
                        self._is_there(segment, name, region)
                        for name, region in finished.arrays.items()
                    ):
                        self._note(segment, finished)

    def _is_there(self, segment: int, name: str, region: Region) -> bool:
        with open(open_regular(file_of(self.folder, name, segment)), "rb") as stream:
            if os.fstat(stream.fileno()).st_size < region.end * region.row_bytes:
                return False
            stream.seek(region.start * region.row_bytes)
            if (
                self.verify
                and sha256_bytes(stream.read(region.shape[0] * region.row_bytes)) != region.sha256
            ):
                return False
        return _alike(self.first.get(name, region), region)

    def _note(self, segment: int, finished: FinishedChunk) -> None:
        self.chunks[finished.chunk] = segment, finished.arrays
        for name, region in finished.arrays.items():
            self.first.setdefault(name, region)
            self.last[segment, name] = max(
                self.last.get((segment, name), region), region, key=lambda one: one.end
            )

    def _is_full(self) -> bool:
        here = (region for (segment, _), region in self.last.items() if segment == self.segment)
        return any(region.end * region.row_bytes >= SEGMENT for region in here)

    def _journal(self, segment: int) -> Path:
        return self.folder / f"{segment:05d}{JOURNAL}"

    def _journals(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"*{JOURNAL}") if path.stem.isdecimal())


def _alike(one: Region, other: Region) -> bool:
    return (one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:])


# --------------------------------------------------------------------------------------------------
# A content-addressed store of arrays: an entry is named by what made it, and is made chunk by
# chunk, each written once.
#
#     <root>/<kind>-<key>/           an entry; it is whole, since it appears by one rename
#         header.json                sealed: the facts whose hash is the key, dtype and shape of
#                                    every array
#         chunks.bin                 where the rows of every chunk lie, and their sha256: CHUNK
#         rows.00000.bin ...         rows of the array `rows`, in one file for each process that
#                                    made chunks and each GB
#     <root>/<kind>-<key>.making/    the same files of an entry that is not whole, and the journals
#                                    of its segments
#     <root>/<kind>-<key>.lock       held by the process that completes the entry; others wait for
#                                    it
#
# Several processes make chunks side by side, each in a segment of its own, which it holds by a lock
# on the journal. What a killed one has finished is used. An open checks header and sizes, a read
# verifies the chunks that it touches.


FORMAT = 1  # raise it when an encoder's code changes what it computes from the same weights
_KEPT = (
    "free some space or choose another cache directory; finished chunks are kept, nothing"
    " half-written was kept"
)


class ArrayStore:
    """Entries under one root."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def get(
        self,
        kind: str,
        facts: Mapping[str, Any],
        numbers: Iterable[int],
        chunk: Callable[[int], Arrays],
    ) -> dict[str, StoredArray]:
        """The arrays of an entry: the rows of all its chunks, whose `numbers` are given in order,
        one after another.

        `chunk(number)` makes a chunk that nobody has made yet; all chunks agree in dtype and shape
        of an array's rows, and an array may stand in some of them only. `numbers` is gone through
        only while the entry is made.
        """
        facts = _named(kind, facts)
        folder = self._folder(facts)
        if not folder.is_dir():
            with self._writing(folder), self._locked(folder), ExitStack() as held:
                if not folder.is_dir():  # another process may have made it while this one waited
                    making = UnfinishedEntry(folder, held, verify=True)
                    making.take_all_segments()
                    order = [making.add(number, chunk) for number in numbers]
                    making.seal(facts, order)
        return open_entry(folder, facts)

    def share(
        self,
        kind: str,
        facts: Mapping[str, Any],
        numbers: Iterable[int],
        chunk: Callable[[int], Arrays],
    ) -> None:
        """Make some chunks of an entry, side by side with others, for `get` to complete; those that
        are there are left."""
        folder = self._folder(_named(kind, facts))
        if folder.is_dir():
            return
        with self._writing(folder), ExitStack() as held:
            making = UnfinishedEntry(folder, held, verify=False)
            making.read_all()
            making.take_segment()
            for number in numbers:
                try:
                    making.add(number, chunk)
                except FileNotFoundError:
                    if not folder.is_dir():
                        raise
                    return  # another process has completed it meanwhile

    def seal(self, kind: str, facts: Mapping[str, Any]) -> str | None:
        """What a whole entry holds, as one hash from its header; None if it is not whole. No row is
        read."""
        facts = _named(kind, facts)
        folder = self._folder(facts)
        if not folder.is_dir():
            return None
        return str(read_sealed(folder / HEADER, _again(folder), SEAL, kind=Damaged)[SEAL])

    def _folder(self, facts: Mapping[str, Any]) -> Path:
        return self.root / f"{facts['kind']}-{sha256_json(facts, 32)}"

    @contextmanager
    def _writing(self, folder: Path) -> Iterator[None]:
        if os.path.lexists(folder) and not folder.is_dir():
            raise Damaged(f"{folder} is no folder, expected a cache entry", _again(folder))
        with explained(
            "write", folder, message=f"cannot write the cache entry {folder}", hint=_KEPT
        ):
            self.root.mkdir(parents=True, exist_ok=True)
            yield

    def _locked(self, folder: Path) -> AbstractContextManager[None]:
        path = folder.with_name(folder.name + ".lock")
        return locked(
            path, unfit=f"cannot write the cache entry {folder}: {path.name}", unfit_hint=_KEPT
        )


def _named(kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, "kind": kind, **facts}


def _again(folder: Path) -> str:
    return f"delete {folder} and run again: it will be encoded anew"


def open_entry(folder: Path, facts: dict[str, Any]) -> dict[str, StoredArray]:
    """The arrays of an entry that is whole, each chunk yet to be verified."""
    hint = _again(folder)
    try:
        header = EntryHeader.model_validate(read_sealed(folder / HEADER, hint, SEAL, kind=Damaged))
    except Damaged as error:
        raise Damaged(
            f"the cache entry {folder} has no readable header ({error.message})", hint
        ) from None
    except ValidationError as error:
        raise Damaged(
            f"the cache entry {folder} has no readable header ({error.errors()[0]['msg']})", hint
        ) from None
    if header.facts != json.loads(json.dumps(facts)):
        raise Damaged(
            f"the header of the cache entry {folder} was changed: it names other facts", hint
        )
    table = _table(folder, header, hint)
    arrays = {}
    for at, (name, about) in enumerate(sorted(header.arrays.items())):
        chunks = table[table["array"] == at]
        if int(chunks["rows"].sum()) != about.shape[0]:
            raise Damaged(f"{folder / TABLE} and {HEADER} disagree about the rows of {name}", hint)
        segments = map(int, np.unique(chunks["segment"]))
        paths = {segment: file_of(folder, name, segment) for segment in segments}
        arrays[name] = StoredArray(np.dtype(about.dtype), about.shape[1:], chunks, paths, hint)
    return arrays


def _table(folder: Path, header: EntryHeader, hint: str) -> NDArray[np.void]:
    """Where the chunks lie."""
    try:
        data = read_regular(folder / TABLE)
        table = np.frombuffer(data, CHUNK)
    except (OSError, ValueError) as error:
        raise Damaged(f"{folder / TABLE} cannot be read: {error}", hint) from None
    places = np.stack([table[field].astype(np.int64) for field in ("segment", "start", "rows")])
    if (
        sha256_bytes(data) != header.chunks
        or places.min(initial=0) < 0
        or places.max(initial=0) >= 1 << 48
    ):
        raise Damaged(f"{folder / TABLE} was changed after it was written", hint)
    return table


# --------------------------------------------------------------------------------------------------
# Is a whole entry of the array store what was written, to the last byte? Reading it verifies only
# what is asked for.


def require_sound(folder: Path) -> int:
    """The bytes of its arrays; Damaged, saying what is wrong, unless every one of them has its
    checksum."""
    if folder.is_symlink() or not folder.is_dir():
        raise Damaged(f"{folder} is no folder, expected a cache entry")
    facts = read_sealed(folder / HEADER, "", SEAL, kind=Damaged).get("facts")
    if (
        not isinstance(facts, dict)
        or f"{facts.get('kind')}-{sha256_json(facts, 32)}" != folder.name
    ):
        raise Damaged(f"{folder} is not called after the facts in its {HEADER}")
    arrays = open_entry(folder, facts)
    for array in arrays.values():
        array.verify_all()
    return sum(array.nbytes for array in arrays.values())
