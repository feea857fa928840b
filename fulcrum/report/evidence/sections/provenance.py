"""Where the numbers come from: for each study its plan, command, cells, pairs, versions, machines and dates."""

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath

from fulcrum.judge import schema as certainty
from fulcrum.judge import schema as number
from fulcrum.judge.schema import StudyResult
from fulcrum.judge.tables import Table
from fulcrum.report.evidence.decisions.known_studies import Studies, ordered
from fulcrum.report.evidence.page_text import notes_by_names


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
    """Every kind of machine that cells ran on, with its versions, and how many cells of which study."""
    ran: dict[str, list[str]] = {}
    for name, result in ordered(studies).items():
        for line in certainty.machines(result) or [result.made.machine]:
            kind, cells = re.sub(r" \(\d+ cells?\)$", "", line), re.findall(r" \(\d+ cells?\)$", line)
            ran.setdefault(kind, []).append("".join([name, *cells]))
    return [f"{kind}: {', '.join(names)}" for kind, names in ran.items()]


def remarks(studies: Studies) -> list[str]:
    """What studies remark on their own arms, each once with all that it is about."""
    noted = list[tuple[str, list[str]]]()
    for result in ordered(studies).values():
        roots = {arm.name: arm.root for arm in (*result.arms, *result.combinations)}
        for remark in result.remarks:
            noted += [(arm, [text]) for arm, text in _about(remark, roots)]
    return [
        f"{', '.join(names)}: {text}" if names != [""] else text for names, texts in notes_by_names(noted) for text in texts
    ]


def _about(remark: str, roots: Mapping[str, str]) -> list[tuple[str, str]]:
    """Which arms a remark is about, and what it says of each; an arm at several scales is one."""
    if loss := re.fullmatch(r"The validation loss of (.+) is not compared: (.+)", remark):
        arms = loss[1].split(", ")
        if all(arm in roots for arm in arms):
            return [(roots[arm], f"the validation loss is not compared: {loss[2]}") for arm in arms]
    for arm in sorted(roots, key=len, reverse=True):
        rest = remark.removeprefix(arm)
        if rest != remark and rest[:1] in (":", " ") and not rest.startswith(" and "):
            return [(roots[arm], rest.lstrip(": "))]
    return [("", remark)]
