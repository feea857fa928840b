"""What studies of ours, and of the user, found about the arms that rules speak of; beside what was published."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.paths import read_regular
from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.measured_table import read_measured
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import read_lever
from fulcrum.spec.run import SCIENCE

MOST = 64_000_000  # bytes of a report that are read


class OwnEvidence(NamedTuple):
    """Sentences by what a rule names: a lever, or one of its settings."""

    sentences: Mapping[str, tuple[str, ...]]

    def of(self, lever: str) -> tuple[str, ...]:
        return self.sentences.get(lever, ())


NO_EVIDENCE = OwnEvidence({})


def own_evidence(studies: Path, measured: Path, levers: Iterable[str]) -> OwnEvidence:
    """From the reports of finished studies below a folder, and from the table of what we measured. Each sentence names its
    arm, for a lever has as many effects as settings; a rule that names a setting hears of no other."""
    told = list[tuple[str, str]]()
    for report in sorted(studies.glob("study-*/report.json")) if studies.is_dir() else ():
        told += _from_report(report)
    told += _from_table(read_measured(measured))
    wanted = {lever: read_lever(lever, CATALOG) for lever in levers if lever}
    return OwnEvidence(
        {lever: tuple(sentence for arm, sentence in told if _is_of(read, arm, lever)) for lever, read in wanted.items()}
    )


def _is_of(wanted: Any, arm: str, lever: str) -> bool:
    """Does the arm have the lever, with every setting that is named? One that cannot be read any more is known by name."""
    if arm.partition("(")[0] != wanted.name:
        return False
    try:
        own = read_lever(arm, CATALOG)
    except BadInput:
        return "(" not in lever
    return all(getattr(own, name) == getattr(wanted, name) for name in wanted.model_fields_set)


def _from_table(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Arm and sentence of the rows of the newest science that there is."""
    newest = max((row["science"] for row in rows), default=0)
    older = f"; by version {newest} of the science, now {SCIENCE}" if newest != SCIENCE else ""
    told = []
    for row in rows:
        arm, settings = row.get("arm") or row["lever"], row.get("settings") or ()
        place = (row.get("base") or row["recipe"]) + (f" with {', '.join(settings)}" if settings else "")
        effect = f"{row['metric']} {row['change']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]"
        sentence = f"measured by us: {arm} on {place}: {effect}, {row['pairs']} pairs: {row['verdict']}{older}"
        told += [(arm, sentence)] if row["science"] == newest else []
    return told


def _from_report(path: Path) -> list[tuple[str, str]]:
    """Effects on the primary metric of arms that are one lever alone."""
    try:
        report = json.loads(read_regular(path, limit=MOST))
        primary = report["plan"]["primary_metric"]
        plain = {arm["name"] for arm in report["arms"] if not arm["against"]}  # held against the study's baseline
        rows = [row for row in report["effects"] if row["metric"] == primary and row.get("unit", "images") == "images"]
        return [
            (
                str(row["arm"]),
                f"your study {path.parent.name}: {row['arm']}: {primary} {row['mean']:+.3g} [{row['low']:+.3g}, "
                f"{row['high']:+.3g}], {row['n']} pairs: {row['verdict']}",
            )
            for row in rows
            if row["arm"] in plain and " + " not in str(row["arm"])
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
