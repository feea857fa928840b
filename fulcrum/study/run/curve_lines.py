"""The lines that a cell writes as it trains, held to the hashes that were taken when it was measured.

Until then every line of its curve carries a checksum of itself and of all lines before it.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fulcrum.spec.errors import BadInput
from fulcrum.study.sealed import seal

CURVE = "curve.jsonl"
NUMBERS = {CURVE: ("images", "seconds", "validation_loss"), "record.jsonl": ("images", "loss")}
HINT = "put it back as it was, or remove the run with 'fulcrum runs rm' and run the study again: it is trained anew"


def write_curve(folder: Path, lines: Sequence[Mapping[str, Any]]) -> str:
    """A curve from its beginning on; returns the checksum of its last line."""
    aside, last = folder / f".{CURVE}", ""
    with aside.open("w") as stream:
        for line in lines:
            last = _write(stream, folder, line, last)
    aside.replace(folder / CURVE)
    return last


def append_to_curve(folder: Path, line: Mapping[str, Any], last: str) -> str:
    """`last` is the checksum of the line before, empty for the first; returns that of this one."""
    with (folder / CURVE).open("a") as stream:
        return _write(stream, folder, line, last)


def _write(stream: IO[str], folder: Path, line: Mapping[str, Any], last: str) -> str:
    check = _check(folder, line, last)
    stream.write(json.dumps({**line, "check": check}) + "\n")
    return check


def hashes(folder: Path) -> dict[str, str]:
    """Of a run that has ended: nothing is written to these files any more."""
    return {name: hashlib.sha256(_content(folder / name, flush=True)).hexdigest() for name in NUMBERS}


def require_unchanged(folder: Path, measured: Mapping[str, Any]) -> None:
    """A cell that was not `measured` is held to the checksums in its curve."""
    for name in NUMBERS:
        _require(folder / name, _content(folder / name), measured)
    if CURVE not in measured.get("lines", {}):
        read_lines(folder / CURVE, None)


def read_lines(path: Path, measured: Mapping[str, Any] | None, most: int | None = None) -> list[dict[str, Any]]:
    """Lines of a file of `NUMBERS`, thinned to about `most`, the last always among them.

    Those of a cell that was not `measured` may still be written to, so its last line may be cut off.
    """
    content = _content(path)
    _require(path, content, measured or {})
    texts = content.decode(errors="replace").splitlines()
    step = -(-len(texts) // most) if most else 1
    kept = range((len(texts) - 1) % step, len(texts), step) if texts else range(0)
    try:
        found = json.loads(f"[{','.join(texts[k] for k in kept)}]")
    except (ValueError, RecursionError):
        found = []
    needed = NUMBERS[path.name]
    if len(found) == len(kept) and all(_whole(line, needed) for line in found):
        lines: list[dict[str, Any]] = found
    else:
        lines = [_line(path, k, texts[k], needed) for k in kept if k < len(texts) - 1 or _ended(texts[k])]
    if path.name == CURVE and path.name not in (measured or {}).get("lines", {}):
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


def _line(path: Path, place: int, text: str, needed: tuple[str, ...]) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not _whole(found, needed):
        raise BadInput(
            f"line {place + 1} of {path} cannot be read: expected a JSON object with the numbers "
            f"{', '.join(needed)}, found {text[:60]!r}",
            HINT,
        )
    line: dict[str, Any] = found
    return line


def _whole(line: Any, needed: tuple[str, ...]) -> bool:
    return isinstance(line, dict) and all(isinstance(line.get(name), int | float) for name in needed)


def _ended(text: str) -> bool:
    return text.startswith("{") and text.endswith("}")


def _require(path: Path, content: bytes, measured: Mapping[str, Any]) -> None:
    """Cells that were measured before hashes were taken have none."""
    expected = measured.get("lines", {}).get(path.name)
    if expected is not None and hashlib.sha256(content).hexdigest() != expected:
        raise BadInput(f"{path} was changed after the cell was measured: its checksum does not fit", HINT)


def _content(path: Path, flush: bool = False) -> bytes:
    """A file that is not there has no lines. Flushed, it outlasts a power cut together with its hash."""
    try:
        with path.open("rb") as stream:
            if flush:
                os.fsync(stream.fileno())
            return stream.read()
    except OSError:
        return b""
