"""Where the numbers come from: for each study its plan, command, cells, pairs, versions, machines and dates."""

import shlex
from pathlib import PurePath

from fulcrum.report.evidence.known_studies import Studies, ordered
from fulcrum.report.schema import StudyResult
from fulcrum.report.table import Table
from fulcrum.report.wording import certainty, number


def command(result: StudyResult) -> str:
    """What a person types to run it again, without where someone else's machine keeps things."""
    try:
        words = shlex.split(result.made.command)
    except ValueError:  # a quote that is never closed: shown as it is
        return result.made.command
    kept, skip = list[str](), False
    for word in words:
        if not skip and word != "--out" and not word.startswith("--out="):
            kept.append(PurePath(word).name if word.startswith("/") else word)
        skip = word == "--out"
    return shlex.join(kept)


def study_table(studies: Studies) -> Table:
    rows = tuple(
        (
            name,
            result.plan.hash,
            command(result),
            _pairs(result),
            f"{result.progress.done} of {result.progress.total}"
            + (f", {result.progress.failed} failed" if result.progress.failed else ""),
            f"{result.plan.images:,}",
            result.plan.learning_rate_policy,
            f"Fulcrum {result.made.version}",
            result.made.date,
        )
        for name, result in ordered(studies).items()
    )
    columns = ("study", "plan", "command", "pairs", "cells", "images", "learning rates", "made by", "last")
    return Table("Every study that stands on this page", columns, rows, (0, 1, 2, 6, 7, 8))


def _pairs(result: StudyResult) -> str:
    pairs = sorted({row.n for arm in result.compared if (row := result.effect(arm.name, result.primary.name)) and row.n})
    return number.NONE if not pairs else str(pairs[0]) if not pairs[1:] else f"{pairs[0]} to {pairs[-1]}"


def machines(studies: Studies) -> list[str]:
    """Every kind of machine that cells ran on, with its versions, study by study."""
    return [
        f"{name}: {'; '.join(certainty.machines(result)) or result.made.machine}"
        for name, result in ordered(studies).items()
    ]
