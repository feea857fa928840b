"""Comparisons at equal cost from the same runs: curves read where both sides have spent the same;
time to target; front.

Time comes from interleaved steps (`cost`), never from cells that ran side by side.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from fulcrum.judge.card import METRICS, Better
from fulcrum.judge.cells import Cells, failed_seeds, finished_cells
from fulcrum.judge.design import Design, JudgedArm
from fulcrum.judge.effects import confirmed, effect
from fulcrum.judge.metrics import compared, margins
from fulcrum.judge.schema import Effect, Front, FrontPoint, Target, TimedCost
from fulcrum.judge.statistics import judge, student_interval
from fulcrum.spec.remark import remark

Curve = Sequence[tuple[float, float]]  # (share of the budget, value), rising, to the end
Curves = Mapping[str, Mapping[int, Curve]]  # arm -> seed -> curve of one metric, finished cells
UNITS = ("time", "flops")
DECAYED = remark(
    "rate-not-decayed",
    "read from a curve before its end, whose learning rate had not yet decayed: a run planned for"
    " that length would end better",
)


def ratio(cost: TimedCost, unit: str) -> float:
    return {"images": 1.0, "time": cost.time_ratio, "flops": cost.flops_ratio}[unit]


def value_at(curve: Curve, share: float) -> float | None:
    """A curve's value at a share of the budget, on the line between its points; None before the
    first."""
    if not curve or share < curve[0][0] - 1e-9:
        return None
    shares, values = zip(*curve, strict=True)
    return float(np.interp(share, shares, values))


def first_reached(curve: Curve, target: float, better: Better) -> float | None:
    """The share of the budget at which a curve first stands at the target, on the line between its
    points."""
    sign = 1.0 if better == "lower" else -1.0
    before: tuple[float, float] | None = None
    for share, value in curve:
        gap = sign * (value - target)
        if gap <= 1e-12 * max(abs(target), 1.0):
            if before is None or before[1] <= gap:
                return share
            return before[0] + (share - before[0]) * before[1] / (before[1] - min(gap, 0.0))
        before = (share, gap)
    return None


def at_equal_cost(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    costs: Mapping[str, TimedCost],
    metric: str,
) -> list[Effect]:
    """Effects at equal time and at equal FLOPs, each arm on its own pairs, where the curves reach
    far enough back. They are exploratory."""
    rows, curves = list[Effect](), curves_of(arms, cells, metric)
    for unit in UNITS:
        effects = []
        for arm in compared(arms, metric):
            times = ratio(costs[arm.name], unit) / ratio(costs[arm.against], unit)
            spent = min(1.0, times)  # of what the baseline spends on its budget
            values = {
                name: _values(curves[name], share)
                for name, share in ((arm.name, spent / times), (arm.against, spent))
            }
            lost = len(set(plan.seeds) & failed_seeds(cells, arm.name))
            weights = {arm.name: 1.0, arm.against: -1.0}
            found = effect(plan, values, weights, metric, unit=unit, failed=lost)
            if found is None:
                continue
            early = min(spent, spent / times) < 1.0 - 1e-9
            effects.append(found.noted(DECAYED) if early and arm.decays else found)
        if effects:
            smallest = margins(plan, arms, cells, metric)
            for row in judge(
                effects, better=METRICS[metric].better, smallest_effect=smallest, alpha=plan.alpha
            ):
                rows.append(confirmed(plan, row))
    return rows


def curves_of(arms: Sequence[JudgedArm], cells: Cells, metric: str) -> Curves:
    """The curves of one metric, of the cells that finished."""
    return {
        arm.name: {
            seed: [
                (point.images / cell.budget, value)
                for point in cell.curve
                if (value := point.values.get(metric)) is not None
            ]
            for seed, cell in finished_cells(cells, arm.name).items()
        }
        for arm in arms
    }


def _values(curves: Mapping[int, Curve], share: float) -> dict[int, float]:
    """Seed -> value at a share of the budget, where the curve reaches back to it."""
    values = {seed: value_at(curve, share) for seed, curve in curves.items()}
    return {
        seed: value for seed, value in values.items() if value is not None and math.isfinite(value)
    }


def targets(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    costs: Mapping[str, TimedCost] | None,
    metric: str,
) -> list[Target]:
    """What each arm needs to stand where its baseline ends, over what the baseline needs: below one
    is sooner."""
    better, rows, curves = METRICS[metric].better, [], curves_of(arms, cells, metric)
    for arm in compared(arms, metric):
        ends = {
            seed: curves[arm.against][seed][-1][1]
            for seed in plan.seeds
            if all(len(curves[name].get(seed, ())) > 1 for name in (arm.name, arm.against))
        }
        if len(ends) < 2:
            continue
        need = [
            tuple(
                first_reached(curves[name][seed], end, better) for name in (arm.name, arm.against)
            )
            for seed, end in ends.items()
        ]
        times = [
            arm_need / base_need if arm_need is not None and base_need else math.inf
            for arm_need, base_need in need
        ]
        for unit in ("images", *(UNITS if costs else ())):
            factor = (
                1.0
                if costs is None
                else ratio(costs[arm.name], unit) / ratio(costs[arm.against], unit)
            )
            ratios = _typical(times, factor, 1.0 - plan.alpha)
            rows.append(
                Target(
                    arm=arm.name,
                    metric=metric,
                    target=float(np.mean(list(ends.values()))),
                    unit=unit,
                    n=len(ends),
                    reached=sum(map(math.isfinite, times)),
                    ratio=ratios[0],
                    low=ratios[1],
                    high=ratios[2],
                )
            )
    return rows


def _typical(
    times: Sequence[float], factor: float, level: float
) -> tuple[float | None, float | None, float | None]:
    """The geometric mean with its interval where every seed arrived; else the median, if that many
    did."""
    if all(map(math.isfinite, times)):
        logs = np.log(times)
        low, high = student_interval(float(logs.mean()), float(logs.std(ddof=1)), len(logs), level)
        return factor * math.exp(logs.mean()), factor * math.exp(low), factor * math.exp(high)
    middle = float(np.median(times))
    return factor * middle if math.isfinite(middle) else None, None, None


def fronts(
    arms: Sequence[JudgedArm],
    means: Mapping[str, tuple[float, float, float]],
    costs: Mapping[str, TimedCost],
    metric: str,
) -> list[Front]:
    """Quality (mean, low, high of each arm) against cost; on the front: what no cheaper arm equals.
    First scale only."""
    sign = 1.0 if METRICS[metric].better == "lower" else -1.0
    own = [arm.name for arm in arms if arm.scale == arms[0].scale and arm.name in means]

    def front(kind: Literal["time_ratio", "flops_ratio"]) -> Front:
        cost = {name: float(getattr(costs[name], kind)) for name in own}
        beaten = {
            name: any(
                other != name
                and cost[other] <= cost[name]
                and sign * means[other][0] <= sign * means[name][0]
                and (cost[other], sign * means[other][0]) != (cost[name], sign * means[name][0])
                for other in own
            )
            for name in own
        }
        points = (
            FrontPoint(
                arm=name,
                cost=cost[name],
                mean=means[name][0],
                low=means[name][1],
                high=means[name][2],
                front=not beaten[name],
            )
            for name in own
        )
        return Front(metric=metric, cost=kind, points=tuple(points))

    return [front("time_ratio"), front("flops_ratio")]
