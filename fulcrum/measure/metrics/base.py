"""What every metric over features is: its facts, its interval, and the check of its answer."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.judge.card import MEASURE_VERSION, Better, Sees
from fulcrum.measure.features.kept import Rows, Scores
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import failed, home, place

# --------------------------------------------------------------------------------------------------
# Intervals for one measurement: delete-a-group jackknife for distances, bootstrap over images for
# shares.
#
# They cover the chance in *which pictures were drawn* from one trained model, with the reference
# held fixed. The chance in training is larger and is the study's business (retraining moves FID
# about three times more than resampling).


GROUPS = 32
DRAWS = 1000
_CONFIDENCE = 0.95

Interval = tuple[float, float, float]  # value, low, high

JACKKNIFE = f"95 %, jackknife over {GROUPS} groups of generated images, reference held fixed"
BOOTSTRAP = f"95 %, bootstrap over images, {DRAWS} draws"


def jackknife(value: float, replicates: Sequence[float]) -> tuple[float, float]:
    """Interval about `value` from its delete-a-group replicates, Student with G - 1 degrees.

    Not a bootstrap: doubled rows make a resampled covariance too narrow, and with it a Fréchet
    distance too large, so that the percentile interval need not even hold the value. Deleting a
    group doubles nothing.
    """
    count = len(replicates)
    if count < 2:
        raise ValueError(f"a jackknife needs at least 2 replicates, found {count}")
    spread = np.asarray(replicates, dtype=np.float64)
    # infinities give NaN, which whoever asked refuses by name
    with np.errstate(invalid="ignore", over="ignore"):
        error = math.sqrt((count - 1) / count * float(((spread - spread.mean()) ** 2).sum()))
    reach = student_quantile(count - 1, 0.5 + _CONFIDENCE / 2) * error
    return value - reach, value + reach


def student_quantile(degrees: int, share: float) -> float:
    """Of Student's distribution: what lies below it is this share."""
    # 0.2 s to import, which a worker's first step does not wait for
    from scipy.special import stdtrit

    return float(stdtrit(degrees, share))


def student(mean: float, deviation: float, n: int) -> Interval:
    """The mean of n pictures' numbers and its interval."""
    if n < 2:
        raise ValueError(f"a mean with its interval needs at least 2 pictures, found {n}")
    reach = student_quantile(n - 1, 0.5 + _CONFIDENCE / 2) * deviation / math.sqrt(n)
    return mean, mean - reach, mean + reach


def within_shares(value: float, low: float, high: float) -> Interval:
    """A share's value and interval, the interval cut at 0 and 1: Student's reaches past them where
    a share is near one."""
    return value, min(max(low, 0.0), value), max(min(high, 1.0), value)


