"""What a fractional design can see, beside one lever at a time with as many cells.

S seeds, K levers
"""

import math
from functools import lru_cache

import numpy as np

from fulcrum.judge.statistics import pairs_needed
from fulcrum.study.judge.main_effects import few_seeds
from fulcrum.study.plan.design import fraction_of
from fulcrum.study.plan.plan import Plan
from fulcrum.study.plan.power import detectable

_FRACTION_STUDIES = 2000  # simulated: power is known to about +-0.02 at 0.8


def fraction_detectable(plan: Plan) -> float | None:
    """The smallest true effect of a lever that gets its verdict in four studies of five, in units of the scatter of a
    single cell; None where none does. A contrast halves the cells: it scatters by 2 / sqrt(combinations) of that."""
    combinations, levers = fraction_of(plan).on.shape
    units = contrast_detectable(plan, len(plan.seeds), levers)
    return None if units is None else 2.0 * units / math.sqrt(combinations)


def contrast_detectable(plan: Plan, seeds: int, levers: int) -> float | None:
    """The same in units of the scatter of a lever's contrast over seeds, of which so many are there."""
    if len(plan.seeds) >= pairs_needed(plan.alpha):
        return detectable(seeds, levers, alpha=plan.alpha)
    return _by_normal_theory(seeds, levers, plan.alpha)


def one_at_a_time(plan: Plan) -> tuple[int, float | None]:
    """As many cells spent on every lever alone: how many seeds that gives, and what they would see."""
    combinations, levers = fraction_of(plan).on.shape
    seeds = combinations * len(plan.seeds) // (levers + 1)
    units = detectable(seeds, levers, alpha=plan.alpha) if seeds >= pairs_needed(plan.alpha) else None
    return seeds, None if units is None else math.sqrt(2.0) * units


@lru_cache(maxsize=64)
def _by_normal_theory(seeds: int, levers: int, alpha: float) -> float:
    """In units of the scatter of a contrast, by simulation of the rule, keyed."""
    null = np.random.default_rng([seeds, levers]).standard_normal((_FRACTION_STUDIES, seeds, levers))

    def seen(effect: float) -> bool:
        moved = null.copy()
        moved[:, :, 0] += effect
        return bool((few_seeds(moved, moved)[0][:, 0] <= alpha).mean() >= 0.8)

    low, high = 0.0, 1.0
    while not seen(high):
        low, high = high, high * 2.0
    for _ in range(10):
        middle = (low + high) / 2.0
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high
