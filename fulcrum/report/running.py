"""Is a page's study running? While it is, it holds a lock and touches the page; both end with it, even by kill -9."""

import contextlib
import datetime
import errno
import fcntl
import os
import platform
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fulcrum.report.page import read, write
from fulcrum.report.schema import StudyResult
from fulcrum.spec.errors import BadInput

LOCK, PAGE, RESULT = "running.lock", "report.html", "report.json"
BEAT = 5.0  # seconds between two touches of the page
SILENT = 120.0  # seconds without one, and the page says so: see live.js
PATIENCE = 5.0  # seconds that a study waits for its lock
HEAD = 1 << 16  # bytes of the result in which its state stands
RUNNING = b'\n "state": "running",'  # there: a title in JSON has no line break


@contextlib.contextmanager
def beating(folder: Path, every: float = BEAT) -> Iterator[None]:
    """Entered by a study as long as it runs."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every):
            with contextlib.suppress(OSError):  # no page yet, or the disk is full: the study says it
                os.utime(folder / PAGE)

    with _held(folder / LOCK) as handle:
        with contextlib.suppress(OSError):  # the disk is full: the study says it
            os.ftruncate(handle.fileno(), 0)
            os.write(handle.fileno(), platform.node().encode())
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _held(path: Path) -> BinaryIO:
    """The lock, open and ours alone. A link is not followed: what it names is not ours to write to."""
    try:
        handle = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644), "r+b", buffering=0)
        if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
            handle.close()
            raise OSError(errno.EINVAL, "it is no plain file")
    except OSError as error:
        raise BadInput(
            f"{path} cannot be opened: {error.strerror}", "remove it: there was nothing in it but a machine's name"
        ) from None
    patience = time.monotonic() + PATIENCE  # a page that is being settled is soon let go
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > patience:
                handle.close()
                raise BadInput(
                    f"this study is running already, in another process: {path.parent}",
                    "wait for it, or watch it: fulcrum report --watch",
                ) from None
            time.sleep(0.1)
        except OSError:  # a file system without locks: silence has to tell
            return handle


def settle(folder: Path) -> StudyResult | None:
    """A page that says "running" of a study that is gone is written again as stopped; that result, or None.

    Gone is what was begun on this machine and holds its lock no more. Of a study elsewhere only its silence is known.
    """
    if not _said_to_run(folder):
        return None
    try:
        with (folder / LOCK).open("r+") as handle:
            if handle.read(HEAD) != platform.node():
                return None
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a study that begins now waits until this is written
            result = stopped(read(folder / RESULT), (folder / PAGE).stat().st_mtime)
            write(result, folder)
            return result
    except (OSError, ValueError):  # held: it runs. Or nothing here can be read, or written
        return None


def notice(folder: Path) -> str:
    """What a person must know of a study that did not end and is not running; its page is settled. Empty for all others."""
    left = settle(folder)
    silent = left is None and _said_to_run(folder) and time.time() - (folder / PAGE).stat().st_mtime > SILENT
    if left is None and not silent:
        return ""
    try:
        result = left or read(folder / RESULT)
    except ValueError:  # of another version
        return ""
    what = "it was stopped, or its machine sleeps" if silent else "it was stopped"
    return (
        f"'{result.title}' was last heard of {result.made.date}: {what}; what is done is kept\n"
        f"  go on with: {result.made.command}"
    )


def _said_to_run(folder: Path) -> bool:
    try:
        with (folder / RESULT).open("rb") as stream:
            return RUNNING in stream.read(HEAD)
    except OSError:
        return False


def stopped(result: StudyResult, heard: float) -> StudyResult:
    """The result of a study that was last heard of then, as it is left: cells that ran wait for the next."""
    arms = tuple(
        arm.model_copy(
            update={
                "cells": tuple(
                    cell.model_copy(update={"state": "waiting"}) if cell.state == "running" else cell for cell in arm.cells
                )
            }
        )
        for arm in result.arms
    )
    when = datetime.datetime.fromtimestamp(heard, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return result.model_copy(
        update={
            "state": "stopped",
            "arms": arms,
            "made": result.made.model_copy(update={"date": when}),
            "progress": result.progress.model_copy(update={"seconds_left": None}),
        }
    )
