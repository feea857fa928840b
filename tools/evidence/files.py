"""The evidence page on disk: the page with its pictures, the README's opening, and the rows of the
levers' pages."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fulcrum.advice import decisions as measured_rows
from fulcrum.advice.decisions import Studies
from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import read_regular
from fulcrum.levers.measured_table import FIELDS, NAME, SCOPE_FIELDS, read_measured
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import SCIENCE
from tools.evidence import page as conclusion
from tools.evidence import page as evidence_page

MOST_BYTES = 5_000_000  # of all files together: the page is cloned with the code


def contents(
    studies: Studies, folder: Path, readme: Path | None = None, levers: Path | None = None
) -> dict[Path, str | bytes]:
    """Path -> what belongs there: the page and its pictures in `folder`, the opening of `readme`,
    the measured rows in the folder `levers`, which is fulcrum/levers here. The same studies give
    the same bytes."""
    files: dict[Path, str | bytes] = {
        folder / name: content for name, content in evidence_page.files(studies).items()
    }
    total = sum(len(content) for content in files.values())
    if total > MOST_BYTES:
        raise BadInput(
            f"the page and its pictures take {total:,} bytes, and {MOST_BYTES:,} are what a clone"
            " should carry",
            "keep studies with fewer arms or pictures, or show fewer prompts"
            " (tools/evidence/words.py)",
        )
    if readme is not None:
        link = Path(os.path.relpath(folder, readme.parent)).as_posix()
        files[readme] = conclusion.replaced(
            read_regular(readme).decode(), conclusion.opening(studies, link)
        )
    if levers is not None:
        path = levers / NAME
        rows = measured_rows.merged(
            read_measured(path), measured_rows.rows(studies, SCIENCE), SCIENCE
        )
        files[path] = rows_text(rows)
    return files


def write(
    studies: Studies, folder: Path, readme: Path | None = None, levers: Path | None = None
) -> list[Path]:
    """Write what differs from what is there, and return where."""
    files = contents(studies, folder, readme, levers)  # nothing is touched if this fails
    folder.mkdir(parents=True, exist_ok=True)
    changed = [path for path, content in files.items() if not _is_there(path, content)]
    for path in changed:
        write_atomic(path, files[path])
    return changed


def rows_text(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each row, its fields in their order: what changed can be read in a diff."""
    ordered = (
        {name: row[name] for name in (*FIELDS, *SCOPE_FIELDS) if name in row} for row in rows
    )
    lines = (json.dumps(row, ensure_ascii=False) for row in ordered)
    return "[\n " + ",\n ".join(lines) + "\n]\n"


def _is_there(path: Path, content: str | bytes) -> bool:
    return path.is_file() and read_regular(path) == (
        content.encode() if isinstance(content, str) else content
    )
