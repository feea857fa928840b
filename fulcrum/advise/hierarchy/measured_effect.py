"""One measured effect of one lever, from the table that ships or from a person's own finished studies, in one form."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import t as student

from fulcrum.advice.decisions import all_decisions, lever_of, row_of
from fulcrum.advise.hierarchy.evidence_scope import EvidenceScope, scope_of_base
from fulcrum.files.paths import read_regular
from fulcrum.judge.card import METRICS
from fulcrum.judge.schema import StudyResult
from fulcrum.levers.measured_table import read_measured
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE
from fulcrum.training.run_folder import RunFolder

MOST = 64_000_000  # bytes of a report that are read
SHIPPED = "docs/evidence"
SMALLEST_ERROR = 1e-3  # of an effect, as a share of it: an interval of width zero is rounding, not certainty
NOTHING_LEARNED = ("failed", "not learned")  # verdicts whose numbers say nothing about a lever
SCOPE_OF_PLAN = 4  # fields of a scope that a plan fixes: neither tokens, which a science may change, nor the science
DECIDED = ("better", "worse", "tie")


class MeasuredEffect(NamedTuple):
    lever: str
    arm: str  # with its settings, as a phrase has it
    metric: str
    gain: float  # more is better, whatever the metric
    error: float  # standard error of the gain
    pairs: int
    verdict: str
    scope: EvidenceScope
    time: float | None  # of a step over its baseline's
    flops: float | None
    origin: str  # docs/evidence, or the name of a study of one's own
    plan: str = ""  # hash of the plan that it comes from
    keys: frozenset[str] = frozenset()  # how those of its trainings and its baseline's begin; empty: not known

    @property
    def clear(self) -> bool:
        """Does its 95 % interval exclude zero?"""
        return abs(self.gain) > float(student.ppf(0.975, self.pairs - 1)) * self.error

    def is_same(self, other: "MeasuredEffect") -> bool:
        """Do both tell of the same trainings, or one of some of the other's? Where one does not know its own, they are the
        same if plan, arm and place are; a science says nothing then, as nobody may have written it down."""
        if (self.lever, self.metric) != (other.lever, other.metric):
            return False
        if self.keys and other.keys:
            return self.keys <= other.keys or other.keys <= self.keys
        one, two = ((effect.plan, effect.arm, effect.scope[:SCOPE_OF_PLAN]) for effect in (self, other))
        return bool(self.plan) and one == two


def known_effects(catalogue: Catalogue, out: Path, measured: Path | None = None) -> list[MeasuredEffect]:
    """All that was measured: the table, and the finished studies below `out`. Trainings that stand in both, or under two
    plans, count once, with the more pairs."""
    table = read_measured(measured) if measured is not None else read_measured()
    shipped = [effect_of(row, SHIPPED, catalogue) for row in table]
    own = [effect_of(row, study, catalogue) for study, row in _own_rows(out, catalogue)]
    effects, once = [one for one in (*shipped, *own) if one is not None], dict[int, MeasuredEffect]()
    for place, effect in sorted(enumerate(effects), key=lambda one: (-one[1].pairs, -len(one[1].keys), one[0])):
        if not any(effect.is_same(other) for other in once.values()):
            once[place] = effect
    return [once[place] for place in sorted(once)]


def effect_of(row: Mapping[str, Any], origin: str, catalogue: Catalogue) -> MeasuredEffect | None:
    """A row of a table; None where it says nothing about the lever's quality: an unknown lever or metric, one pair, nothing
    learned, or two sides that were judged by different prompts."""
    useless = row["verdict"] in NOTHING_LEARNED or not row.get("alike", True) or row["pairs"] < 2
    if useless or row["lever"] not in catalogue.levers or row["metric"] not in METRICS:
        return None
    sign = 1.0 if METRICS[row["metric"]].better == "higher" else -1.0
    half = (row["high"] - row["low"]) / 2.0
    error = max(half / float(student.ppf(0.975, row["pairs"] - 1)), SMALLEST_ERROR * abs(row["change"]), 1e-9)
    base, settings = row.get("base") or row["recipe"], row.get("settings") or ()
    return MeasuredEffect(
        row["lever"],
        row.get("arm") or row["lever"],
        row["metric"],
        sign * row["change"],
        error,
        row["pairs"],
        row["verdict"],
        scope_of_base(base, settings, row.get("images"), row["science"], catalogue),
        row.get("time"),
        row.get("flops"),
        origin,
        row.get("plan") or "",
        frozenset((row.get("keys") or "").split()),
    )


def _own_rows(out: Path, catalogue: Catalogue) -> Iterable[tuple[str, dict[str, Any]]]:
    """Of every finished study under a folder: the levers that were added alone. A report that cannot be read is passed
    over, as are studies whose arms begin from a trained trunk or are combinations: they ask something else."""
    for path in sorted(out.glob("study-*/report.json")) if out.is_dir() else ():
        try:
            result = StudyResult.model_validate_json(read_regular(path, limit=MOST))
            plan = json.loads(read_regular(path.with_name("plan.json"), limit=MOST))
            beside = result.state != "finished" or result.fraction is not None or plan.get("trunk") is not None
            science = _science_of(result, out)
        except (OSError, ValueError, AttributeError, RecursionError, FulcrumError):
            continue
        for decision in () if beside else all_decisions(path.parent.name, result):
            lever = lever_of(decision, catalogue.levers)
            row = row_of(lever, decision, science) if lever else None
            if row is not None:
                yield f"your {path.parent.name}", row


def _science_of(result: StudyResult, out: Path) -> int:
    """The version that trained a study's cells, as the first of them says; one whose cells are gone is of today's."""
    for cell in result.baseline.cells:
        if (out / cell.key / "about.json").is_file():
            return int(RunFolder(out / cell.key).about().get("science", FIRST_SCIENCE))
    return SCIENCE
