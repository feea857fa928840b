"""Contrasts of effects: what two levers do beyond their sum, and how an effect moves with scale.

n pairs, K scales
"""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from fulcrum.judge.card import METRICS
from fulcrum.judge.schema import DOUBLED, Interaction, ScaleFacts, Trend
from fulcrum.judge.statistics import Floats, PairedEffect, judge, paired_effect, student_interval
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.study.judge.findings import EXPLORATORY, NONE_FAILED
from fulcrum.study.judge.margins import margins
from fulcrum.study.judge.pairing import EQUAL, Failures, Measurements, compared, values_of
from fulcrum.study.plan.arms import Arm
from fulcrum.study.plan.design import at_scale, interaction_arms
from fulcrum.study.plan.plan import Plan

TOGETHER = {"better": "better together", "worse": "worse together", "tie": "adds up", "inconclusive": "inconclusive"}


def interactions(
    plan: Plan, arms: Sequence[Arm], measured: Measurements, metric: str, failed: Failures = NONE_FAILED
) -> list[Interaction]:
    """ab - a - b + base, pair by pair, over the seeds that all four have; corrected over the plan's interactions."""
    allowed = {arm.name for arm in compared(arms, metric)}
    effects, names = [], {}
    for pair in plan.interactions if plan.design != "fractional" else ():
        a, b, both = interaction_arms(pair)
        base, one, two, ab = (values_of(measured, name, metric) for name in (arms[0].name, a, b, both))
        expected = {seed: one[seed] + two[seed] - base[seed] for seed in base.keys() & one.keys() & two.keys()}
        if len(expected.keys() & ab.keys()) < 2 or not {a, b, both} <= allowed:
            continue
        effects.append(_contrast(plan, expected, ab, both, metric, _failed(plan, (a, b, both), failed)))
        names[both] = pair
    if not effects:
        return []
    smallest = margins(plan, arms, measured, metric)
    rows = judge(effects, better=METRICS[metric].better, smallest_effect=smallest, alpha=plan.alpha)
    return [interaction(row, names[row.arm], metric == plan.primary) for row in rows]


def interaction(row: PairedEffect, pair: tuple[str, str], primary: bool) -> Interaction:
    """A judged contrast as what two levers do together; only on the primary metric it has a verdict."""
    return Interaction(
        a=pair[0],
        b=pair[1],
        metric=row.metric,
        n=row.n,
        mean=row.mean,
        low=row.low,
        high=row.high,
        unit=EQUAL,
        p_adjusted=row.p_adjusted,
        verdict=TOGETHER[_verdict_of_all(row)] if primary else EXPLORATORY,
    )


def axis(plan: Plan, arms: Sequence[Arm]) -> dict[str, float]:
    """Scale -> its place on the trend's axis: the plan's, else log2 of the baseline's FLOPs over the first's."""
    flops = {arm.scale: denoiser_training_flops(arm.run) * arm.run.budget.images for arm in arms if arm.is_baseline}
    first = flops[arms[0].scale]
    places = {
        scale.name: scale.at if scale.at is not None else math.log2(flops[scale.name] / first) for scale in plan.scales
    }
    ranked = sorted(places.values())
    if any(math.isclose(one, other, abs_tol=1e-9) for one, other in zip(ranked, ranked[1:], strict=False)):
        raise BadInput(
            "two scales stand at the same place of the trend's axis: they cost the same FLOPs",
            "say where each stands with `at`, such as at = 1",
        )
    return places


def scales(plan: Plan, arms: Sequence[Arm]) -> list[ScaleFacts]:
    if not plan.scales:
        return []
    places, base = axis(plan, arms), {arm.scale: arm.run for arm in arms if arm.is_baseline}
    return [
        ScaleFacts(
            name=scale.name,
            at=places[scale.name],
            settings=scale.settings,
            tokens=base[scale.name].tokens,
            parameters=parameters(base[scale.name]),
            flops=denoiser_training_flops(base[scale.name]) * base[scale.name].budget.images,
        )
        for scale in plan.scales
    ]


