"""Marks that prove that a folder is one folder: a process leaves one, and whoever else sees its word shares the folder."""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import read_regular
from fulcrum.files.refusals import explained
from fulcrum.spec.errors import BadInput

PATIENCE = 10.0  # seconds: a network's file system shows new files late


class Mark(NamedTuple):
    """A small file whose name and word nobody can guess: a folder that is only called the same does not hold it."""

    name: str
    word: str

    def stands_in(self, folder: Path) -> bool:
        try:
            return read_regular(folder / self.name, limit=len(self.word), follow=False) == self.word.encode()
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
