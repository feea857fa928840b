"""How loud an arm's differences are, steadied by the arms that are about as loud.  (limma's moderated t, Smyth 2004)

Six differences say little about their own scatter: one of 25 arms always looks calm by luck, and a t-test believes it.
So the scatter of an arm is averaged with that of its *neighbours*, the arms of the family whose second moment lies within
a factor that chance explains. How much they count, `degrees`, follows from how alike they are. An arm without neighbours
stands alone, and its statistics are Student's.

The test takes second moments about zero, sum d^2, which no flip of signs changes: so it is exact. (Moments about the mean,
recomputed under every flip, were tried: arms with true effects inflate the flipped variances, and the family error
rises to .09 where eight of 25 arms do something.) Only the test shares scatter. Intervals do not (`half_widths`).

n seeds, A arms
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import polygamma, psi

from fulcrum.study.judge.statistics.effect import Floats

_SHAPE = 3.0  # expected unlikeness of arms, before their data: variances as 1 / gamma(3)
_WEIGHT = 8.0  # arms' worth of data that this expectation counts for
_WINDOW = 3.0  # neighbours: log moments within so many standard deviations of what chance and _SHAPE give
_GRID = np.geomspace(2e-3, 2e5, 4000)  # degrees of freedom at which the trigamma function is tabulated
_SPREAD = np.log(polygamma(1, _GRID / 2.0))  # of log variances with so many degrees, as a logarithm; falls


class SharedScatter(NamedTuple):
    """What an arm's neighbours say about its variance: its size, and how many degrees of freedom that is worth."""

    degrees: Floats  # (..., A), 0 where an arm stands alone
    variance: Floats  # (..., A)


def shared_scatter(moment: Floats, pairs: Floats, groups: NDArray[np.int64] | None = None) -> SharedScatter:
    """The prior of every arm: moment (..., A), a sum of squares, and how many (..., A) independent ones are in it.

    Only arms of one group (A,) are compared: those of one metric. The spread of log moments beyond what `pairs` alone
    give is fitted among an arm's neighbours, and steadied by the expectation; that the middle of few neighbours is not
    well known counts as further spread.
    """
    usable = (moment > 0.0) & (pairs >= 1.0)
    half = np.where(usable, pairs, 2.0) / 2.0
    chance, expected = polygamma(1, half), float(polygamma(1, _SHAPE))  # variance of a log moment, and of log variances
    size = np.where(usable, np.log(np.where(usable, moment / (2.0 * half), 1.0)) - psi(half) + np.log(half), 0.0)
    reach = _WINDOW * np.sqrt((chance[..., :, None] + chance[..., None, :]) / 2.0 + expected)
    near = np.abs(size[..., :, None] - size[..., None, :]) <= reach  # (..., A, A)
    near &= usable[..., :, None] & usable[..., None, :]
    if groups is not None:
        near &= groups[:, None] == groups[None, :]
    count = np.maximum(near.sum(axis=-1), 1)
    middle = (near * size[..., None, :]).sum(axis=-1) / count
    around = (near * np.square(size[..., None, :] - middle[..., :, None])).sum(axis=-1)
    by_chance = (count - 1) * (near * chance[..., None, :]).sum(axis=-1) / count
    spread = np.maximum((around - by_chance + _WEIGHT * expected) / (count - 1 + _WEIGHT), 1e-5)
    others = np.maximum(count - 1, 1)
    degrees = np.where(count > 1, _degrees(spread + (spread + chance) / others), 0.0)
    held = np.where(count > 1, degrees, 2.0) / 2.0
    return SharedScatter(degrees, np.where(count > 1, np.exp(middle + psi(held) - np.log(held)), 0.0))


def normal_square(explained: Floats, degrees: Floats) -> Floats:
    """The square of t with so many degrees of freedom on the normal scale (Wallace 1959), so that arms with unequal
    numbers of pairs and of neighbours weigh alike; explained = t^2 / (t^2 + degrees)."""
    scale = degrees * np.square((8.0 * degrees + 1.0) / (8.0 * degrees + 3.0))
    return np.asarray(-scale * np.log(np.maximum(1.0 - explained, 1e-12)))


def _degrees(spread: Floats) -> Floats:
    """Degrees of freedom whose log variances have this spread: the inverse of the trigamma function."""
    return np.asarray(np.exp(np.interp(-np.log(spread), -_SPREAD, np.log(_GRID))))
