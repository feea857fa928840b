"""A content-addressed store of arrays: named by what made them, written once and whole, verified when opened.

An entry is a directory `<root>/<kind>-<key>/` with raw little-endian arrays and `header.json`, which holds the facts
whose hash is the key, and size and sha256 of every array.  It appears by one rename, so it is complete or absent; a
lock makes a second process wait for the first instead of doing the same work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.encode.parts import Parts
from fulcrum.spec.errors import RunFailed

FORMAT = 1  # raise it when an encoder's code changes what it computes from the same weights
PARTS = ".parts"  # beside an entry in the making
_BLOCK = 1 << 22


class Damaged(RunFailed):
    """An entry is not what was written."""


def _digest(facts: object) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class Writer:
    """Appends rows to the arrays of an entry and hashes them on the way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.arrays: dict[str, dict[str, Any]] = {}
        self._open: dict[str, tuple[Any, Any]] = {}

    def append(self, name: str, rows: NDArray[Any]) -> None:
        """Rows (n, ...) of one array; all calls must agree in dtype and trailing shape."""
        rows = np.ascontiguousarray(rows)
        if name not in self.arrays:
            self.arrays[name] = {"dtype": rows.dtype.newbyteorder("<").str, "shape": [0, *rows.shape[1:]]}
            self._open[name] = ((self.folder / f"{name}.bin").open("wb"), hashlib.sha256())
        about = self.arrays[name]
        if list(rows.shape[1:]) != about["shape"][1:] or rows.dtype != np.dtype(about["dtype"]):
            raise ValueError(
                f"array {name!r} holds {about['dtype']} rows of shape {about['shape'][1:]}, "
                f"found {rows.dtype} of {list(rows.shape[1:])}"
            )
        file, digest = self._open[name]
        file.write(rows.data)
        digest.update(rows.data)
        about["shape"][0] += len(rows)

    def close(self) -> None:
        for name, (file, digest) in self._open.items():
            file.flush()
            os.fsync(file.fileno())
            file.close()
            self.arrays[name]["sha256"] = digest.hexdigest()
        self._open = {}

    def abandon(self) -> None:
        for file, _ in self._open.values():
            file.close()


class Store:
    """Entries under one root."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def get(self, kind: str, facts: Mapping[str, Any], make: Callable[[Writer], None]) -> dict[str, NDArray[Any]]:
        """The entry's arrays, memory-mapped read-only; `make` writes them if nobody has."""
        facts = {"format": FORMAT, "kind": kind, **facts}
        folder = self._folder(facts)
        if not folder.is_dir():
            self._write(folder, facts, make)
        return self._read(folder, facts)

    def has(self, kind: str, facts: Mapping[str, Any]) -> bool:
        """Is the entry there? Nothing is verified."""
        return self._folder({"format": FORMAT, "kind": kind, **facts}).is_dir()

    def parts(self, kind: str, facts: Mapping[str, Any]) -> Parts:
        """The chunks of an entry that is not whole yet; they go when it is."""
        folder = self._folder({"format": FORMAT, "kind": kind, **facts})
        return Parts(folder.with_name(folder.name + PARTS))

    def _folder(self, facts: Mapping[str, Any]) -> Path:
        return self.root / f"{facts['kind']}-{_digest(facts)[:32]}"

    def _write(self, folder: Path, facts: dict[str, Any], make: Callable[[Writer], None]) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with _locked(folder.with_name(folder.name + ".lock")):
                if folder.is_dir():
                    return  # another process made it while this one waited
                partial = folder.with_name(folder.name + ".partial")
                shutil.rmtree(partial, ignore_errors=True)  # left by a killed process: the lock is ours
                partial.mkdir()
                writer = Writer(partial)
                try:
                    make(writer)
                    writer.close()
                    body = {"facts": facts, "arrays": writer.arrays}
                    (partial / "header.json").write_text(json.dumps({**body, "seal": _digest(body)}, indent=1))
                    partial.rename(folder)
                    Parts(folder.with_name(folder.name + PARTS)).clear()
                except BaseException:
                    writer.abandon()
                    shutil.rmtree(partial, ignore_errors=True)
                    raise
        except OSError as error:
            raise RunFailed(
                f"cannot write the cache entry {folder}: {error.strerror or error}",
                "free some space or choose another cache directory; nothing half-written was kept",
            ) from error

    def _read(self, folder: Path, facts: dict[str, Any]) -> dict[str, NDArray[Any]]:
        again = f"delete {folder} and run again: it will be encoded anew"
        try:
            header = json.loads((folder / "header.json").read_text())
            seal = header.pop("seal")
            arrays = header["arrays"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"the cache entry {folder} has no readable header ({error})", again) from error
        if seal != _digest(header) or header["facts"] != json.loads(json.dumps(facts)):
            raise Damaged(f"the header of the cache entry {folder} was changed after it was written", again)
        return {name: _open(folder / f"{name}.bin", about, again) for name, about in arrays.items()}


def _open(path: Path, about: dict[str, Any], again: str) -> NDArray[Any]:
    dtype, shape = np.dtype(about["dtype"]), tuple(about["shape"])
    wanted = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    found = path.stat().st_size if path.is_file() else -1
    if found != wanted:
        raise Damaged(f"{path} should hold {wanted} bytes, found {found if found >= 0 else 'no file'}", again)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != about["sha256"]:
        raise Damaged(f"{path} does not have the checksum of its header: a bit has changed", again)
    if wanted == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Held by one process at a time; the system frees it when the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # the empty file stays: unlinking it would let a third process lock another inode
