"""JSON files, read with care, and sealed ones: with a checksum of their content, so that a change by hand is found.

The checksum stands in the field `check`; stores call it `seal`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fulcrum.files.atomic import write_json
from fulcrum.files.hashes import sha256_json
from fulcrum.files.paths import read_regular
from fulcrum.files.refusals import is_full, refusal
from fulcrum.spec.errors import BadInput, FulcrumError

CHECK, SEAL = "check", "seal"
MOST = 1 << 28  # bytes of a JSON file, unless told: what is longer is none of ours, and would fill the memory


def seal(value: Mapping[str, Any], field: str = CHECK) -> str:
    """The checksum of all fields but the one that holds it."""
    return sha256_json({name: item for name, item in value.items() if name != field})


def sealed(value: Mapping[str, Any], field: str = CHECK) -> dict[str, Any]:
    """The value with its checksum."""
    return {**value, field: seal(value, field)}


def is_intact(value: Mapping[str, Any], field: str = CHECK) -> bool:
    """Does the checksum fit? One that is missing does not."""
    try:
        return bool(value.get(field) == seal(value, field))
    except RecursionError:  # nested so deep that it could just be read
        return False


def write_sealed(path: Path, value: Mapping[str, Any], field: str = CHECK) -> None:
    """Whole or not at all; a full disk is named as what it is."""
    try:
        write_json(path, sealed(value, field))
    except OSError as error:
        again = "start the same command again: what is finished is kept"
        hint = f"make room and {again}" if is_full(error) else again
        raise refusal(error, f"could not write {path.name}", hint=hint) from error


def read_sealed(
    path: Path,
    hint: str,
    field: str = CHECK,
    *,
    kind: type[FulcrumError] = BadInput,
    limit: int = MOST,
    fields: Mapping[str, type] | None = None,
) -> dict[str, Any]:
    """The object with its checksum; `kind` with `hint` if it cannot be read or the checksum does not fit. `fields` must be
    there, each of its type: anybody can seal anything."""
    value = read_json(path, hint, kind=kind, limit=limit)
    if not is_intact(value, field):
        raise kind(f"{path} was changed after it was written: its checksum does not fit", hint)
    for name, expected in (fields or {}).items():
        if not isinstance(value.get(name), expected):
            found = f"found {type(value[name]).__name__}" if name in value else "it is not there"
            raise kind(f"{path} is not what is kept under this name: expected {expected.__name__} {name!r}, {found}", hint)
    return value


def read_json(
    path: Path, hint: str, *, kind: type[FulcrumError] = BadInput, limit: int = MOST, follow: bool = True
) -> dict[str, Any]:
    """A JSON object; whatever else stands there (nothing, a pipe, bad bytes, 200,000 brackets) is `kind` with `hint`."""
    try:
        value = json.loads(read_regular(path, limit=limit, follow=follow))  # bytes: a mark of UTF-8 is no part of it
    except (OSError, ValueError, RecursionError) as error:
        raise kind(f"{path} cannot be read: {error}", hint) from None
    if not isinstance(value, dict):
        raise kind(f"{path} holds no JSON object", hint)
    return value
