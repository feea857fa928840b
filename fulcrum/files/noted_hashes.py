"""Hashes of large files that belong to others, noted in the user's cache so that weights are not
read at every start."""

import os
import time
from pathlib import Path
from typing import Any

from fulcrum.files.atomic import write_json
from fulcrum.files.sealed import read_json, sha256_file, sha256_text
from fulcrum.spec.errors import BadInput

SMALL = 1 << 20  # bytes: hashed anew every time
RACY = 2.0  # seconds: a file this young may change within one mtime


def file_hash(path: Path) -> str:
    """Return the sha256 of a file. A large file is read again only when its size, times or inode
    have changed."""
    stat = path.stat()
    if stat.st_size < SMALL:
        return sha256_file(path)
    times = [stat.st_mtime_ns, stat.st_ctime_ns]
    identity = [str(path.resolve()), stat.st_size, *times, stat.st_ino]
    note = _notes() / (sha256_text(str(identity), 32) + ".json")
    noted = _noted(note, identity)
    if noted is not None:
        return noted
    content = sha256_file(path)
    if time.time() - stat.st_mtime > RACY:
        _write_note(note, identity, content)
    return content


def _noted(note: Path, identity: list[Any]) -> str | None:
    try:
        content = read_json(note, "")
    except BadInput:  # never noted, or damaged
        return None
    return (
        str(content["sha256"]) if content.get("file") == identity and "sha256" in content else None
    )


def _write_note(note: Path, identity: list[Any], content: str) -> None:
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_json(note, {"file": identity, "sha256": content}, flush=False)
    except OSError:
        pass  # a home that cannot be written costs time, nothing else


def _notes() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fulcrum" / "hashes"
