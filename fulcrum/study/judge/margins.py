"""What a tie is asked against: the smallest effect of interest on a metric, and the floor that a baseline must be above."""

from collections.abc import Iterable

import numpy as np

from fulcrum.judge.card import METRICS
from fulcrum.judge.statistics import Floats, student_interval
from fulcrum.spec.remark import Remark, remark
from fulcrum.study.judge.pairing import Measurements, PairedArm, values_of
from fulcrum.study.plan.plan import Plan


def margins(plan: Plan, arms: Iterable[PairedArm], measured: Measurements, metric: str) -> dict[str, float]:
    """Arm -> the smallest effect of interest, in the metric's unit: the plan's, else in deviations of what it is held
    against over its seeds. An arm without a finished baseline has none."""
    margins = dict[str, float]()
    for arm in arms:
        values = np.array(list(values_of(measured, arm.against, metric).values()))
        if len(values):
            margins[arm.name] = _margin(plan, metric, values)
    return margins


def _margin(plan: Plan, metric: str, baseline: Floats) -> float:
    if metric == plan.primary and plan.smallest_effect is not None:
        return plan.smallest_effect
    if metric in plan.margins:
        return plan.margins[metric]
    if plan.smallest_relative is not None:
        return plan.smallest_relative * abs(float(baseline.mean()))
    return plan.margin_deviations * float(baseline.std(ddof=1)) if len(baseline) > 1 else 0.0


def not_learned(measured: Measurements, baseline: str, metric: str, level: float) -> Remark | None:
    """Why a baseline has not learned what a metric asks: within the interval over its seeds it does no better than pictures
    that show nothing of it. None: it has, or the metric's floor is not known."""
    cells, values = measured[baseline], np.array(list(values_of(measured, baseline, metric).values()))
    cards = [cell["metrics"][metric]["card"] for cell in cells.values() if metric in cell["metrics"]]
    floors = (cards[0].get("floors") or {}) if cards else {}
    if not floors or len(values) < 2:
        return None
    higher = METRICS[metric].better == "higher"
    name, floor = (max if higher else min)(floors.items(), key=lambda entry: entry[1])
    low, high = student_interval(float(values.mean()), float(values.std(ddof=1)), len(values), level)
    if low > floor if higher else high < floor:
        return None
    text = (
        f"the baseline has not learned this yet, train longer: it stands at {values.mean():.3g}, and pictures that show "
        f"nothing of what was asked for ({name}) get {floor:.3g}"
    )
    return remark("not-learned", text, mean=float(values.mean()), floor=floor, name=name)
