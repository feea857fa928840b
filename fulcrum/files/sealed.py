"""Hashes, JSON files sealed with a checksum, and JSON-lines records."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.atomic import atomic_file, write_atomic, write_json
from fulcrum.files.paths import (
    is_full,
    naming,
    open_regular,
    read_regular,
    reason,
    refusal,
    set_aside,
)
from fulcrum.spec.errors import BadInput, FulcrumError

# --------------------------------------------------------------------------------------------------
# SHA-256 of bytes, files and JSON values, as hexadecimal digits: what names and verifies everything
# on disk.


DIGITS = 64  # of a whole hash; the first 32 name cache entries


def sha256_bytes(data: bytes | bytearray | memoryview, digits: int = DIGITS) -> str:
    """The first `digits` of the hash of some bytes."""
    return hashlib.sha256(data).hexdigest()[:digits]


def sha256_text(text: str, digits: int = DIGITS) -> str:
    """Of a text in UTF-8."""
    return sha256_bytes(text.encode(), digits)


def sha256_json(value: object, digits: int = DIGITS) -> str:
    """Of a JSON value, whatever the order of its keys. Names and seals of old files use this
    spelling: it never changes."""
    return sha256_text(json.dumps(value, sort_keys=True), digits)


def sha256_file(path: Path) -> str:
    """Of a plain file, read block by block; a link to one is followed, as the hub's cache is made
    of them."""
    with open(open_regular(path, follow=True), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --------------------------------------------------------------------------------------------------
# JSON files, read with care, and sealed ones: with a checksum of their content, so that a change by
# hand is found.
#
# The checksum stands in the field `check`; stores call it `seal`.


CHECK, SEAL = "check", "seal"
# bytes of a JSON file, unless told: what is longer is none of ours, and would fill the memory
MOST = 1 << 28


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
    """The object with its checksum; `kind` with `hint` if it cannot be read or the checksum does
    not fit. `fields` must be there, each of its type: anybody can seal anything."""
    value = read_json(path, hint, kind=kind, limit=limit)
    if not is_intact(value, field):
        raise kind(f"{path} was changed after it was written: its checksum does not fit", hint)
    for name, expected in (fields or {}).items():
        if not isinstance(value.get(name), expected):
            found = f"found {type(value[name]).__name__}" if name in value else "it is not there"
            raise kind(
                f"{path} is not what is kept under this name: expected {expected.__name__}"
                f" {name!r}, {found}",
                hint,
            )
    return value


def read_json(
    path: Path,
    hint: str,
    *,
    kind: type[FulcrumError] = BadInput,
    limit: int = MOST,
) -> dict[str, Any]:
    """A JSON object; whatever else stands there (nothing, a pipe, bad bytes, 200,000 brackets) is
    `kind` with `hint`."""
    try:
        # bytes: a mark of UTF-8 is no part of it
        value = json.loads(read_regular(path, limit=limit, follow=True))
    except (OSError, ValueError, RecursionError) as error:
        raise kind(f"{path} cannot be read: {error}", hint) from None
    if not isinstance(value, dict):
        raise kind(f"{path} holds no JSON object", hint)
    return value


# --------------------------------------------------------------------------------------------------
# Files of JSON lines that grow while a run goes on: appended to safely; when read, a bad line is
# named and skipped.


MOST_FAULTS = 20  # bad lines that are named one by one
TAIL = 4096  # bytes of a record's end: a dozen lines, however long it is


class Line(NamedTuple):
    number: int  # from 1
    text: bytes  # without the line's end
    value: dict[str, Any] | None  # None: it is no JSON object
    fault: str  # why not; empty for a good line


class Records(NamedTuple):
    path: Path
    lines: list[Line]
    cut: bool  # the last line has no end: its writer was killed, or is writing now

    @property
    def values(self) -> list[dict[str, Any]]:
        """The good lines."""
        return [line.value for line in self.lines if line.value is not None]

    @property
    def faults(self) -> list[str]:
        """The bad lines, each in one sentence."""
        return [_sentence(self.path, line) for line in self.lines if line.value is None]

    def require_good(self, hint: str) -> list[dict[str, Any]]:
        """All values, or the first bad line as an error; only a last line that was cut off is
        passed over."""
        for line in self.lines[: len(self.lines) - self.cut]:
            if line.value is None:
                raise BadInput(_sentence(self.path, line), hint)
        return self.values


def parse_line(text: bytes, number: int = 1) -> Line:
    """One line; whatever it holds is no error."""
    try:
        value = json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        return Line(number, text, None, str(error))
    if not isinstance(value, dict):
        return Line(number, text, None, f"expected a JSON object, found {text.decode()[:60]!r}")
    return Line(number, text, value, "")


def read_records(path: Path) -> Records:
    """All lines; a file that is not there has none. An OSError for what is no plain file."""
    try:
        content = read_regular(path, follow=False)
    except FileNotFoundError:
        return Records(path, [], False)
    return Records(path, list(_lines(content)), not content.endswith(b"\n") and bool(content))


def each_record(path: Path) -> Iterator[Line]:
    """The same lines one by one: a record of weeks need not fit into memory."""
    try:
        handle = open_regular(path)
    except FileNotFoundError:
        return
    with open(handle, "rb") as stream:
        for number, text in enumerate(stream, start=1):
            yield parse_line(text.removesuffix(b"\n"), number)


def read_tail(path: Path, size: int = TAIL) -> list[dict[str, Any]]:
    """The good lines among the last `size` bytes; none where nothing can be read."""
    try:
        with open(open_regular(path), "rb") as stream:
            length = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, length - size))
            texts = stream.read().split(b"\n")[
                :-1
            ]  # after the last line's end stands a line that is being written, or nothing
    except OSError:
        return []
    whole = texts[1:] if length > size else texts
    return [line.value for line in map(parse_line, whole) if line.value is not None]


def append_records(path: Path, *values: Mapping[str, Any]) -> None:
    """Add lines at the end, in one write; after a line that was cut off they begin anew."""
    lines = "".join(json.dumps(value) + "\n" for value in values).encode()
    handle = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        with naming(path):
            length = os.fstat(handle).st_size
            cut = length > 0 and os.pread(handle, 1, length - 1) != b"\n"
            _write(handle, b"\n" + lines if cut else lines)
    finally:
        os.close(handle)


def append_bytes(path: Path, data: bytes) -> None:
    """Add bytes at the end of a plain file that is made if it is not there."""
    handle = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        with naming(path):
            _write(handle, data)
    finally:
        os.close(handle)


def write_block(path: Path, head: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> None:
    """Write lines behind a head that states their number and hash: whole or absent."""
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    head = {**head, "lines": len(lines), "sha256": sha256_bytes(body)}
    write_atomic(path, json.dumps(head).encode() + b"\n" + body)


def read_block(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """The head and the lines of a block; None if they do not have their hash."""
    first, _, body = path.read_bytes().partition(b"\n")
    head = parse_line(first).value or {}
    if sha256_bytes(body) != head.get("sha256"):
        return None
    return head, [json.loads(line) for line in body.splitlines()]


def keep_records(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> list[str]:
    """Write a record anew with the lines that are `wanted`, byte for byte; returns what was wrong
    with it, in sentences.

    Bad lines go. What is no plain file is set aside, so that a run can go on from its checkpoint.
    """
    faults, bad = list[str](), 0
    with atomic_file(path, flush=False) as kept:
        for line in _until_unreadable(path, faults):
            if line.value is None:
                bad += 1
                faults += [_sentence(path, line)] if bad <= MOST_FAULTS else []
            elif wanted(line.value):
                kept.write(line.text + b"\n")
    return faults + (
        [f"{bad - MOST_FAULTS:,} more lines of {path} cannot be read"] if bad > MOST_FAULTS else []
    )


def _until_unreadable(path: Path, faults: list[str]) -> Iterator[Line]:
    """Lines of a record; where there are none to be had it is set aside, and `faults` say so."""
    try:
        yield from each_record(path)
    except OSError as error:
        faults.append(
            f"{path} cannot be read: {reason(error)}; set aside as {set_aside(path).name}"
        )


def _sentence(path: Path, line: Line) -> str:
    return f"line {line.number} of {path} cannot be read: {line.fault}"


def _lines(content: bytes) -> Iterator[Line]:
    texts = content.split(b"\n")
    for number, text in enumerate(texts[:-1] if not texts[-1] else texts, start=1):
        yield parse_line(text, number)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
