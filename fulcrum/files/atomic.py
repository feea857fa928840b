"""Files and folders that appear whole or not at all: written aside in the same folder, flushed,
renamed.

What is being written is called .NAME.PID-TOKEN.writing and is held by a lock: so `sweep` knows what
a killed process left.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, BinaryIO

from fulcrum.files.paths import naming, open_regular, remove
from fulcrum.spec.errors import BadInput

_ASIDE = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.writing", re.DOTALL)
_LONGEST = 200  # bytes of a name that its aside repeats: a file system takes 255
# by a folder with something in it, by a file
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_RIGHTS = 0o666  # of a file: to read and write it, less what the umask takes
# seconds in which something aside is never swept: its writer may not have locked it yet
FRESH = 60.0


def write_atomic(path: Path, data: bytes | str, *, flush: bool = True) -> None:
    """Write a whole file. A link that stands there is replaced, not followed; text is UTF-8, line
    ends as they are.

    `flush=False` where a power cut may cost the file and it is written often.
    """
    with atomic_file(path, flush=flush) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


def write_new(path: Path, data: bytes) -> Path:
    """Write a file where none stands, and say where: of a name that is taken the next free number,
    NAME-2, NAME-3."""
    for name in chain([path.name], (f"{path.stem}-{number}{path.suffix}" for number in count(2))):
        place = path.with_name(name)
        with suppress(FileExistsError):
            handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
            break
    try:
        with naming(place), open(handle, "wb") as stream:
            stream.write(data)
    except BaseException:
        place.unlink(missing_ok=True)
        raise
    return place


def write_json(path: Path, value: Any, *, flush: bool = True) -> None:
    """Write one JSON value, its keys sorted."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True), flush=flush)


@contextmanager
def atomic_file(path: Path, *, flush: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write to; it becomes `path` when the block ends, and goes if the block
    fails."""
    with (
        atomic_path(path, flush=flush) as aside,
        open(open_regular(aside, os.O_WRONLY), "wb") as stream,
    ):
        yield stream


@contextmanager
def atomic_path(path: Path, *, flush: bool = True) -> Iterator[Path]:
    """As `atomic_file`, for a library that wants a path: an empty file that it may write to."""
    aside = _aside(path)
    with naming(path, aside):
        # less what the umask takes
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    try:
        with naming(path, aside):
            _hold(handle)
            yield aside
            # a library may have put a file of its own there, for us alone
            aside.chmod(os.fstat(handle).st_mode & _RIGHTS)
            if flush:
                _flush(aside)
            os.replace(aside, path)
            if flush:
                _flush(path.parent.resolve())
    except BaseException:  # a full disk must not be filled with what is half written
        aside.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


@contextmanager
def folder_atomic(final: Path, *, flush: bool = True, replace: bool = False) -> Iterator[Path]:
    """An empty folder to fill; it becomes `final` when the block ends, and goes if the block fails.

    What stands at `final` is an OSError, or with `replace` makes way (between two renames there is
    none for a moment).
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    aside, former = _aside(final), _aside(final)
    with naming(final, aside):
        aside.mkdir()
        handle = os.open(aside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with naming(final, aside):
            _hold(handle)
            yield aside
            _same_rights(aside, os.fstat(handle).st_mode & _RIGHTS)
            if flush:
                _flush_tree(aside)
            if replace and os.path.lexists(final):
                os.rename(final, former)
            os.rename(aside, final)
            if flush:
                _flush(final.parent.resolve())
        # the new folder is in place: `sweep` may have more luck with the old one
        with suppress(OSError):
            remove(former)
    except BaseException:
        with suppress(OSError):  # what went wrong first is what a person must see
            remove(aside)
        if os.path.lexists(former) and not os.path.lexists(final):
            os.rename(former, final)
        raise
    finally:
        os.close(handle)


def rename_folder(made: Path, final: Path) -> None:
    """Give a folder that is filled its name, once all that it holds is on the disk."""
    _flush_tree(made)
    name_folder(made, final)
    _flush(final.parent.resolve())


def name_folder(made: Path, final: Path) -> None:
    """The rename alone; what has taken the name meanwhile stays and is told."""
    try:
        os.rename(made, final)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        raise BadInput(
            f"{final} appeared while what belongs there was written",
            "nothing is overwritten: move it away, or choose another",
        ) from None


def sweep(folder: Path, *, fresh: float = FRESH) -> list[Path]:
    """Remove what killed writers left in a folder, and say what; what is being written now stays.
    `fresh=0` for whoever holds the lock of the folder: nobody else is about to write there."""
    gone = abandoned(folder, fresh) if folder.is_dir() else []
    for path in gone:
        remove(path)
    return gone


def remove_at_once(folder: Path) -> None:
    """Remove a folder so that a kill on the way leaves it whole or not there; what is left of it
    then is `sweep`'s."""
    aside = _aside(folder)
    os.rename(folder, aside)
    remove(aside)


def abandoned(folder: Path, fresh: float = FRESH) -> list[Path]:
    """What killed writers left in a folder; what is being written now is not among it."""
    return [path for path in folder.iterdir() if is_aside(path) and _abandoned(path, fresh)]


def is_aside(path: Path) -> bool:
    """Is this something in the making, or left by a killed process? Listings pass over it."""
    return _ASIDE.fullmatch(path.name) is not None


def _aside(path: Path) -> Path:
    name = os.fsdecode(os.fsencode(path.name)[:_LONGEST])
    return path.with_name(f".{name}.{os.getpid()}-{secrets.token_hex(4)}.writing")


def _hold(handle: int) -> None:
    with suppress(OSError):  # a file system without locks: there `sweep` removes nothing
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _abandoned(path: Path, fresh: float) -> bool:
    try:
        if path.is_symlink() or (fresh and time.time() - path.stat().st_mtime < fresh):
            return False
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _same_rights(folder: Path, rights: int) -> None:
    """Files as the umask has them, also those that a library wrote for its user alone."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink() and path.stat().st_mode & _RIGHTS != rights:
                path.chmod(rights)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_tree(folder: Path) -> None:
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            if not os.path.islink(os.path.join(place, name)):
                _flush(Path(place, name))
        _flush(Path(place))