def trends(
    plan: Plan, arms: Sequence[Arm], measured: Measurements, metric: str, failed: Failures = NONE_FAILED
) -> list[Trend]:
    """Slope of each arm's effect over the axis: a line through every seed's effects, Student over the slopes of the seeds
    that the arm has at all scales.

    A family of its own on the primary metric, exploratory on the others.
    """
    if not plan.scales:
        return []
    places = axis(plan, arms)
    allowed = {arm.name: arm for arm in compared(arms, metric)}
    x = np.array([places[scale.name] for scale in plan.scales])
    centred, smallest = x - x.mean(), margins(plan, arms, measured, metric)
    slopes, by_scale, interest = [], {}, {}
    for root in (arm.name.removesuffix(f" [{arm.scale}]") for arm in arms if arm.scale == plan.scales[0].name):
        own = [arm for scale in plan.scales if (arm := allowed.get(at_scale(root, scale.name)))]
        if len(own) < len(plan.scales):
            continue
        at = [_differences(arm, measured, metric) for arm in own]
        seeds = [seed for seed in plan.seeds if all(seed in differences for differences in at)]
        if len(seeds) < 2:
            continue
        per_seed = np.array([[differences[seed] for differences in at] for seed in seeds])  # (n, K)
        slope = per_seed @ centred / float(centred @ centred)
        by_seed = dict(zip(seeds, slope.tolist(), strict=True))
        lost = _failed(plan, [arm.name for arm in own], failed)
        slopes.append(_contrast(plan, dict.fromkeys(seeds, 0.0), by_seed, root, metric, lost))
        by_scale[root] = per_seed[:, np.argsort(x)]
        interest[root] = float(np.mean([smallest[arm.name] for arm in own])) / float(x.max() - x.min())
    rows = judge(slopes, better="higher", smallest_effect=interest, alpha=plan.alpha) if slopes else []
    by = (plan.axis or "1 on the plan's axis") if any(scale.at is not None for scale in plan.scales) else DOUBLED
    return [
        Trend(
            arm=row.arm,
            metric=metric,
            slope=row.mean,
            low=row.low,
            high=row.high,
            n=row.n,
            axis=by,
            unit=EQUAL,
            verdict=_moves(row, by_scale[row.arm], 1 - plan.alpha) if metric == plan.primary else EXPLORATORY,
        )
        for row in rows
    ]


def _differences(arm: Arm, measured: Measurements, metric: str) -> dict[int, float]:
    after, before = (values_of(measured, name, metric) for name in (arm.name, arm.against))
    return {seed: after[seed] - before[seed] for seed in after.keys() & before.keys()}


def _failed(plan: Plan, names: Collection[str], failed: Failures) -> int:
    """Seeds of the plan under which any of these arms failed."""
    return sum(any(seed in failed.get(name, {}) for name in names) for seed in plan.seeds)


def _contrast(
    plan: Plan, expected: Mapping[int, float], seen: Mapping[int, float], name: str, metric: str, failed: int
) -> PairedEffect:
    return paired_effect(
        expected, seen, name=name, metric=metric, unit=EQUAL, seeds=plan.seeds, planned=len(plan.seeds), failed=failed,
        level=1.0 - plan.alpha,
    )  # fmt: skip


def _verdict_of_all(row: PairedEffect) -> str:
    """What survivors show of a contrast speaks neither for nor against it."""
    return "inconclusive" if row.failed else row.verdict


def _moves(slope: PairedEffect, per_seed: Floats, level: float) -> str:
    """How an effect moves; per_seed (n, K) are the effects at every scale, smallest scale first.

    One that is on one side of zero at the first scale and on the other at the last crosses; where only one of the two is
    told from zero at all, it fades to nothing or grows out of it.
    """
    if _verdict_of_all(slope) not in ("better", "worse"):
        return {"tie": "holds"}.get(_verdict_of_all(slope), "inconclusive")
    means, deviations = per_seed.mean(axis=0), per_seed.std(axis=0, ddof=1)
    ends = [student_interval(means[k], deviations[k], len(per_seed), level) for k in (0, -1)]
    clear = [low > 0.0 or high < 0.0 for low, high in ends]
    if means[0] * means[-1] < 0.0 and clear[0] == clear[1]:
        return "crossing"
    return "grows" if (slope.mean > 0) == (means.mean() > 0) else "fades"
