"""Contrasts of effects: what two levers do beyond their sum, and how an effect moves with scale.

n pairs, K scales
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fulcrum.cost.denoiser import training_flops
from fulcrum.cost.parameters import parameters
from fulcrum.measure.card import METRICS
from fulcrum.spec.errors import BadInput
from fulcrum.study.judge.effect import Effect, paired_effect
from fulcrum.study.judge.findings import EQUAL, Found, common_seeds, compared, smallest, value_of
from fulcrum.study.judge.verdict import judge
from fulcrum.study.plan.arm_proof import Arm, baseline_of
from fulcrum.study.plan.design import at_scale, interaction_arms
from fulcrum.study.plan.plan import Plan

TOGETHER = {"better": "better together", "worse": "worse together", "tie": "adds up", "inconclusive": "inconclusive"}


def interactions(plan: Plan, arms: Sequence[Arm], found: Found, metric: str) -> list[dict[str, Any]]:
    """ab - a - b + base, pair by pair: paired by seed, corrected over the plan's interactions."""
    seeds, allowed = common_seeds(plan, arms, found), {arm.name for arm in compared(arms, metric)}
    effects, names = [], {}
    for pair in plan.interactions:
        a, b, both = interaction_arms(pair)
        if len(seeds) < 2 or not {a, b, both} <= allowed:
            continue
        base, one, two, ab = (
            {seed: value_of(found[name][seed], metric) for seed in seeds} for name in (arms[0].name, a, b, both)
        )
        expected = {seed: one[seed] + two[seed] - base[seed] for seed in seeds}
        effects.append(paired_effect(expected, ab, name=both, metric=metric, unit=EQUAL, seeds=seeds))
        names[both] = pair
    if not effects:
        return []
    rows = judge(effects, better=METRICS[metric].better, smallest_effect=smallest(plan, metric, effects), alpha=plan.alpha)
    return [
        {
            "a": names[row.effect.arm][0],
            "b": names[row.effect.arm][1],
            "metric": metric,
            "n": row.effect.n,
            "mean": row.effect.mean,
            "low": row.effect.low,
            "high": row.effect.high,
            "unit": EQUAL,
            "p_adjusted": row.p_adjusted,
            "verdict": TOGETHER[row.verdict],
        }
        for row in rows
    ]


def axis(plan: Plan, arms: Sequence[Arm]) -> dict[str, float]:
    """Scale -> its place on the trend's axis: the plan's, else log2 of the baseline's FLOPs over the first's."""
    flops = {arm.scale: training_flops(arm.run) * arm.run.budget.images for arm in arms if arm.is_baseline}
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


def scales(plan: Plan, arms: Sequence[Arm]) -> list[dict[str, Any]]:
    if not plan.scales:
        return []
    places, base = axis(plan, arms), {arm.scale: arm.run for arm in arms if arm.is_baseline}
    return [
        {
            "name": one.name,
            "at": places[one.name],
            "settings": one.settings,
            "tokens": base[one.name].tokens,
            "parameters": parameters(base[one.name]),
            "flops": training_flops(base[one.name]) * base[one.name].budget.images,
        }
        for one in plan.scales
    ]


def trends(plan: Plan, arms: Sequence[Arm], found: Found, metric: str) -> list[dict[str, Any]]:
    """Slope of each arm's effect over the axis: a line through every seed's effects, Student over the seeds' slopes."""
    seeds = common_seeds(plan, arms, found) if plan.scales else []
    if len(seeds) < 2:
        return []
    places = axis(plan, arms)
    allowed = {arm.name: arm for arm in compared(arms, metric)}
    x = np.array([places[scale.name] for scale in plan.scales])
    centred = x - x.mean()
    slopes, means, interest = [], {}, {}
    for root in (arm.name.removesuffix(f" [{arm.scale}]") for arm in arms if arm.scale == plan.scales[0].name):
        own = [allowed.get(at_scale(root, scale.name)) for scale in plan.scales]
        if not all(own):
            continue
        at = [_differences(arm, arms, found, metric, seeds) for arm in own if arm]
        per_seed = np.array([[differences[seed] for differences, _ in at] for seed in seeds])  # (n, K)
        slope = per_seed @ centred / float(centred @ centred)
        by_seed = dict(zip(seeds, slope.tolist(), strict=True))
        slopes.append(paired_effect(dict.fromkeys(seeds, 0.0), by_seed, name=root, metric=metric, seeds=seeds))
        means[root] = float(per_seed.mean())
        middle = float(np.mean([base for _, base in at]))
        limit = plan.smallest_effect if metric == plan.primary else plan.smallest_relative * middle
        interest[root] = limit / float(x.max() - x.min())
    rows = judge(slopes, better="higher", smallest_effect=interest, alpha=plan.alpha) if slopes else []
    said = "as the plan gives it" if any(scale.at is not None for scale in plan.scales) else "log2 of training FLOPs"
    return [
        {
            "arm": row.effect.arm,
            "metric": metric,
            "slope": row.effect.mean,
            "low": row.effect.low,
            "high": row.effect.high,
            "n": row.effect.n,
            "axis": said,
            "unit": EQUAL,
            "verdict": _moves(row.effect, row.verdict, means[row.effect.arm]),
        }
        for row in rows
    ]


def _differences(
    arm: Arm, arms: Sequence[Arm], found: Found, metric: str, seeds: Sequence[int]
) -> tuple[Mapping[int, float], float]:
    base = baseline_of(arm, arms)
    before = {seed: value_of(found[base.name][seed], metric) for seed in seeds}
    after = {seed: value_of(found[arm.name][seed], metric) for seed in seeds}
    return {seed: after[seed] - before[seed] for seed in seeds}, abs(float(np.mean(list(before.values()))))


def _moves(slope: Effect, verdict: str, mean: float) -> str:
    if verdict in ("better", "worse"):
        return "grows" if (slope.mean > 0) == (mean > 0) else "fades"
    return {"tie": "holds"}.get(verdict, verdict)
