"""Intervals for one measurement: delete-a-group jackknife for distances, bootstrap over images for shares.

They cover the chance in *which pictures were drawn* from one trained model, with the reference held fixed. The
chance in training is larger and is the study's business (retraining moves FID about three times more than resampling).
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

GROUPS = 32
DRAWS = 1000
_CONFIDENCE = 0.95

Interval = tuple[float, float, float]  # value, low, high

JACKKNIFE = f"95 %, jackknife over {GROUPS} groups of generated images, reference held fixed"
BOOTSTRAP = f"95 %, bootstrap over images, {DRAWS} draws"


def jackknife(value: float, replicates: Sequence[float]) -> tuple[float, float]:
    """Interval about `value` from its delete-a-group replicates, Student with G - 1 degrees.

    Not a bootstrap: doubled rows make a resampled covariance too narrow, and with it a Fréchet distance too large, so
    that the percentile interval need not even hold the value. Deleting a group doubles nothing.
    """
    count = len(replicates)
    if count < 2:
        raise ValueError(f"a jackknife needs at least 2 replicates, found {count}")
    spread = np.asarray(replicates, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # infinities give NaN, which whoever asked refuses by name
        error = math.sqrt((count - 1) / count * float(((spread - spread.mean()) ** 2).sum()))
    reach = student_quantile(count - 1, 0.5 + _CONFIDENCE / 2) * error
    return value - reach, value + reach


def student_quantile(degrees: int, share: float) -> float:
    """Of Student's distribution: what lies below it is this share."""
    from scipy.special import stdtrit  # 0.2 s to import, which a worker's first step does not wait for

    return float(stdtrit(degrees, share))


def student(mean: float, deviation: float, n: int) -> Interval:
    """The mean of n pictures' numbers and its interval."""
    if n < 2:
        raise ValueError(f"a mean with its interval needs at least 2 pictures, found {n}")
    reach = student_quantile(n - 1, 0.5 + _CONFIDENCE / 2) * deviation / math.sqrt(n)
    return mean, mean - reach, mean + reach


def within_shares(value: float, low: float, high: float) -> Interval:
    """A share's value and interval, the interval cut at 0 and 1: Student's reaches past them where a share is near one."""
    return value, min(max(low, 0.0), value), max(min(high, 1.0), value)


def bootstrap_shares(
    right: NDArray[np.int64], asked: NDArray[np.int64], key: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile intervals (low, high) of sum(right) / sum(asked), images resampled whole.  right, asked (n, k)

    The draws are keyed, so that the same pictures always give the same interval. Where every image agrees a bootstrap
    sees no spread at all; the exact bound for n equal outcomes stands in.
    """
    n, k = right.shape
    rng = np.random.default_rng(key)
    both = np.concatenate([right, asked], axis=1).astype(np.float64)  # (n, 2k)
    sums = np.empty((DRAWS, 2 * k))
    for draw in range(DRAWS):
        sums[draw] = np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64) @ both
    shares = sums[:, :k] / np.maximum(sums[:, k:], 1.0)  # (draws, k)
    tail = (1.0 - _CONFIDENCE) / 2
    low, high = np.quantile(shares, [tail, 1.0 - tail], axis=0)
    bound = tail ** (1.0 / n)
    total_right, total_asked = right.sum(axis=0), asked.sum(axis=0)
    low = np.where(total_right == total_asked, np.minimum(low, bound), low)
    high = np.where(total_right == 0, np.maximum(high, 1.0 - bound), high)
    return low, high
