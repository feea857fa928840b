"""What a reader should know about the differences of an arm: skew, and one seed that stands apart from all others.

n pairs
"""

import math

import numpy as np
from scipy.special import stdtr

from fulcrum.spec.remark import Remark, remark
from fulcrum.study.judge.statistics.effect import Floats

_APART = 0.01  # how rarely a seed of normal differences is called one that stands apart
_SKEWED = 2.0  # standard errors of the skewness


def oddities(differences: Floats, margin: float) -> tuple[Remark, ...]:
    """Warnings; none where the differences (n,) look as a sign-flip test assumes them."""
    apart = _one_apart(differences, margin)
    if apart is not None:
        return (apart,)
    return (remark("skewed", "the differences are skewed"),) if _skewed(differences) else ()


def _one_apart(differences: Floats, margin: float) -> Remark | None:
    """The seed farthest from the mean of the others, held against their scatter (a deleted residual, Bonferroni)."""
    n = len(differences)
    if n < 4 or not differences.any():
        return None
    others = (differences.sum() - differences) / (n - 1)  # mean without each seed
    seed = int(np.argmax(np.abs(differences - others)))
    distance = abs(float(differences[seed] - others[seed]))
    scatter = float(np.delete(differences, seed).std(ddof=1))
    if distance <= margin or distance <= 1e-9 * float(np.abs(differences).max()):
        return None
    t = distance / (scatter * math.sqrt(1.0 + 1.0 / (n - 1))) if scatter > 0.0 else math.inf
    if 2.0 * float(stdtr(n - 2, -t)) * n > _APART:
        return None
    size = f"{distance / margin:.0f} margins" if margin > 0.0 else f"{distance:.3g}"
    text = f"{n - 1} of {n} seeds agree, one is {size} off"
    return remark("one-seed-apart", text, pairs=n, distance=distance)


def _skewed(differences: Floats) -> bool:
    n, centred = len(differences), differences - differences.mean()
    spread = math.sqrt(float(np.square(centred).mean()))
    if n < 4 or spread <= 1e-300:
        return False
    skewness = float(np.power(centred / spread, 3).mean()) * math.sqrt(n * (n - 1)) / (n - 2)
    error = math.sqrt(6.0 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
    return abs(skewness) > _SKEWED * error
