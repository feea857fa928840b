"""An entry of the array store in the making: chunks are appended to a segment, and noted in its journal when whole."""

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fulcrum.files.arrays.array_records import HEADER, JOURNAL, TABLE, FinishedChunk, Region, file_of
from fulcrum.files.arrays.stored_array import CHUNK
from fulcrum.files.atomic import rename_folder, write_atomic
from fulcrum.files.damaged import Damaged, remove
from fulcrum.files.hashes import sha256_bytes
from fulcrum.files.lock import locked
from fulcrum.files.paths import open_regular
from fulcrum.files.records import append_records, read_records
from fulcrum.files.sealed import CHECK, SEAL, is_intact, sealed, write_sealed
from fulcrum.spec.errors import RunFailed

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
        self.chunks: dict[int, tuple[int, dict[str, Region]]] = {}  # by number: its segment and arrays
        self.last: dict[tuple[int, str], Region] = {}  # the furthest of a segment's array: others go behind it
        self.first: dict[str, Region] = {}  # of each array: others have its dtype and shape
        if self.folder.is_symlink():
            raise Damaged(f"{self.folder} is a link, expected a folder of chunks", "remove the link and start again")
        self.folder.mkdir(exist_ok=True)

    def take_segment(self) -> None:
        """Hold the next segment that has room and that nobody holds."""
        while True:
            self.segment += 1
            with suppress(SegmentTaken):
                self.held.enter_context(locked(self._journal(self.segment), patience=0, busy_kind=SegmentTaken))
                self._read([self._journal(self.segment)])
                if not self._is_full():
                    return

    def take_all_segments(self) -> None:
        """Wait until nobody else appends, hold them all, and look what is finished; the first is the one to append to."""
        self.segment = 0
        for journal in sorted({self._journal(0), *self._journals()}):
            self.held.enter_context(locked(journal))
        self.read_all()

    def add(self, number: int, chunk: Callable[[int], Arrays]) -> int:
        """Make a chunk unless it is there, and append all of it or nothing; returns its number."""
        if number in self.chunks:
            return number
        arrays = {name: np.ascontiguousarray(rows, rows.dtype.newbyteorder("<")) for name, rows in chunk(number).items()}
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
        """Write the table of the chunks in this order and the header, and give the entry its name."""
        firsts = sorted(self.first.items())
        table = np.array(
            [
                (at, segment, arrays[name].start, arrays[name].shape[0], list(bytes.fromhex(arrays[name].sha256)))
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
        header = {"facts": facts, "layout": 2, "arrays": about, "chunks": sha256_bytes(table.tobytes())}
        write_sealed(self.folder / HEADER, header, SEAL)
        journals = self._journals()
        rename_folder(self.folder, self.entry)
        for journal in journals:
            (self.entry / journal.name).unlink()
        for former in (".parts", ".partial"):  # what an earlier version left of this entry
            remove(self.entry.with_name(self.entry.name + former))

    def _region(self, name: str, rows: NDArray[Any]) -> Region:
        """Where rows will stand in this process's segment."""
        last, first = self.last.get((self.segment, name)), self.first.get(name)
        region = Region(
            dtype=rows.dtype.str, shape=rows.shape, sha256=sha256_bytes(rows.data), start=last.end if last else 0
        )
        if first is not None and not _alike(first, region):
            raise ValueError(
                f"array {name!r} holds {first.dtype} rows of shape {first.shape[1:]}, found {region.dtype} of "
                f"{region.shape[1:]}"
            )
        return region

    def _write(self, name: str, region: Region, rows: NDArray[Any]) -> None:
        """Put rows into their place, and nothing behind them: what stands there was never finished."""
        path = file_of(self.folder, name, self.segment)
        with open(open_regular(path, os.O_WRONLY | os.O_CREAT), "wb") as stream:
            stream.seek(region.start * region.row_bytes)
            stream.write(rows.data)
            stream.truncate()

    def read_all(self) -> None:
        """Look what is finished in all segments."""
        self._read(self._journals())

    def _read(self, journals: list[Path]) -> None:
        """Take over what journals call finished, as far as it is there (and as it was written, if we `verify`)."""
        for journal in journals:
            for value in filter(is_intact, read_records(journal).values):
                with suppress(ValidationError, OSError):
                    finished = FinishedChunk.model_validate({name: value[name] for name in value if name != CHECK})
                    segment = int(journal.stem)
                    if all(self._is_there(segment, name, region) for name, region in finished.arrays.items()):
                        self._note(segment, finished)

    def _is_there(self, segment: int, name: str, region: Region) -> bool:
        with open(open_regular(file_of(self.folder, name, segment)), "rb") as stream:
            if os.fstat(stream.fileno()).st_size < region.end * region.row_bytes:
                return False
            stream.seek(region.start * region.row_bytes)
            if self.verify and sha256_bytes(stream.read(region.shape[0] * region.row_bytes)) != region.sha256:
                return False
        return _alike(self.first.get(name, region), region)

    def _note(self, segment: int, finished: FinishedChunk) -> None:
        self.chunks[finished.chunk] = segment, finished.arrays
        for name, region in finished.arrays.items():
            self.first.setdefault(name, region)
            self.last[segment, name] = max(self.last.get((segment, name), region), region, key=lambda one: one.end)

    def _is_full(self) -> bool:
        here = (region for (segment, _), region in self.last.items() if segment == self.segment)
        return any(region.end * region.row_bytes >= SEGMENT for region in here)

    def _journal(self, segment: int) -> Path:
        return self.folder / f"{segment:05d}{JOURNAL}"

    def _journals(self) -> list[Path]:
        return sorted(path for path in self.folder.glob(f"*{JOURNAL}") if path.stem.isdecimal())


def _alike(one: Region, other: Region) -> bool:
    return (one.dtype, one.shape[1:]) == (other.dtype, other.shape[1:])
