"""Locks between processes: the system frees one when its holder dies, even by kill -9.

The file stays when the lock is let go: were it removed, a third process could lock a new file of
the same name.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fulcrum.files.paths import is_at, open_regular, read_regular, reason
from fulcrum.spec.errors import FulcrumError, RunFailed

_PAUSE = 0.1  # seconds between two tries
_LONGEST = 1 << 16  # bytes of a holder's text that are read


@contextmanager
def locked(
    path: Path,
    *,
    patience: float | None = None,
    busy: str = "",
    busy_hint: str = "wait for it, or stop it",
    unfit: str = "",
    unfit_hint: str = "remove it: a lock holds nothing of yours",
    kind: type[FulcrumError] = RunFailed,
    busy_kind: type[FulcrumError] | None = None,
    holder: str | None = None,
    create: bool = True,
    need_locks: bool = True,
) -> Iterator[None]:
    """Hold a lock as long as the block runs; `patience` in seconds, None: for ever.

    A lock held by another process is `kind(busy, busy_hint)`, or `busy_kind` to tell it from a path
    that cannot be opened (a link, a pipe, a folder, a read-only place): that is `kind(unfit:
    reason, unfit_hint)`. `holder` is written into the file, for `holder_of`. With
    `need_locks=False` a file system that knows no locks is no error: then nothing is held.
    """
    deadline = None if patience is None else time.monotonic() + patience
    while True:
        try:
            handle = open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0))
        except OSError as error:
            raise kind(
                f"{unfit or f'{path} cannot be opened'}: {reason(error)}", unfit_hint
            ) from None
        try:
            if not _taken(handle, deadline):
                raise (busy_kind or kind)(busy or f"another process holds {path}", busy_hint)
        except OSError as error:
            if need_locks:
                os.close(handle)
                raise kind(
                    f"{path} cannot be locked: {reason(error)}",
                    "choose a place on a file system with locks",
                ) from None
        except BaseException:
            os.close(handle)
            raise
        if is_at(handle, path):
            break
        os.close(handle)  # removed while we waited for it: what we hold guards nothing
    try:
        if holder is not None:
            # the disk is full: whoever writes something that matters says so
            with suppress(OSError):
                os.ftruncate(handle, 0)
                os.write(handle, holder.encode())
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Does a process of this machine hold the lock now? One that was never taken is not held."""
    try:
        handle = open_regular(path)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def holder_of(path: Path) -> str | None:
    """What the last holder wrote into the lock; None where there is no lock that can be read."""
    try:
        return read_regular(path, limit=_LONGEST, follow=False).decode()
    except (OSError, ValueError):
        return None


def _taken(handle: int, deadline: float | None) -> bool:
    if deadline is None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        return True
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE)
