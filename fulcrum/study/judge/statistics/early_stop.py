"""When an arm may end early: the crossing guard. Curves cross: alignment helps early and hurts late, routing the reverse.

An arm is stopped only when, over several successive evaluation points, the interval of its paired differences lies on the
worse side of the baseline, *and* the differences, carried on as they move, do not come back by the end of the budget. A
decaying learning rate turns curves where it begins: a loud arm calms down then, and may well win. Points from before say
nothing about the end, so only those within the decay count. A stopped arm is censored: it has no final value, and its
verdict says so.

n pairs, P points
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from fulcrum.judge.card import Better
from fulcrum.judge.statistics import Floats
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import own_rates


def telling_share(arm: RunSpec, base: RunSpec) -> float:
    """The share of the budget, at its end, whose points tell of the end: where the rate of either side decays, and not
    before a stage with a rate of its own begins, which turns curves too; 0: all of it."""
    decay = max(arm.optim.decay, base.optim.decay)
    turns = [stage.start / run.budget.images for run in (arm, base) for stage in own_rates(run)]
    return min(decay or 1.0, 1.0 - max(turns)) if turns else decay


def enough_points(shares: Sequence[float], decay: float, successive: int) -> bool:
    """Are so many of these shares of the budget within the share at its end whose points tell of the end?"""
    return sum(share >= 1.0 - (decay or 1.0) - 1e-9 for share in shares) >= successive


def hopeless(
    shares: Sequence[float],
    differences: Floats,
    better: Better,
    *,
    decay: float = 0.0,
    successive: int = 3,
    level: float = 0.99,
) -> bool:
    """May the arm be stopped at the last of `shares` of the budget?  differences (n, P): arm minus baseline.

    decay: the share of the budget, at its end, over which the learning rate of either side falls; 0: it stays.
    """
    worse = np.asarray(differences if better == "lower" else -differences, dtype=np.float64)
    n = len(worse)
    if n < 2 or not np.isfinite(worse).all() or not enough_points(shares, decay, successive):
        return False
    recent, places = worse[:, -successive:], np.asarray(shares[-successive:], dtype=np.float64)
    reach = float(stdtrit(n - 1, 0.5 + level / 2)) / math.sqrt(n)
    low = recent.mean(axis=0) - reach * recent.std(axis=0, ddof=1)
    if not (low > 0.0).all():
        return False
    return all(_low_at_end(recent, axis, reach) > 0.0 for axis in (places, np.log(places)))


def _low_at_end(recent: Floats, axis: Floats, reach: float) -> float:
    """The optimistic end of the interval of the differences at the budget's end: each seed's line carried on.

    Asked twice, with the budget and with its logarithm as the axis: the first carries a late turn further.
    """
    end = 1.0 if axis.max() > 0.0 else 0.0  # the whole budget, or its logarithm
    centred = axis - axis.mean()
    slope = (recent @ centred) / float(centred @ centred)  # (n,)
    final = recent.mean(axis=1) + slope * (end - axis.mean())
    return float(final.mean() - reach * final.std(ddof=1))
