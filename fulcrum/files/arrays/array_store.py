"""A content-addressed store of arrays: an entry is named by what made it, and is made chunk by chunk, each written once.

    <root>/<kind>-<key>/           an entry; it is whole, since it appears by one rename
        header.json                sealed: the facts whose hash is the key, dtype and shape of every array
        chunks.bin                 where the rows of every chunk lie, and their sha256: CHUNK of stored_array.py
        rows.00000.bin ...         rows of the array `rows`, in one file for each process that made chunks and each GB
    <root>/<kind>-<key>.making/    the same files of an entry that is not whole, and the journals of its segments
    <root>/<kind>-<key>.lock       held by the process that completes the entry; others wait for it

Several processes make chunks side by side, each in a segment of its own, which it holds by a lock on the journal. What a
killed one has finished is used. An open checks header and sizes, a read verifies the chunks that it touches.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fulcrum.files.arrays.array_records import HEADER, TABLE, EntryHeader, file_of
from fulcrum.files.arrays.stored_array import CHUNK, StoredArray
from fulcrum.files.arrays.unfinished_entry import Arrays, UnfinishedEntry
from fulcrum.files.damaged import Damaged
from fulcrum.files.hashes import sha256_bytes, sha256_json
from fulcrum.files.lock import locked
from fulcrum.files.paths import read_regular
from fulcrum.files.refusals import explained
from fulcrum.files.sealed import SEAL, read_sealed

FORMAT = 1  # raise it when an encoder's code changes what it computes from the same weights
_KEPT = "free some space or choose another cache directory; finished chunks are kept, nothing half-written was kept"


class ArrayStore:
    """Entries under one root."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def get(
        self, kind: str, facts: Mapping[str, Any], numbers: Iterable[int], chunk: Callable[[int], Arrays]
    ) -> dict[str, StoredArray]:
        """The arrays of an entry: the rows of all its chunks, whose `numbers` are given in order, one after another.

        `chunk(number)` makes a chunk that nobody has made yet; all chunks agree in dtype and shape of an array's rows,
        and an array may stand in some of them only. `numbers` is gone through only while the entry is made.
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

    def share(self, kind: str, facts: Mapping[str, Any], numbers: Iterable[int], chunk: Callable[[int], Arrays]) -> None:
        """Make some chunks of an entry, side by side with others, for `get` to complete; those that are there are left."""
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
        """What a whole entry holds, as one hash from its header; None if it is not whole. No row is read."""
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
        with explained("write", folder, message=f"cannot write the cache entry {folder}", hint=_KEPT):
            self.root.mkdir(parents=True, exist_ok=True)
            yield

    def _locked(self, folder: Path) -> AbstractContextManager[None]:
        path = folder.with_name(folder.name + ".lock")
        return locked(path, unfit=f"cannot write the cache entry {folder}: {path.name}", unfit_hint=_KEPT)


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
        raise Damaged(f"the cache entry {folder} has no readable header ({error.message})", hint) from None
    except ValidationError as error:
        raise Damaged(f"the cache entry {folder} has no readable header ({error.errors()[0]['msg']})", hint) from None
    if header.facts != json.loads(json.dumps(facts)):
        raise Damaged(f"the header of the cache entry {folder} was changed: it names other facts", hint)
    table = _table(folder, header, hint)
    arrays = {}
    for at, (name, about) in enumerate(sorted(header.arrays.items())):
        chunks = table[table["array"] == at]
        if int(chunks["rows"].sum()) != about.shape[0]:
            raise Damaged(f"{folder / TABLE} and {HEADER} disagree about the rows of {name}", hint)
        segments = map(int, np.unique(chunks["segment"]))
        paths = {part: file_of(folder, name, part) if header.layout == 2 else folder / f"{name}.bin" for part in segments}
        arrays[name] = StoredArray(np.dtype(about.dtype), about.shape[1:], chunks, paths, hint)
    return arrays


def _table(folder: Path, header: EntryHeader, hint: str) -> NDArray[np.void]:
    """Where the chunks lie; in layout 1 each array is a single one."""
    if header.layout == 1:
        abouts = [about for _, about in sorted(header.arrays.items())]
        digests = [list(bytes.fromhex(about.sha256 or "00" * 32)) for about in abouts]
        return np.array([(at, 0, 0, abouts[at].shape[0], digest) for at, digest in enumerate(digests)], CHUNK)
    try:
        data = read_regular(folder / TABLE)
        table = np.frombuffer(data, CHUNK)
    except (OSError, ValueError) as error:
        raise Damaged(f"{folder / TABLE} cannot be read: {error}", hint) from None
    places = np.stack([table[field].astype(np.int64) for field in ("segment", "start", "rows")])
    if sha256_bytes(data) != header.chunks or places.min(initial=0) < 0 or places.max(initial=0) >= 1 << 48:
        raise Damaged(f"{folder / TABLE} was changed after it was written", hint)
    return table
