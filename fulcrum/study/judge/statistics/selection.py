"""An effect without the flattery of having been picked: what is left of it for a headline.

Only effects that stand far enough from zero get a verdict, so those that do are too large on average: a true effect of
half a margin shows three times its size. The conditional estimate asks which true effect makes the one that was seen
most likely *among those that pass*; just above the bar it falls almost to zero, which is too little. So it is averaged
with the raw one, which counts the less the farther the two are apart (Zhong and Prentice 2008, with 0.55 of their weight:
exaggeration stays below 1.5 at half a margin of six pairs, and four standard errors, on the
normal scale, lose a tenth or so at most: by Student's law with eight pairs that is 8.6 of the effect's own).

It never leaves the effect's own interval: with 31 arms and eight pairs the bar is so high that effects of which all seeds
agree fell to a fifth, "about -0.05" beside [-0.32, -0.13].
"""

import math

import numpy as np
from scipy.special import log_ndtr, ndtri

_RAW = 0.55  # weight of the raw effect where both agree


def headline_size(mean: float, reach: float, share: float) -> float:
    """What a headline says of a picked effect: the kept share of its mean, and no less than its interval allows."""
    least = max(abs(mean) - reach, 0.0)
    return math.copysign(max(abs(mean) * share, least), mean)


def kept_share(distance: float, level: float) -> float:
    """The share of a picked effect that remains: `distance` from zero in standard errors, on the normal scale; picked
    where it passed a two-sided test at `level`."""
    if distance <= 0.0:
        return 1.0
    bar = min(-float(ndtri(level / 2.0)), distance)
    truths = np.linspace(0.0, distance, 401)
    passing = np.logaddexp(log_ndtr(truths - bar), log_ndtr(-truths - bar))  # log chance to pass the bar
    likely = float(truths[np.argmax(-0.5 * np.square(distance - truths) - passing)])
    weight = _RAW / (1.0 + (distance - likely) ** 2)
    return (weight * distance + (1.0 - weight) * likely) / distance


def attained_level(alpha: float, arms: int, pairs: int) -> float:
    """The level at which one of `arms` is really tested: sign flips of few pairs come in steps of 2 / 2^n."""
    steps = 2.0 ** (min(pairs, 50) - 1)
    return min(alpha / arms, max(math.floor(alpha * steps), 1) / steps)
