"""Sealed files: JSON with a checksum of its content, so that a number changed by hand is found and never used."""

import errno
import hashlib
import json
from pathlib import Path
from typing import Any

from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.train.run_folder import read_json, write_json

HINT = "remove the file and run the study again: it is measured anew from the saved weights"


def seal(value: dict[str, Any]) -> str:
    text = json.dumps({name: item for name, item in value.items() if name != "check"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    """Whole or not at all; a full disk is said as what it is."""
    try:
        write_json(path, {**value, "check": seal(value)})
    except OSError as error:
        first = "make room and " if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""
        raise RunFailed(
            f"could not write {path.name}: {error.strerror}",
            f"{first}start the same command again: what is finished is kept",
        ) from error


def read_sealed(path: Path, hint: str = HINT) -> dict[str, Any]:
    found = read_json(path, hint)
    if found.get("check") != seal(found):
        raise BadInput(f"{path} was changed after it was written: its checksum does not fit", hint)
    return found
