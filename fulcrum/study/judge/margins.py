"""The smallest effect of interest on each metric: what a tie is asked against."""

from collections.abc import Iterable

import numpy as np

from fulcrum.study.judge.effect import Floats
from fulcrum.study.judge.pairing import Measurements, values_of
from fulcrum.study.plan.arms import Arm
from fulcrum.study.plan.plan import Plan


def margins(plan: Plan, arms: Iterable[Arm], measured: Measurements, metric: str) -> dict[str, float]:
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
