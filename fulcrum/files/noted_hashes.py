"""Hashes of large files that belong to others, noted in the user's cache so that weights are not
read at every start."""

import os
import time
from pathlib import Path
from typing import Any

from fulcrum.files.atomic import write_json
from fulcrum.files.sealed import read_json, sha256_file, sha256_text
from fulcrum.spec.errors import BadInput, RunFailed

SMALL = 1 << 20  # bytes: hashed anew every time
RACY = 2.0  # seconds: a file this young may change within one mtime
# what this process has read itself, by all that a change moves
_read_here: dict[tuple[str, int, int, int, int], str] = {}


def file_hash(path: Path, fresh: bool = False) -> str:
    """sha256 of a file; a large one is hashed again only when its size or time changed, or when
    `fresh`: then a file that changed under an unchanged time is found."""
    stat = path.stat()
    identity = [str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino]
    note = _notes() / (sha256_text(str(identity), 32) + ".json")
    noted = None if stat.st_size < SMALL else _noted(note, identity)
    if noted and not fresh:
        return noted
    content = freshly_read(path) if fresh else _read(path, stat)
    is_false = noted is not None and noted != content
    gone = not is_false or _removed(note)
    if noted != content and stat.st_size >= SMALL and time.time() - stat.st_mtime > RACY:
        _write_note(note, identity, content)
    if is_false:
        raise RunFailed(
            f"{path} has changed, but its size and time have not: the run's key was made with its"
            " old hash",
            (
                "start the same command again: the new hash is used"
                if gone
                else f"remove {note}, and start again"
            ),
        )
    return content


def freshly_read(path: Path) -> str:
    """sha256 of a file's bytes as they are now, whatever was noted. Read once by a process, unless
    the time of its last change, which nobody can set back, has moved."""
    stat = path.stat()
    return _read_here.get(_seen(path, stat)) or _read(path, stat)


def _read(path: Path, stat: os.stat_result) -> str:
    content = sha256_file(path)
    if stat.st_size >= SMALL and time.time() - stat.st_ctime > RACY:
        _read_here[_seen(path, stat)] = content
    return content


def _seen(path: Path, stat: os.stat_result) -> tuple[str, int, int, int, int]:
    return str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns


def _noted(note: Path, identity: list[Any]) -> str | None:
    try:
        content = read_json(note, "")
    except BadInput:  # never noted, or damaged
        return None
    return (
        str(content["sha256"]) if content.get("file") == identity and "sha256" in content else None
    )


def _removed(note: Path) -> bool:
    try:
        note.unlink(missing_ok=True)
        return True
    except OSError:
        return False


def _write_note(note: Path, identity: list[Any], content: str) -> None:
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_json(note, {"file": identity, "sha256": content}, flush=False)
    except OSError:
        pass  # a home that cannot be written costs time, nothing else


def _notes() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fulcrum" / "hashes"
