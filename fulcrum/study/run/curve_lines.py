"""The lines that a cell writes as it trains, held to the hashes that were taken when it was measured.

Until then every line of its curve carries a checksum of itself and of all lines before it.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import explained, open_regular
from fulcrum.files.sealed import append_records, parse_line, seal
from fulcrum.spec.errors import BadInput

CURVE = "curve.jsonl"
NUMBERS = {CURVE: ("images", "seconds", "validation_loss"), "record.jsonl": ("images", "loss")}

HINT = "put it back as it was, or remove the run with 'fulcrum runs rm' and run the study again: it is trained anew"


class _Content(NamedTuple):
    sha256: str
    lines: int
    last: bytes  # line; while it is written, a part of one


def write_curve(folder: Path, lines: Sequence[Mapping[str, Any]]) -> str:
    """A curve from its beginning on; returns the checksum of its last line."""
    checked, last = list[dict[str, Any]](), ""
    for line in lines:
        last = _check(folder, line, last)
        checked.append({**line, "check": last})
    write_atomic(folder / CURVE, "".join(json.dumps(line) + "\n" for line in checked), flush=False)
    return last


def append_to_curve(folder: Path, line: Mapping[str, Any], last: str) -> str:
    """`last` is the checksum of the line before, empty for the first; returns that of this one."""
    check = _check(folder, line, last)
    append_records(folder / CURVE, {**line, "check": check})
    return check


def hashes(folder: Path) -> dict[str, str]:
    """Of a run that has ended: nothing is written to these files any more."""
    return {name: _look(folder / name, flush=True).sha256 for name in NUMBERS}


def require_unchanged(folder: Path, measured: Mapping[str, Any]) -> None:
    """A cell that was not `measured` is held to the checksums in its curve."""
    for name in NUMBERS:
        _require(folder / name, _look(folder / name), measured)
    if CURVE not in _hashes_in(measured):
        read_lines(folder / CURVE, None)


def read_lines(path: Path, measured: Mapping[str, Any] | None, most: int | None = None) -> list[dict[str, Any]]:
    """Lines of a file of `NUMBERS`, thinned to about `most`, the last always among them.

    Those of a cell that was not `measured` may still be written to, so its last line may be cut off.
    """
    seen = _look(path)
    _require(path, seen, measured or {})
    step = max(-(-seen.lines // most), 1) if most else 1
    first = max(seen.lines - 1, 0) % step
    cut = not (seen.last.startswith(b"{") and seen.last.endswith(b"}"))
    texts = islice(_texts(path), first, max(seen.lines - cut, 0), step)
    lines = [_line(path, first + place * step, text) for place, text in enumerate(texts)]
    if path.name == CURVE and path.name not in _hashes_in(measured or {}):
        _require_chain(path, lines)
    return lines


def _require_chain(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Curves that were begun before lines had checksums have none at all."""
    last = ""
    for place, line in enumerate(lines if any("check" in line for line in lines) else ()):
        if line.get("check") != _check(path.parent, line, last):
            raise BadInput(f"line {place + 1} of {path} was changed after it was written: its checksum does not fit", HINT)
        last = line["check"]


def _check(folder: Path, line: Mapping[str, Any], last: str) -> str:
    """The folder is the cell's key: a curve does not fit into another cell."""
    return seal({**line, "after": [folder.name, last]})[:16]


def _line(path: Path, place: int, text: bytes) -> dict[str, Any]:
    line, needed = parse_line(text).value, NUMBERS[path.name]
    if line is None or not all(isinstance(line.get(name), int | float) for name in needed):
        raise BadInput(
            f"line {place + 1} of {path} cannot be read: expected a JSON object with the numbers "
            f"{', '.join(needed)}, found {text.decode(errors='replace')[:60]!r}",
            HINT,
        )
    return line


def _require(path: Path, seen: _Content, measured: Mapping[str, Any]) -> None:
    """Cells that were measured before hashes were taken have none."""
    expected = _hashes_in(measured).get(path.name)
    if expected is not None and seen.sha256 != expected:
        raise BadInput(f"{path} was changed after the cell was measured: its checksum does not fit", HINT)


def _hashes_in(measured: Mapping[str, Any]) -> Mapping[str, Any]:
    hashes = measured.get("lines", {})
    if not isinstance(hashes, dict):
        raise BadInput(f"what was measured holds no hashes of lines but {repr(hashes)[:60]}", HINT)
    return hashes


def _look(path: Path, flush: bool = False) -> _Content:
    """What a file holds, read line by line: a record of weeks is large. Flushed, it outlasts a power cut with its hash."""
    digest, lines, last = hashlib.sha256(), 0, b""
    for text in _texts(path, flush, ends=True):
        digest.update(text)
        lines, last = lines + 1, text
    return _Content(digest.hexdigest(), lines, last.rstrip(b"\r\n"))


def _texts(path: Path, flush: bool = False, ends: bool = False) -> Iterator[bytes]:
    """Its lines, with their `ends` if they are asked for; a file that is not there has none."""
    if not os.path.lexists(path):
        return
    with explained("read", path, hint=HINT, kind=BadInput), open(open_regular(path), "rb") as stream:
        if flush:
            os.fsync(stream.fileno())
        for text in stream:
            yield text if ends else text.rstrip(b"\r\n")
