"""Files of JSON lines that grow while a run goes on: appended to safely; when read, a bad line is named and skipped."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.atomic import atomic_file
from fulcrum.files.damaged import set_aside
from fulcrum.files.paths import open_regular, read_regular
from fulcrum.files.refusals import naming, reason
from fulcrum.spec.errors import BadInput, FulcrumError

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

    def require_good(self, hint: str, *, kind: type[FulcrumError] = BadInput) -> list[dict[str, Any]]:
        """All values, or the first bad line as an error; only a last line that was cut off is passed over."""
        for line in self.lines[: len(self.lines) - self.cut]:
            if line.value is None:
                raise kind(_sentence(self.path, line), hint)
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


def keep_records(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> list[str]:
    """Write a record anew with the lines that are `wanted`, byte for byte; returns what was wrong with it, in sentences.

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
    return faults + ([f"{bad - MOST_FAULTS:,} more lines of {path} cannot be read"] if bad > MOST_FAULTS else [])


def _until_unreadable(path: Path, faults: list[str]) -> Iterator[Line]:
    """Lines of a record; where there are none to be had it is set aside, and `faults` say so."""
    try:
        yield from each_record(path)
    except OSError as error:
        faults.append(f"{path} cannot be read: {reason(error)}; set aside as {set_aside(path).name}")


def _sentence(path: Path, line: Line) -> str:
    return f"line {line.number} of {path} cannot be read: {line.fault}"


def _lines(content: bytes) -> Iterator[Line]:
    texts = content.split(b"\n")
    for number, text in enumerate(texts[:-1] if not texts[-1] else texts, start=1):
        yield parse_line(text, number)


def _write(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]
