"""What a plan can see: the smallest effect it detects.

Two answers. *Student*: the paired t-test alone, by the noncentral t. *Rule*: what our verdicts really ask for, the
corrected sign-flip p and an interval without zero; at six pairs it needs all six differences to agree in sign, so it
detects less than Student says. A plan should print the rule's answer.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import nctdtr, stdtrit

from fulcrum.study.judge.effect import EXACT_PAIRS, Floats
from fulcrum.study.judge.moderation import half_widths
from fulcrum.study.judge.rank import adjusted, pairs_needed

_STUDIES = 1000  # simulated studies: power is known to about +-0.025 at 0.8
_LARGEST = 50.0  # in units of sd: an effect that even this does not show cannot be shown


def student_power(effect: float, sd: float, n: int, alpha: float = 0.05) -> float:
    """Chance that a two-sided paired t-test sees a true effect."""
    _check(sd, n, alpha)
    noncentral, critical = abs(effect) / sd * math.sqrt(n), float(stdtrit(n - 1, 1.0 - alpha / 2))
    return 1.0 - float(nctdtr(n - 1, noncentral, critical)) + float(nctdtr(n - 1, noncentral, -critical))


def student_detectable(sd: float, n: int, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """Smallest true effect that a paired t-test sees with the given chance."""
    _check(sd, n, alpha, power)
    low, high = 0.0, 1.0
    while student_power(high * sd, sd, n, alpha) < power:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if student_power(middle * sd, sd, n, alpha) >= power else (middle, high)
    return high * sd


def rule_detectable(sd: float, n: int, *, arms: int = 1, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """Smallest true effect of one arm among `arms` that gets its verdict with the given chance (the others have none);
    None where no effect can (too few pairs).

    Simulated, keyed, with independent noise of equal size in every cell, baseline included (so arms correlate by 1/2).
    Beyond the pairs that are enumerated exactly, the sign-flip test sees what Student's sees, and that is returned.
    """
    _check(sd, n, alpha, power)
    if n < pairs_needed(alpha):
        return None
    if n > EXACT_PAIRS:
        return student_detectable(sd, n, power=power, alpha=alpha)
    in_units = _detectable_in_units_of_sd(n, arms, power, alpha)
    return None if in_units is None else in_units * sd


@lru_cache(maxsize=64)
def _detectable_in_units_of_sd(n: int, arms: int, power: float, alpha: float) -> float | None:
    """Simulated once: every arm and metric of a study asks for it, and so does every version of its page."""
    null = _null_studies(n, arms)
    if _share_seen(null, _LARGEST, alpha) < power:
        return None
    low, high = 0.0, 1.0
    while _share_seen(null, high, alpha) < power:
        low, high = high, high * 2.0
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (low, middle) if _share_seen(null, middle, alpha) >= power else (middle, high)
    return high


def _null_studies(n: int, arms: int) -> Floats:
    """Differences without any effect, of unit spread.  (studies, n, arms)"""
    cells = np.random.default_rng([n, arms]).standard_normal((_STUDIES, n, arms + 1)) / math.sqrt(2.0)
    return np.asarray(cells[:, :, 1:] - cells[:, :, :1])


def _share_seen(null: Floats, effect: float, alpha: float) -> float:
    """Share of studies (studies, n, arms) whose first arm, moved by `effect`, gets a verdict."""
    moved = null.copy()
    moved[:, :, 0] += effect
    moved = moved[np.abs(moved[:, :, 0].mean(axis=1)) > half_widths(moved, alpha)[:, 0]]  # the interval excludes zero
    return int((adjusted(moved, alpha=alpha)[:, 0] <= alpha).sum()) / len(null) if len(moved) else 0.0


def _check(sd: float, n: int, alpha: float, power: float = 0.8) -> None:
    if not (sd > 0.0 and math.isfinite(sd)):
        raise ValueError(f"expected a positive spread of the differences, found {sd}")
    if n < 2:
        raise ValueError(f"a paired comparison needs at least 2 pairs, found {n}")
    if not (0.0 < alpha < 1.0 and alpha < power < 1.0):
        raise ValueError(f"expected 0 < alpha < power < 1, found alpha {alpha} and power {power}")
