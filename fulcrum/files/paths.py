"""Open files safely, explain errors of the operating system, and handle damaged files."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

from fulcrum.spec.errors import BadInput, FulcrumError, RunFailed

# --------------------------------------------------------------------------------------------------
# Opening files: plain files only, and where we write, no link is followed and nothing is emptied.


_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a link"),
)


def at_home(path: str | Path) -> Path:
    """A path as shells write it: ~ is the home of whoever asks, ~name that of another."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BadInput(
            f"{path} begins with a home that nobody here has",
            "write the whole path, or ./~ for such a name",
        ) from None


def open_regular(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False) -> int:
    """A file descriptor of a plain file, or an OSError whose `strerror` says what stands there
    instead.

    A pipe does not make us wait, a link is refused unless `follow`. `flags` may hold O_CREAT, never
    O_TRUNC: the file would be empty before we could look at it.
    """
    if flags & os.O_TRUNC:
        raise ValueError("open_regular never empties a file: write it anew with write_atomic")
    try:
        handle = os.open(path, flags | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW), 0o666)
    except OSError as error:
        # an unread pipe; a link
        if error.errno in (errno.ENXIO, 0 if follow else errno.ELOOP) and os.path.lexists(path):
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
    """Is the open file still the one that `path` names? It may have been removed or replaced
    meanwhile."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False


def _unfit(path: Path, mode: int) -> OSError:
    kind = next((name for fits, name in _KINDS if fits(mode)), "a device")
    number = (
        errno.EISDIR if stat.S_ISDIR(mode) else errno.ELOOP if stat.S_ISLNK(mode) else errno.EINVAL
    )
    return OSError(number, f"it is {kind}, expected a plain file", str(path))


# --------------------------------------------------------------------------------------------------
# An error of the operating system as one sentence and one hint that a person can act on.


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_A_DISK = (*FULL, errno.EIO, errno.EROFS)  # what a write says, and it says not of which file
_NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "bad_alloc",
    "can't start new thread",
)
_REMEDIES = {
    **dict.fromkeys(FULL, "make room"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a place that you may use"),
    errno.EISDIR: "move away the folder that stands where a file belongs",
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EEXIST), "move away the file that stands where a folder belongs"
    ),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "is the path right?",
    errno.ELOOP: "put the file itself where the link stands",
}


def is_full(error: OSError) -> bool:
    """Is there no room left: on the disk, in the quota, for a file of this size?"""
    return error.errno in FULL


def is_out_of_memory(error: BaseException) -> bool:
    """Was there no memory left, whoever says so? torch, the loader of libraries and threads have
    words of their own."""
    said = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (
            isinstance(error, OSError | RuntimeError | ImportError)
            and any(words in said for words in _NO_MEMORY)
        )
    )


def reason(error: OSError) -> str:
    """What the system says, without the number and without the path."""
    return error.strerror or str(error)


def remedy(error: OSError, then: str = "") -> str:
    """What helps against an error, followed by what to do `then`; only the latter where nothing is
    known to help."""
    first = _REMEDIES.get(error.errno or 0, "")
    if first and then:
        return f"{first} {then}" if first.endswith("?") else f"{first} and {then}"
    return first or then


def sentence_and_hint(error: OSError) -> tuple[str, str]:
    """Message and hint of an error that nobody has put into words: the file, what the system says,
    what helps."""
    if error.errno is None:  # not of the system but of a library that derives its own from it
        return f"{type(error).__name__}: {error}", ""
    where = (
        f"cannot use {os.fsdecode(error.filename)}: "
        if isinstance(error.filename, str | bytes)
        else ""
    )
    return where + reason(error), remedy(error, "start the same command again")


def _number_told(error: Exception) -> int:
    """The system's number in the words of a library of Rust, as safetensors is; 0: there is
    none."""
    told = re.search(r"\(os error (\d+)\)$", str(error))
    return int(told[1]) if told else 0


@contextmanager
def naming(path: Path, *asides: Path) -> Iterator[None]:
    """An OSError inside names `path`: a failed write names no file, and its `asides` are no files
    that a person knows. What a library says of the disk in an error of its own becomes an
    OSError."""
    try:
        yield
    except OSError as error:
        given = (
            os.fsdecode(error.filename)
            if isinstance(error.filename, str | bytes | os.PathLike)
            else ""
        )
        aside = next((str(aside) for aside in asides if given.startswith(str(aside))), None)
        if aside is not None or (error.filename is None and error.errno in _OF_A_DISK):
            error.filename, error.filename2 = str(path) + given.removeprefix(aside or given), None
        raise
    except Exception as error:
        number = _number_told(error)
        if isinstance(error, FulcrumError) or number not in _OF_A_DISK:
            raise
        raise OSError(number, os.strerror(number), str(path)) from error


def refusal(
    error: OSError,
    message: str,
    *,
    hint: str = "",
    then: str = "",
    kind: type[FulcrumError] = RunFailed,
) -> FulcrumError:
    """`message: reason` with a hint: the given one, else what helps against this error and what to
    do `then`."""
    return kind(f"{message}: {reason(error)}", hint or remedy(error, then))


@contextmanager
def explained(
    action: str,
    path: Path,
    *,
    message: str = "",
    hint: str = "",
    then: str = "",
    kind: type[FulcrumError] = RunFailed,
) -> Iterator[None]:
    """An OSError inside becomes "cannot ACTION PATH: reason"; `message` replaces the part before
    the colon."""
    try:
        yield
    except OSError as error:
        raise refusal(
            error, message or f"cannot {action} {path}", hint=hint, then=then, kind=kind
        ) from error


# --------------------------------------------------------------------------------------------------
# What is on the disk and is not as it was written: refused in words, set aside, never used and
# never destroyed.


ASIDE = "damaged-"  # what the name of everything that was set aside begins with


class Damaged(RunFailed):
    """A file or folder of ours is not what was written."""


def set_aside(path: Path) -> Path:
    """Move something damaged out of the way, beside what was set aside there before."""
    aside = free_aside(path)
    path.rename(aside)
    return aside


def free_aside(path: Path) -> Path:
    """Where something damaged can be kept: damaged-NAME, and of what is damaged again
    damaged-2-NAME, damaged-3-NAME."""
    names = chain([ASIDE], (f"{ASIDE}{time}-" for time in count(2)))
    return next(
        place for name in names if not os.path.lexists(place := path.with_name(name + path.name))
    )


def remove(path: Path) -> None:
    """Remove whatever stands at a path; of a link the link, not what it names. Nothing there is
    fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def require_free(path: Path) -> None:
    """Refuse a name that is taken, or a folder that is not there."""
    if path.exists() or path.is_symlink():
        raise BadInput(
            f"{path} is there already, and a plan is never overwritten", "choose another name"
        )
    if not path.parent.is_dir():
        raise BadInput(
            f"there is no folder {path.parent}", "make it first, or choose another place"
        )
