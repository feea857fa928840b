"""A table of scores: how well each picture of a store fits its caption, by whatever the user trusts.

# store 1f0c...            the content hash of the store, if the table says it; then it must be that of this one
row,score                  row: the number of the picture in the store, from 0; score: higher fits better
0,27.1
1,14.9
"""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.store.picture_store import PictureStore
from fulcrum.data.store.remote_store import local_folder
from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import read_regular, refusal
from fulcrum.spec.errors import BadInput

HEADER, STORE = ["row", "score"], "# store "


def read_scores(path: Path, count: int, content: str) -> NDArray[np.float64]:
    """(count,) the score of each picture of a store, nan where the table has none; nothing doubtful is accepted."""
    hint = "a table has the header row,score and a line for each picture: fulcrum data score writes one"
    try:
        lines = read_regular(path).decode("utf-8").splitlines()
    except OSError as error:
        raise refusal(error, f"the scores {path} cannot be read", hint=hint, kind=BadInput) from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is no text", hint) from None
    if lines and lines[0].startswith(STORE):
        named = lines.pop(0).removeprefix(STORE).strip()
        if named != content:
            raise BadInput(
                f"{path} holds scores of another store, {named[:16]}: this one is {content[:16]}", "score it anew"
            )
    table = csv.reader(lines)
    if next(table, None) != HEADER:
        raise BadInput(f"{path} does not begin with 'row,score'", hint)
    scores = np.full(count, np.nan)
    for number, line in enumerate(table, 2):
        row, score = _pair(line)
        if row is None or not 0 <= row < count or not math.isfinite(score):
            raise BadInput(f"{path}, line {number}: expected a row from 0 to {count - 1} and a number, found {line}", hint)
        if not np.isnan(scores[row]):
            raise BadInput(f"{path}, line {number}: row {row} is scored twice", hint)
        scores[row] = score
    return scores


def _pair(line: list[str]) -> tuple[int | None, float]:
    try:
        row, score = line
        return int(row), float(score)
    except ValueError:
        return None, math.nan


def write_scores(path: Path, scores: dict[int, float], about: dict[str, Any]) -> None:
    rows = [f"{row},{score:.6g}" for row, score in sorted(scores.items())]
    write_atomic(path, "\n".join([STORE + about["content"], ",".join(HEADER), *rows, ""]).encode())


def require_scored(filler: Any) -> int:
    """How many training pictures a filtered folder has before its filter; refused where one of them has no score."""
    store = PictureStore(local_folder(filler.path), verify=False)
    rows = store.split("train")[: filler.count]
    missing = np.flatnonzero(np.isnan(filler.row_scores()[rows]))
    if len(missing):
        name = store.name(int(rows[missing[0]]))
        raise BadInput(
            f"{filler.scores} has no score for {len(missing):,} of {len(rows):,} training pictures, such as row "
            f"{rows[missing[0]]}, {name}",
            "score every picture that is trained on: fulcrum data score writes such a table",
        )
    return len(rows)
