"""Marks in folders: a folder that a command is filling, and a folder that several processes
share."""

import json
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fulcrum.files.atomic import is_aside, write_atomic
from fulcrum.files.paths import explained, read_regular
from fulcrum.spec.errors import BadInput, shown

# --------------------------------------------------------------------------------------------------
# A folder that a command fills beside its target, known by a mark: a killed command goes on, and
# nobody's files are lost.
#
# The mark is written first. What was killed before it leaves nothing but an empty lock and empty
# folders.


LOCK = "lock"
MOST = 1 << 24  # bytes of a mark


class BeginMark(NamedTuple):
    """The file by which a command knows what it began."""

    name: str
    field: str  # that its JSON states: a file of the same name is not yet of this command
    work: str  # what the command does, in a word


def require_begun(folder: Path, mark: BeginMark) -> None:
    """Refuse a folder that holds something and was not begun by this command: what is in it would
    be lost, or mixed up."""
    strange = [name for name in sorted(_names(folder)) if not _of_a_beginning(folder / name)]
    # another may just have ended
    if not strange or _is_marked(folder, mark) or not folder.exists():
        return
    raise BadInput(
        shown(
            f"{folder} holds '{strange[0]}' and is not the beginning of this {mark.work}, which"
            " would work there"
        ),
        "nothing in it was touched: move it away, finish what began it, or choose another target",
    )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    # a file there is told by whoever makes the folder
    except (FileNotFoundError, NotADirectoryError):
        return []


def _of_a_beginning(path: Path) -> bool:
    """An empty folder, an empty lock, a mark in the writing, or what is gone by now."""
    try:
        if path.is_symlink():
            return path.name == LOCK  # is refused as it is locked
        empty = (
            not os.listdir(path)
            if path.is_dir()
            else path.name == LOCK and path.stat().st_size == 0
        )
        return empty or is_aside(path)
    except FileNotFoundError:
        return True


def _is_marked(folder: Path, mark: BeginMark) -> bool:
    try:
        value = json.loads(read_regular(folder / mark.name, limit=MOST, follow=False))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and mark.field in value


# --------------------------------------------------------------------------------------------------
# Marks that prove that a folder is one folder: a process leaves one, and whoever else sees its word
# shares the folder.


PATIENCE = 10.0  # seconds: a network's file system shows new files late


class Mark(NamedTuple):
    """A small file whose name and word nobody can guess: a folder that is only called the same does
    not hold it."""

    name: str
    word: str

    def stands_in(self, folder: Path) -> bool:
        try:
            return (
                read_regular(folder / self.name, limit=len(self.word), follow=False)
                == self.word.encode()
            )
        except OSError:
            return False

    def remove(self, folder: Path) -> None:
        (folder / self.name).unlink(missing_ok=True)


def leave_mark(folder: Path) -> Mark:
    """A new mark in the folder, which is made if it is not there."""
    mark = Mark(f".shared-{secrets.token_hex(8)}", secrets.token_hex(16))
    with explained("write to", folder, hint="choose another place with --out", kind=BadInput):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / mark.name, mark.word, flush=False)
    return mark


def unseen(folder: Path, marks: Sequence[Mark], patience: float = PATIENCE) -> list[int]:
    """The numbers of the marks that do not appear in the folder within `patience` seconds."""
    deadline, missing = time.monotonic() + patience, list(range(len(marks)))
    while missing := [number for number in missing if not marks[number].stands_in(folder)]:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.1)
    return missing
