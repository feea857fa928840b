"""What a plan can see: the smallest true effect that gets its verdict in four studies of five."""

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from fulcrum.judge.design import Design, fraction_of
from fulcrum.judge.effects import few_seeds
from fulcrum.judge.statistics import Floats, adjusted, half_widths, pairs_needed, sign_vectors

# --------------------------------------------------------------------------------------------------
# What a plan can see: the smallest true effect that gets its verdict in four studies of five.
#
# Simulated through the rule that verdicts follow (the corrected sign-flip p, and an interval
# without zero), for every number of pairs and of arms. Student's formula knows nothing of the other
# arms: with 25 of them and 13 pairs it promises 80 % where 35 % is true.
#
# n pairs, A arms, S sign vectors


_VECTORS = 512  # sign vectors of a simulated study: enough to know on which side of 0.05 a p lies
_REJECTED = 8  # of them within alpha, at least: a p of 1 in 512 never reaches 0.001
_WORK = 4_000_000  # numbers per tried effect: a second for any plan
_STUDIES = (200, 5000)  # fewest and most: power is known to +- 0.03 and +- 0.01
_CLOSE = 0.01  # of power, between what was asked for and what the effect gives
_SHAPE = 3.0  # arms differ in noise: variances as 1 / gamma(3), as in our own families


@lru_cache(maxsize=256)
def detectable(n: int, arms: int = 1, *, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Smallest true effect of one arm among `arms` that gets its verdict with the given chance (the
    others have none), in units of the standard deviation of that arm's paired differences; None
    where no effect can: too few pairs."""
    _check(n, arms, alpha, power)
    if n < pairs_needed(alpha):
        return None
    null, goal = _null_studies(n, arms, alpha), float(ndtri(power))
    effect: float = float(ndtri(1.0 - alpha / (2.0 * arms)) + goal) / n**0.5 * (1.0 + 20.0 / n**2)
    slope, tried = 0.7 * n**0.5, list[tuple[float, float]]()
    # power rises with the effect about as the normal distribution does: a secant on that scale
    for _ in range(12):
        share = _share_seen(null, effect, alpha)
        if abs(share - power) <= _CLOSE:
            break
        level = float(ndtri(np.clip(share, 0.5 / len(null), 1.0 - 0.5 / len(null))))
        if tried and abs(effect - tried[-1][0]) > 1e-6:
            slope = float(
                np.clip((level - tried[-1][1]) / (effect - tried[-1][0]), 0.3 * slope, 3.0 * slope)
            )
        tried.append((effect, level))
        effect = float(max(effect + (goal - level) / slope, 0.1 * effect))
    return effect


@lru_cache(maxsize=256)
def chance_seen(effect: float, n: int, arms: int = 1, *, alpha: float = 0.05) -> float:
    """Chance that a true effect of one arm among `arms` gets its verdict; the effect in units of
    the standard deviation of that arm's paired differences."""
    _check(n, arms, alpha)
    return (
        _share_seen(_null_studies(n, arms, alpha), effect, alpha)
        if n >= pairs_needed(alpha)
        else 0.0
    )


def _vectors(alpha: float) -> int:
    return max(_VECTORS, math.ceil(_REJECTED / alpha))


def _null_studies(n: int, arms: int, alpha: float) -> Floats:
    """Differences without any effect, keyed (studies, n, A): all arms share the baseline's noise
    (so they correlate by 1/2) and differ in size; the first has unit variance."""
    vectors = min(2 ** (n - 1), _vectors(alpha))
    studies = int(np.clip(_WORK // (arms * (vectors + 4 * arms)), *_STUDIES))
    rng = np.random.default_rng([n, arms])
    cells = rng.standard_normal((studies, n, arms + 1)) / 2**0.5
    size = np.sqrt((_SHAPE - 1.0) / rng.gamma(_SHAPE, size=(studies, 1, arms)))
    return np.asarray((cells[:, :, 1:] - cells[:, :, :1]) * (size / size[:, :, :1]))


def _share_seen(null: Floats, effect: float, alpha: float) -> float:
    """Share of studies (studies, n, A) whose first arm, moved by `effect`, gets the right
    verdict."""
    moved = null.copy()
    moved[:, :, 0] += effect
    # the interval excludes zero
    moved = moved[moved[:, :, 0].mean(axis=1) > half_widths(moved, alpha)[:, 0]]
    if not len(moved):
        return 0.0
    signs = sign_vectors(null.shape[1])
    if len(signs) > (most := _vectors(alpha)):
        drawn = np.random.default_rng(null.shape[1]).choice(len(signs) - 1, most - 1, replace=False)
        signs = signs[np.concatenate([[0], drawn + 1])]  # the observed one stays first
    return int((adjusted(moved, alpha=alpha, signs=signs)[:, 0] <= alpha).sum()) / len(null)


def _check(n: int, arms: int, alpha: float, power: float = 0.8) -> None:
    if n < 2:
        raise ValueError(f"a paired comparison needs at least 2 pairs, found {n}")
    if arms < 1:
        raise ValueError(f"a family needs at least one arm, found {arms}")
    if not (0.0 < alpha < 1.0 and alpha < power < 1.0):
        raise ValueError(f"expected 0 < alpha < power < 1, found alpha {alpha} and power {power}")


# --------------------------------------------------------------------------------------------------
# What a fractional design can see, beside one lever at a time with as many cells.
#
# S seeds, K levers


_FRACTION_STUDIES = 2000  # simulated: power is known to about +-0.02 at 0.8


def fraction_detectable(plan: Design) -> float | None:
    """The smallest true effect of a lever that gets its verdict in four studies of five, in units
    of the scatter of a single cell; None where none does. A contrast halves the cells: it scatters
    by 2 / sqrt(combinations) of that."""
    combinations, levers = fraction_of(plan).on.shape
    units = contrast_detectable(plan, len(plan.seeds), levers)
    return None if units is None else 2.0 * units / math.sqrt(combinations)


def contrast_detectable(plan: Design, seeds: int, levers: int) -> float | None:
    """The same in units of the scatter of a lever's contrast over seeds, of which so many are
    there."""
    if len(plan.seeds) >= pairs_needed(plan.alpha):
        return detectable(seeds, levers, alpha=plan.alpha)
    return _by_normal_theory(seeds, levers, plan.alpha)


def one_at_a_time(plan: Design) -> tuple[int, float | None]:
    """As many cells spent on every lever alone: how many seeds that gives, and what they would
    see."""
    combinations, levers = fraction_of(plan).on.shape
    seeds = combinations * len(plan.seeds) // (levers + 1)
    units = (
        detectable(seeds, levers, alpha=plan.alpha) if seeds >= pairs_needed(plan.alpha) else None
    )
    return seeds, None if units is None else math.sqrt(2.0) * units


@lru_cache(maxsize=64)
def _by_normal_theory(seeds: int, levers: int, alpha: float) -> float:
    """In units of the scatter of a contrast, by simulation of the rule, keyed."""
    null = np.random.default_rng([seeds, levers]).standard_normal(
        (_FRACTION_STUDIES, seeds, levers)
    )

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
