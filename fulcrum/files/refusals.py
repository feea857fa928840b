"""An error of the operating system as one sentence and one hint that a person can act on."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fulcrum.spec.errors import FulcrumError, RunFailed

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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


def reason(error: OSError) -> str:
    """What the system says, without the number and without the path."""
    return error.strerror or str(error)


def remedy(error: OSError, then: str = "") -> str:
    """What helps against an error, followed by what to do `then`; only the latter where nothing is known to help."""
    first = _REMEDIES.get(error.errno or 0, "")
    if first and then:
        return f"{first} {then}" if first.endswith("?") else f"{first} and {then}"
    return first or then


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
