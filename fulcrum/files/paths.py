"""Opening files: plain files only, and where we write, no link is followed and nothing is emptied."""

import errno
import os
import stat
from pathlib import Path

from fulcrum.spec.errors import BadInput

_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISLNK, "a link"))


def at_home(path: str | Path) -> Path:
    """A path as shells write it: ~ is the home of whoever asks, ~name that of another."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BadInput(
            f"{path} begins with a home that nobody here has", "write the whole path, or ./~ for such a name"
        ) from None


def open_regular(path: Path, flags: int = os.O_RDONLY, *, mode: int = 0o666, follow: bool = False) -> int:
    """A file descriptor of a plain file, or an OSError whose `strerror` says what stands there instead.

    A pipe does not make us wait, a link is refused unless `follow`. `flags` may hold O_CREAT, never O_TRUNC: the file
    would be empty before we could look at it.
    """
    if flags & os.O_TRUNC:
        raise ValueError("open_regular never empties a file: write it anew with write_atomic")
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW), mode)
    except OSError as error:
        if error.errno in (errno.ENXIO, 0 if follow else errno.ELOOP) and os.path.lexists(path):  # an unread pipe; a link
            raise _unfit(path, os.lstat(path).st_mode) from None
        raise
    kind = os.fstat(handle).st_mode
    if not stat.S_ISREG(kind):
        os.close(handle)
        raise _unfit(path, kind)
    return handle


def read_regular(path: Path, *, limit: int | None = None, follow: bool = True) -> bytes:
    """All bytes of a plain file; more than `limit` of them are an OSError, and are not read."""
    with open(open_regular(path, follow=follow), "rb") as stream:
        if limit is None:
            return stream.read()
        announced = os.fstat(stream.fileno()).st_size
        data = stream.read(limit + 1) if announced <= limit else b""  # it may grow meanwhile
    if max(announced, len(data)) > limit:
        raise OSError(errno.EINVAL, f"it holds more than {limit:,} bytes", str(path))
    return data


def is_at(handle: int, path: Path) -> bool:
    """Is the open file still the one that `path` names? It may have been removed or replaced meanwhile."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False


def _unfit(path: Path, mode: int) -> OSError:
    kind = next((name for fits, name in _KINDS if fits(mode)), "a device")
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ELOOP if stat.S_ISLNK(mode) else errno.EINVAL
    return OSError(number, f"it is {kind}, expected a plain file", str(path))
