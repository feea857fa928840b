"""Is a page's study running? While it is, it holds a lock and touches the page; both end with it, even by kill -9."""

import contextlib
import datetime
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from fulcrum.files.lock import holder_of, locked
from fulcrum.files.paths import open_regular
from fulcrum.report.page import read, write
from fulcrum.report.schema import StudyResult
from fulcrum.spec.errors import BadInput, FulcrumError

LOCK, PAGE, RESULT = "running.lock", "report.html", "report.json"
BEAT = 5.0  # seconds between two touches of the page
SILENT = 120.0  # seconds without one, and the page says so: see templates/live.js
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

    with locked(
        folder / LOCK,
        patience=PATIENCE,
        busy=f"this study is running already, in another process: {folder}",
        busy_hint="wait for it, or watch it: fulcrum report --watch",
        unfit_hint="remove it: there was nothing in it but a machine's name",
        kind=BadInput,
        holder=platform.node(),
        need_locks=False,  # on a file system without locks silence has to tell
    ):
        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def settle(folder: Path) -> StudyResult | None:
    """A page that says "running" of a study that is gone is written again as stopped; that result, or None.

    Gone is what was begun on this machine and holds its lock no more. Of a study elsewhere only its silence is known.
    """
    if not _says_it_runs(folder) or holder_of(folder / LOCK) != platform.node():
        return None
    try:  # a study that begins now waits until this is written
        with locked(folder / LOCK, patience=0.0, create=False):
            result = stopped(read(folder / RESULT), (folder / PAGE).stat().st_mtime)
            write(result, folder)
            return result
    except (FulcrumError, OSError, ValueError):  # held: it runs. Or nothing here can be read, or written
        return None


def notice(folder: Path) -> str:
    """What a person must know of a study that did not end and is not running; its page is settled. Empty for all others."""
    left = settle(folder)
    silent = left is None and _says_it_runs(folder) and time.time() - (folder / PAGE).stat().st_mtime > SILENT
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


def _says_it_runs(folder: Path) -> bool:
    try:
        with open(open_regular(folder / RESULT, follow=True), "rb") as stream:
            return RUNNING in stream.read(HEAD)
    except OSError:
        return False


def stopped(result: StudyResult, heard: float) -> StudyResult:
    """The result of a study that was last heard of then, as it is left: cells that ran wait for the next."""
    arms, combinations = (
        tuple(
            arm.model_copy(
                update={
                    "cells": tuple(
                        cell.model_copy(update={"state": "waiting"}) if cell.state == "running" else cell
                        for cell in arm.cells
                    )
                }
            )
            for arm in part
        )
        for part in (result.arms, result.combinations)
    )
    when = datetime.datetime.fromtimestamp(heard, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return result.model_copy(
        update={
            "state": "stopped",
            "arms": arms,
            "combinations": combinations,
            "made": result.made.model_copy(update={"date": when}),
            "progress": result.progress.model_copy(update={"seconds_left": None}),
        }
    )
