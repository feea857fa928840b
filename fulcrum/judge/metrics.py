"""The metrics of a study: pairs of cells, margins, and which metrics are shown."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fulcrum.judge.card import JUDGED, METRICS, MetricCard, compatible
from fulcrum.judge.cells import CellRecord, Cells
from fulcrum.judge.design import Design, JudgedArm
from fulcrum.judge.schema import LARGEST, ShownMetric
from fulcrum.judge.statistics import Floats, student_interval
from fulcrum.spec.remark import Remark, remark

# --------------------------------------------------------------------------------------------------
# Pairs of cells: the values that an arm and its baseline have under the same seeds, and whether
# they may be compared.


EQUAL = "images"  # what was held equal


def values_of(cells: Cells, arm: str, metric: str) -> dict[int, float]:
    """Seed -> value of a metric; where it is no number, or was not measured, that seed is missing
    for this metric alone."""
    readings = {
        seed: cell.metrics[metric].value
        for seed, cell in cells.get(arm, {}).items()
        if metric in cell.metrics
    }
    return {
        seed: float(value)
        for seed, value in readings.items()
        if value is not None and _is_measurement(value)
    }


def _is_measurement(value: float) -> bool:
    """What the page shows as a number as well: beyond that squares have no room in a float."""
    return math.isfinite(value) and abs(value) <= LARGEST


def not_stopped(arms: Sequence[JudgedArm], stopped: Collection[str]) -> list[JudgedArm]:
    """The arms that have a final value to compare, and something to compare it with: what was
    stopped early is censored."""
    return [arm for arm in arms if arm.name not in stopped and arm.against not in stopped]


def compared(arms: Sequence[JudgedArm], metric: str) -> list[JudgedArm]:
    """The arms whose values of a metric may be compared with those of what they are held
    against."""
    return [
        arm
        for arm in arms
        if not arm.is_baseline and not (metric == "validation_loss" and arm.own_loss)
    ]


def card_of(cells: Cells, arm: str, metric: str) -> Mapping[str, Any]:
    """The card of a metric on the first cell of an arm that has it; empty: none has."""
    cards = (
        cell.metrics[metric].card for cell in cells.get(arm, {}).values() if metric in cell.metrics
    )
    return next(cards, {})


def require_same_card(one: CellRecord, other: CellRecord, metric: str, arm: JudgedArm) -> None:
    """Refuse numbers that were not measured alike, except for what the arm openly changes."""
    if arm.may_differ is None:
        return
    mine, yours = one.metrics[metric].card, other.metrics[metric].card
    if mine != yours:
        compatible(MetricCard(**mine), MetricCard(**yours), arm.may_differ)


# --------------------------------------------------------------------------------------------------
# What a tie is asked against: the smallest effect of interest on a metric, and the floor that a
# baseline must be above.


def margins(plan: Design, arms: Iterable[JudgedArm], cells: Cells, metric: str) -> dict[str, float]:
    """Arm -> the smallest effect of interest, in the metric's unit: the plan's, else in deviations
    of what it is held against over its seeds. An arm without a finished baseline has none."""
    margins = dict[str, float]()
    for arm in arms:
        values = np.array(list(values_of(cells, arm.against, metric).values()))
        if len(values):
            margins[arm.name] = _margin(plan, metric, values)
    return margins


def _margin(plan: Design, metric: str, baseline: Floats) -> float:
    if metric == plan.primary and plan.smallest_effect is not None:
        return plan.smallest_effect
    if metric in plan.margins:
        return plan.margins[metric]
    if plan.smallest_relative is not None:
        return plan.smallest_relative * abs(float(baseline.mean()))
    return plan.margin_deviations * float(baseline.std(ddof=1)) if len(baseline) > 1 else 0.0


def not_learned(cells: Cells, baseline: str, metric: str, level: float) -> Remark | None:
    """Why a baseline has not learned what a metric asks: within the interval over its seeds it does
    no better than pictures that show nothing of it. None: it has, or the metric's floor is not
    known."""
    values = np.array(list(values_of(cells, baseline, metric).values()))
    floors = card_of(cells, baseline, metric).get("floors") or {}
    if not floors or len(values) < 2:
        return None
    higher = METRICS[metric].better == "higher"
    name, floor = (max if higher else min)(floors.items(), key=lambda entry: entry[1])
    low, high = student_interval(
        float(values.mean()), float(values.std(ddof=1)), len(values), level
    )
    if low > floor if higher else high < floor:
        return None
    text = (
        f"the baseline has not learned this yet, train longer: it stands at {values.mean():.3g},"
        f" and pictures that show nothing of what was asked for ({name}) get {floor:.3g}"
    )
    return remark("not-learned", text, mean=float(values.mean()), floor=floor, name=name)


# --------------------------------------------------------------------------------------------------
# Which metrics a study is judged on, and how the report shows them: their ends, and how far a
# second judge agrees.


SHOWN = (
    "attribute_f1",
    "attribute_f1_second",
    "attribute_accuracy",
    "attribute_precision",
    "frechet",
    "mmd",
    "validation_loss",
    "colour_accuracy",
    "shape_accuracy",
    "texture_accuracy",
    "size_accuracy",
    "presence_accuracy",
    "extra_objects",
    "mmd_published",
)
FAMILY = 100  # comparisons that power is reckoned for, at most: the metrics of an arm move together
SECOND = {"attribute_f1": "attribute_f1_second"}  # metric -> the same number by another judge


def metric_names(plan: Design) -> list[str]:
    """What a study is judged on, as far as its pictures can tell, the primary metric first. Where
    real networks judge, the distances of the embedded one, which was made for the embedded world,
    are left out."""
    names: tuple[str, ...] = SHOWN
    if plan.judges:
        own = (name for name in SHOWN if name not in ("frechet", "mmd", "mmd_published"))
        names = (*(name for judge in plan.judges for name in JUDGED[judge]), *own)
    return list(dict.fromkeys((plan.primary, *names)))


def shown_metric(name: str, cells: Cells, baseline: str) -> ShownMetric:
    """A metric with the card and the ends of its scale that the baseline's cells carry, as far as
    there are any."""
    metric, card = METRICS[name], card_of(cells, baseline, name)
    agreed = agreement(name, cells) if name in SECOND else None
    return ShownMetric(
        name=name,
        label=metric.label,
        unit=metric.unit,
        better=metric.better,
        explain=metric.explain,
        card=card,
        floors=card.get("floors") or {},
        ceiling=card.get("ceiling"),
        agreement=agreed.text if agreed else "",
        codes=(agreed,) if agreed else (),
    )


def agreement(metric: str, cells: Cells) -> Remark | None:
    """How far two judges agree on the cells that both have looked at; None: there are fewer than
    three."""
    pairs = []
    for arm in cells:
        first, second = (values_of(cells, arm, name) for name in (metric, SECOND[metric]))
        pairs += [(first[seed], second[seed]) for seed in first.keys() & second.keys()]
    if len(pairs) < 3:
        return None
    one, other = np.array(pairs).T
    distance = float(np.abs(one - other).mean())
    apart = f"their values lie {distance:.2g} apart on average"
    if min(one.std(), other.std()) < 1e-12:
        text = f"over {len(pairs)} cells {apart}"
        return remark("judges-apart", text, cells=len(pairs), distance=distance)
    correlation = float(np.corrcoef(one, other)[0, 1])
    text = f"over {len(pairs)} cells the two judges correlate at {correlation:.2f}, and {apart}"
    return remark(
        "judges-correlate", text, cells=len(pairs), correlation=correlation, distance=distance
    )