def bootstrap_shares(
    right: NDArray[np.int64], asked: NDArray[np.int64], key: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentile intervals (low, high) of sum(right) / sum(asked), images resampled whole.  right,
    asked (n, k)

    The draws are keyed, so that the same pictures always give the same interval. Where every image
    agrees a bootstrap sees no spread at all; the exact bound for n equal outcomes stands in.
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


# --------------------------------------------------------------------------------------------------
# What every metric over features is: its facts, what it gathers, what it computes. Your own metrics
# derive from it too.
#
# n generated rows, m reference rows, d feature width


MINIMUM = 2 * GROUPS  # pictures: a jackknife group of one row would leave no pair inside it
# Features of this width and more are compared with less effort: products in fp32, eight groups for
# a Fréchet distance. In fp64 and with 32 groups Inception's 2,048 would take minutes and a
# gigabyte; the embedded network's 64 take none.
WIDE = 512


class Distance(ABC):
    """Compares the features of pictures with those of a reference."""

    name: str
    label: str
    unit: str = ""
    better: Better = "lower"
    explain: str = ""
    estimator: str  # what is computed, in words: part of the card
    interval: str = JACKKNIFE
    minimum: int = MINIMUM  # pictures, on either side
    #: what it declares about each fault of the probe; what is not named is not promised
    sees: Sees = {}
    code: str = MEASURE_VERSION  # of the computation; a user's file adds its own hash
    referenced: bool = True  # whether the value depends on reference pictures
    gathers: type = Rows  # metrics that gather the same share one gathering

    def gather(self, width: int, reference: bool) -> Any:
        """An empty gathering for features of this width."""
        return self.gathers(width)

    def described(self, width: int) -> tuple[str, str]:
        """The estimator and the interval in words, as a card of features of this width has them."""
        return self.estimator, self.interval

    def caution(self, pictures: Any) -> str | None:
        """What a reader should know before trusting the number of these gathered pictures; for the
        card."""
        return None

    @abstractmethod
    def compute(self, pictures: Any, reference: Any) -> Interval:
        """Value, low and high of the gathered pictures against the gathered reference."""


class MeanScore(Distance):
    """The mean of one score per picture."""

    interval = "95 %, Student over pictures"
    gathers = Scores
    minimum = 2

    def gather(self, width: int, reference: bool) -> Scores:
        return Scores(1)

    def compute(self, pictures: Scores, reference: Any = None) -> Interval:
        scores = pictures.rows[:, 0].double()
        return student(float(scores.mean()), float(scores.std()), len(scores))


class RowDistance(Distance):
    """A metric that is a function of two sets of rows; its interval comes from leaving out groups
    of pictures."""

    @abstractmethod
    def value(self, pictures: Tensor, reference: Tensor) -> float:
        """The metric of rows (n, d) against rows (m, d)."""

    def compute(self, pictures: Rows, reference: Rows) -> Interval:
        rows, around = pictures.rows, reference.rows
        group = torch.arange(len(rows)) % GROUPS
        whole = float(self.value(rows, around))
        left = [float(self.value(rows[group != leave], around)) for leave in range(GROUPS)]
        return (whole, *jackknife(whole, left))


# --------------------------------------------------------------------------------------------------
# A metric's answer, checked before anyone believes it: three finite numbers in order, and features
# left as they were.


GUIDE = "see docs/write-a-metric.md"
FEATURES = "look at the features: constant or enormous ones have no distance"


class NoValue(BadInput):
    """The pictures are such that a metric of them has no value: constant, or with features that are
    not finite."""


def answered(metric: Distance, label: str, pictures: Any, reference: Any) -> Interval:
    """The metric of gathered pictures against a gathered reference; what a user's own metric does
    wrong is told as such."""
    own = home(metric)
    given = [getattr(gathered, "rows", None) for gathered in (pictures, reference)] if own else []
    shared = [rows for rows in given if isinstance(rows, Tensor)]
    before = [rows._version for rows in shared]
    try:
        value, low, high = (float(number) for number in metric.compute(pictures, reference))
    except BadInput:
        raise
    # a metric that ends the process would end it with success and no word
    except (Exception, SystemExit) as error:
        if place(error):
            raise failed(error, f"{label} failed") from error
        if own:
            raise BadInput(
                f"{label}{own} gave no value with an interval: {type(error).__name__}: {error}",
                f"`value` returns a number, `compute` (value, low, high): {GUIDE}",
            ) from error
        if isinstance(error, ValueError):
            raise NoValue(f"{label} cannot be computed: {error}", FEATURES) from error
        raise
    if [rows._version for rows in shared] != before:
        raise BadInput(
            f"{label}{own} changes the features that it is given, which all metrics share",
            f"work on a copy, `pictures.clone()`: {GUIDE}",
        )
    if not all(math.isfinite(number) for number in (value, low, high)):
        raise NoValue(f"{label}{own} is not finite ({value}, interval {low} to {high})", FEATURES)
    if low > high:
        raise BadInput(
            f"{label}{own}: the interval is upside down, {low} to {high}",
            f"return (value, low, high): {GUIDE}",
        )
    return within_shares(value, low, high) if metric.unit == "share" else (value, low, high)
