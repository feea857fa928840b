"""What studies of ours, and of the user, found about the levers that rules speak of; beside what was published."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fulcrum.files.paths import read_regular
from fulcrum.levers.measured_table import read_measured

MOST = 64_000_000  # bytes of a report that are read
ALONE = re.compile(r"^(\w+)\([^()]*\)$")  # a lever with settings, and nothing beside it


class OwnEvidence(NamedTuple):
    """Sentences by lever."""

    sentences: Mapping[str, tuple[str, ...]]

    def of(self, lever: str) -> tuple[str, ...]:
        return self.sentences.get(lever, ())


NO_EVIDENCE = OwnEvidence({})


def own_evidence(studies: Path, measured: Path, levers: Iterable[str]) -> OwnEvidence:
    """From the reports of finished studies below a folder, and from the table of what we measured."""
    wanted = {lever for lever in levers if lever}
    sentences: dict[str, list[str]] = {lever: [] for lever in wanted}
    for report in sorted(studies.glob("study-*/report.json")) if studies.is_dir() else ():
        for lever, sentence in _from_report(report, wanted):
            sentences[lever].append(sentence)
    rows = read_measured(measured)
    newest = max((row["science"] for row in rows), default=0)
    for row in rows:
        if row["lever"] in wanted and row["science"] == newest:
            effect = f"{row['metric']} {row['change']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]"
            sentences[row["lever"]].append(
                f"measured by us: {effect} on {row['recipe']}, {row['pairs']} pairs: {row['verdict']}"
            )
    return OwnEvidence({lever: tuple(some) for lever, some in sentences.items()})


def _from_report(path: Path, wanted: set[str]) -> list[tuple[str, str]]:
    """Effects on the primary metric of arms that are one of the levers alone."""
    try:
        report = json.loads(read_regular(path, limit=MOST))
        primary = report["plan"]["primary_metric"]
        plain = {arm["name"] for arm in report["arms"] if not arm["against"]}  # held against the study's baseline
        rows = [row for row in report["effects"] if row["metric"] == primary and row.get("unit", "images") == "images"]
        return [
            (
                lever,
                f"your study {path.parent.name}: {primary} {row['mean']:+.3g} [{row['low']:+.3g}, "
                f"{row['high']:+.3g}], {row['n']} pairs: {row['verdict']}",
            )
            for row in rows
            if row["arm"] in plain and (lever := ALONE.sub(r"\1", str(row["arm"]))) in wanted
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
