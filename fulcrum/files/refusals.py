"""An error of the operating system as one sentence and one hint that a person can act on."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fulcrum.spec.errors import FulcrumError, RunFailed

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_A_DISK = (*FULL, errno.EIO, errno.EROFS)  # what a write says, and it says not of which file
_NO_MEMORY = ("can't allocate memory", "cannot allocate memory", "out of memory", "bad_alloc", "can't start new thread")
_REMEDIES = {
    **dict.fromkeys(FULL, "make room"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a place that you may use"),
    errno.EISDIR: "move away the folder that stands where a file belongs",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "move away the file that stands where a folder belongs"),
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "is the path right?",
    errno.ELOOP: "put the file itself where the link stands",
}


def is_full(error: OSError) -> bool:
    """Is there no room left: on the disk, in the quota, for a file of this size?"""
    return error.errno in FULL


def is_out_of_memory(error: BaseException) -> bool:
    """Was there no memory left, whoever says so? torch, the loader of libraries and threads have words of their own."""
    said = str(error).lower()
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, OSError | RuntimeError | ImportError) and any(words in said for words in _NO_MEMORY))
    )


def reason(error: OSError) -> str:
    """What the system says, without the number and without the path."""
    return error.strerror or str(error)


def remedy(error: OSError, then: str = "") -> str:
    """What helps against an error, followed by what to do `then`; only the latter where nothing is known to help."""
    first = _REMEDIES.get(error.errno or 0, "")
    if first and then:
        return f"{first} {then}" if first.endswith("?") else f"{first} and {then}"
    return first or then


def sentence_and_hint(error: OSError) -> tuple[str, str]:
    """Message and hint of an error that nobody has put into words: the file, what the system says, what helps."""
    if error.errno is None:  # not of the system but of a library that derives its own from it
        return f"{type(error).__name__}: {error}", ""
    where = f"cannot use {os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return where + reason(error), remedy(error, "start the same command again")


def _number_told(error: Exception) -> int:
    """The system's number in the words of a library of Rust, as safetensors is; 0: there is none."""
    told = re.search(r"\(os error (\d+)\)$", str(error))
    return int(told[1]) if told else 0


@contextmanager
def naming(path: Path, *asides: Path) -> Iterator[None]:
    """An OSError inside names `path`: a failed write names no file, and its `asides` are no files that a person knows. What
    a library says of the disk in an error of its own becomes an OSError."""
    try:
        yield
    except OSError as error:
        given = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""
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
    error: OSError, message: str, *, hint: str = "", then: str = "", kind: type[FulcrumError] = RunFailed
) -> FulcrumError:
    """`message: reason` with a hint: the given one, else what helps against this error and what to do `then`."""
    return kind(f"{message}: {reason(error)}", hint or remedy(error, then))


@contextmanager
def explained(
    action: str, path: Path, *, message: str = "", hint: str = "", then: str = "", kind: type[FulcrumError] = RunFailed
) -> Iterator[None]:
    """An OSError inside becomes "cannot ACTION PATH: reason"; `message` replaces the part before the colon."""
    try:
        yield
    except OSError as error:
        raise refusal(error, message or f"cannot {action} {path}", hint=hint, then=then, kind=kind) from error
