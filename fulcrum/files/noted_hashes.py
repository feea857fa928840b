"""Hashes of large files that belong to others, noted in the user's cache so that weights are not read at every start."""

import os
import time
from pathlib import Path
from typing import Any

from fulcrum.files.atomic import write_json
from fulcrum.files.hashes import sha256_file, sha256_text
from fulcrum.files.sealed import read_json
from fulcrum.spec.errors import BadInput, RunFailed

SMALL = 1 << 20  # bytes: hashed anew every time
RACY = 2.0  # seconds: a file this young may change within one mtime
_read_here: dict[tuple[str, int, int, int, int], str] = {}  # what this process has read itself, by all that a change moves


def file_hash(path: Path, fresh: bool = False) -> str:
    """sha256 of a file; a large one is hashed again only when its size or time changed, or when `fresh`: then a file that
    changed under an unchanged time is found. A fresh one is read once by a process, unless the time of its last change,
    which nobody can set back, has moved."""
    stat = path.stat()
    seen = (str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns)
    if fresh and seen in _read_here:
        return _read_here[seen]
    identity = [str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino]
    note = _notes() / (sha256_text(str(identity), 32) + ".json")
    noted = None if stat.st_size < SMALL else _noted(note, identity)
    if noted and not fresh:
        return noted
    content = sha256_file(path)
    if stat.st_size >= SMALL and time.time() - stat.st_ctime > RACY:
        _read_here[seen] = content
    if stat.st_size >= SMALL and time.time() - stat.st_mtime > RACY:
        _write_note(note, identity, content)
    if noted and noted != content:
        raise RunFailed(
            f"{path} has changed, but its size and time have not: the run's key was made with its old hash",
            "start the same command again: the new hash is noted",
        )
    return content


def _noted(note: Path, identity: list[Any]) -> str | None:
    try:
        content = read_json(note, "")
    except BadInput:  # never noted, or damaged
        return None
    return str(content["sha256"]) if content.get("file") == identity and "sha256" in content else None


def _write_note(note: Path, identity: list[Any], content: str) -> None:
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_json(note, {"file": identity, "sha256": content}, flush=False)
    except OSError:
        pass  # a home that cannot be written costs time, nothing else


def _notes() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fulcrum" / "hashes"
