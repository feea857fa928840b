"""What our kept studies measured of the levers: the table that ships with the package, one row for
each comparison."""

import json
from pathlib import Path
from typing import Any

from fulcrum.files.paths import read_regular
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import SCIENCE

# written by `python -m tools.evidence`; rows of an older science stay as they are
NAME = "measured.json"
MEASURED = Path(__file__).with_name(NAME)
FIELDS = (
    "lever",
    "recipe",
    "science",
    "metric",
    "change",
    "low",
    "high",
    "pairs",
    "verdict",
    "date",
    "note",
)
# Rows of before have none of these, or no keys: how the keys of its trainings begin, to know them
# again.
SCOPE_FIELDS = ("arm", "base", "settings", "images", "plan", "time", "flops", "alike", "keys")

WORDS = {
    "better": "better",
    "worse": "worse",
    "tie": "no difference that matters",
    "not learned": "not learned",
}


def read_measured(path: Path = MEASURED) -> list[dict[str, Any]]:
    """The rows of a table; none where there is no file."""
    if not path.is_file():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(read_regular(path))
        fields = [set(row) for row in rows]
    except (ValueError, TypeError, RecursionError):
        raise BadInput(
            f"{path} is no table of measured rows", f"a list of rows with {', '.join(FIELDS)}"
        ) from None
    for found in fields:
        if not set(FIELDS) <= found <= {*FIELDS, *SCOPE_FIELDS}:
            raise BadInput(
                f"{path}: a row has the fields {sorted(found)}",
                f"expected {', '.join(FIELDS)}, and perhaps {', '.join(SCOPE_FIELDS)}",
            )
    return rows


def in_sum(rows: list[dict[str, Any]]) -> str:
    """What our own studies of the present science found of a lever, in a sentence: one that never
    helped is told so."""
    own = [row for row in rows if row["science"] == SCIENCE]
    places: dict[str, list[str]] = {}
    for row in own:
        listed = places.setdefault(WORDS.get(row["verdict"], "undecided"), [])
        listed.append(f"{row['recipe']} ({row['change']:+.2g}, {row['pairs']} pairs)")
    findings = "; ".join(f"{word} on {', '.join(names)}" for word, names in places.items())
    if not own:
        return ""
    return (
        f"In our own studies: {findings}."
        if "better" in places
        else f"It has never helped in our own studies: {findings}."
    )
