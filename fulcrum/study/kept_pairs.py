"""A kept study without the files of one's own that it was run with: its effects again, from the pairs of its cells alone.

Such a file holds the recipe, and without it nobody can tell which runs the plan asks for, what is claimed of them or what
they cost. But the plan alone says which cells are pairs, and pairs are all that means, intervals, p-values and verdicts at
equal images are made from. Where they are not enough (interim looks, fractions, equal time and FLOPs), a row is held
against itself: the verdict against the interval, the interval against the mean.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fulcrum.judge.card import METRICS
from fulcrum.judge.schema import Effect, StudyResult
from fulcrum.judge.statistics import effect_without_pairs, noise_floor, paired_effect
from fulcrum.spec.errors import BadInput
from fulcrum.study.judge.findings import EXPLORATORY, all_findings, confirmed
from fulcrum.study.judge.pairing import EQUAL, Failures, Measurements, values_of
from fulcrum.study.plan.design import Wanted, wanted
from fulcrum.study.plan.plan import Plan
from fulcrum.study.plan.requirements import PRIMARY_ANYWHERE
from fulcrum.study.run.kept_cells import KeptCells

# What an effect is made of; the rest of its record (notes, claims, what was detectable) needs the recipe.
JUDGED = (
    *("n", "mean", "low", "high", "tie_low", "tie_high", "correlation"),
    *("p_adjusted", "margin", "verdict", "shrunk", "exploratory", "planned", "failed"),
)
SIGNS = {"better": 1.0, "worse": -1.0}


class Compared(NamedTuple):
    """What of a kept study is held against what: name, as it was kept, as it comes out of the cells."""

    rows: list[tuple[str, Any, Any]]
    contradictions: list[str]  # what of a row that could not be judged does not go with the rest of it
    judged: int  # effects that were judged again
    others: int  # effects that could only be held against themselves


def compared_pairs(plan: Plan, result: StudyResult, kept: KeptCells) -> Compared:
    """Every effect and every noise of a kept study beside what its cells say."""
    measured, lost = _measured(kept), _lost(kept)
    plan = _with_primary(plan, measured)
    arms, seeds, alpha = wanted(plan), result.plan.seeds, result.plan.alpha
    names = [arm.name for arm in (result.arms if result.fraction is None else result.trained)]
    rows: list[tuple[str, Any, Any]] = [
        ("arms", names, [arm.name for arm in arms]),
        ("plan", _facts(result.plan.primary_metric, seeds, alpha), _facts(plan.primary, plan.seeds, plan.alpha)),
        ("noise", [row.model_dump() for row in result.noise], _noise(result, measured, arms[0].name)),
    ]
    again, contradictions, judged = _judged(plan, arms, result, measured, lost), list[str](), 0
    for row in result.effects:
        place = f"{row.arm}, {row.metric}" + (f" at equal {row.unit}" if row.unit != EQUAL else "")
        found = again.pop((row.arm, row.metric), None) if row.unit == EQUAL else None
        if found is not None:
            judged += 1
            rows.append((place, _shown(row), _shown(found)))
        elif _is_judged(plan, row):
            rows.append((place, _shown(row), None))
        else:
            rows.append((place, _plain(row), _plain(row) | _mean(plan, arms, row, measured)))
            contradictions += [f"{place}: {words}" for words in _contradictions(row)]
    rows += [(f"{arm}, {metric}", None, _shown(row)) for (arm, metric), row in again.items()]
    return Compared(rows, contradictions, judged, len(result.effects) - judged)


def _measured(kept: KeptCells) -> Measurements:
    """arm -> seed -> what was measured of the cell."""
    measured = dict[str, dict[int, Any]]()
    for line in _cells(kept):
        if "metrics" in line["outcome"]:
            cells = measured.setdefault(line["arm"], {})
            if line["seed"] in cells:
                raise BadInput(
                    f"two cells of {line['arm']}, seed {line['seed']} are kept: only its --with FILE tells which counts",
                    "name that file",
                )
            cells[line["seed"]] = {**line["outcome"], "metrics": kept.unpacked(line["outcome"]["metrics"])}
    return measured


def _lost(kept: KeptCells) -> Failures:
    lost = dict[str, dict[int, str]]()
    for line in _cells(kept):
        if "metrics" not in line["outcome"]:
            lost.setdefault(line["arm"], {})[line["seed"]] = line["outcome"].get("why", "")
    return lost


def _cells(kept: KeptCells) -> Iterator[dict[str, Any]]:
    return (line for line in kept.lines.values() if line["kind"] == "arm")


def _with_primary(plan: Plan, measured: Measurements) -> Plan:
    """As `with_primary` has it, asking the cells instead of the recipe what can be measured."""
    there = any(plan.primary in cell["metrics"] for cells in measured.values() for cell in cells.values())
    if "primary" in plan.model_fields_set or there or not measured:
        return plan
    margin = plan.smallest_effect if "smallest_effect" in plan.model_fields_set else None
    return plan.model_copy(update={"primary": PRIMARY_ANYWHERE, "smallest_effect": margin})


def _is_judged(plan: Plan, row: Effect) -> bool:
    """Do the pairs and the plan alone give this effect?"""
    sequential = bool(plan.looks) and row.metric == plan.primary
    return row.unit == EQUAL and plan.design != "fractional" and not sequential


def _judged(
    plan: Plan, arms: Sequence[Wanted], result: StudyResult, measured: Measurements, lost: Failures
) -> dict[tuple[str, str], Effect]:
    """(arm, metric) -> the effect at equal images, judged in its family."""
    if plan.design == "fractional":
        return {}
    kept = {(row.arm, row.metric) for row in result.effects if row.unit == EQUAL}
    families = dict[str, list[Effect]]()
    for metric in [metric.name for metric in result.metrics]:
        rows = [_effect(plan, arm, metric, measured, lost) for arm in arms if arm.name != arm.against]
        # A loss of another kind is not compared, and only the recipe tells which is.
        told = [row for row in rows if row and (metric != "validation_loss" or (row.arm, metric) in kept)]
        families |= {metric: told} if told and not (plan.looks and metric == plan.primary) else {}
    findings = all_findings(plan, arms, measured, families)
    return {(row.arm, row.metric): confirmed(plan, row) for row in findings}


def _effect(plan: Plan, arm: Wanted, metric: str, measured: Measurements, lost: Failures) -> Effect | None:
    """The paired effect, not yet judged; None: more pairs may come, or the metric is not measured on this arm."""
    before, after = (values_of(measured, name, metric) for name in (arm.against, arm.name))
    pairs = [seed for seed in plan.seeds if seed in before and seed in after]
    own, base = (set(lost.get(name, {})) for name in (arm.name, arm.against))
    planned, failed = len(plan.seeds), len(own.intersection(plan.seeds))
    if len(pairs) > 1:
        return paired_effect(
            before, after, name=arm.name, metric=metric, unit=EQUAL, seeds=pairs, planned=planned, failed=failed,
            level=1.0 - plan.alpha,
        )  # fmt: skip
    finished = measured.get(arm.name, {}).keys() & measured.get(arm.against, {}).keys()
    if not set(plan.seeds) <= {*finished, *own, *base}:
        return None
    only = after[pairs[0]] - before[pairs[0]] if pairs else None
    return effect_without_pairs(arm.name, metric, unit=EQUAL, planned=planned, failed=failed, mean=only)


def _mean(plan: Plan, arms: Sequence[Wanted], row: Effect, measured: Measurements) -> dict[str, Any]:
    """Of an arm that ended at some look of a sequential plan: the mean of so many pairs."""
    against = {arm.name: arm.against for arm in arms}.get(row.arm)
    if row.unit != EQUAL or plan.design == "fractional" or against is None or row.mean is None:
        return {}
    before, after = (values_of(measured, name, row.metric) for name in (against, row.arm))
    pairs = [seed for seed in plan.seeds if seed in before and seed in after][: max(row.n, 0)]
    mean = sum(after[seed] - before[seed] for seed in pairs) / len(pairs) if pairs else None
    return {"n": len(pairs), "mean": mean}


def _contradictions(row: Effect) -> Iterator[str]:
    """What of a row does not go with the rest of it, in words."""
    if row.unit != EQUAL and row.verdict not in (EXPLORATORY, "failed"):
        yield f"a verdict '{row.verdict}' at equal {row.unit}, which no plan sets out to decide"
    low, mean, high = row.low, row.mean, row.high
    if low is not None and mean is not None and high is not None and not low <= mean <= high:
        yield f"a mean of {mean:g} outside of its interval, {low:g} to {high:g}"
    if row.verdict in SIGNS:
        sign = SIGNS[row.verdict] * (1.0 if METRICS[row.metric].better == "higher" else -1.0)
        clear = low is not None and high is not None and (low > 0.0 if sign > 0.0 else high < 0.0)
        if not clear:
            yield f"a verdict '{row.verdict}' with an interval that does not lie on that side of zero"
    if row.verdict == "tie":
        ends, margin = (row.tie_low, row.tie_high), row.margin
        if margin is None or any(end is None or abs(end) > margin for end in ends):
            yield "a verdict 'tie' with an interval that does not lie within the margin"


def _noise(result: StudyResult, measured: Measurements, baseline: str) -> list[dict[str, Any]]:
    values = {metric.name: values_of(measured, baseline, metric.name) for metric in result.metrics}
    return [noise_floor(found, metric).model_dump() for metric, found in values.items() if len(found) > 1]


def _shown(row: Effect) -> Mapping[str, Any]:
    return {name: value for name, value in row.model_dump(mode="json").items() if name in JUDGED}


def _facts(primary: str, seeds: Sequence[int], alpha: float) -> dict[str, Any]:
    return {"primary_metric": primary, "seeds": list(seeds), "alpha": alpha}


def _plain(row: Effect) -> dict[str, Any]:
    return {"n": row.n, "mean": row.mean}
