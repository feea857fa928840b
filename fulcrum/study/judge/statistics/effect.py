"""The effect of an arm: paired differences over seeds, with interval and correlation, and the signs that a test flips.

n pairs, S sign vectors
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import stdtrit

from fulcrum.report.finding import Effect, Noise
from fulcrum.spec.remark import Remark, remark

Floats = NDArray[np.float64]

EXACT_PAIRS = 12  # up to here all sign vectors are enumerated (2,048 up to the common sign)
_SAMPLED = 20_000  # sign vectors beyond that, keyed: the same study always gives the same p
_TIE = 1e-9  # relative: statistics this close are equal, so that rounding cannot decide a p-value


class PairedEffect(Effect):
    """The report's record of an effect, and the pairs that its verdict is made from, which no page shows."""

    mean: float
    low: float
    high: float
    p_adjusted: float | None = None  # this and the verdicts are filled in by `judge`
    verdict: str = ""
    claim_verdict: str | None = None
    seeds: tuple[int, ...] = Field(exclude=True)
    differences: tuple[float, ...] = Field(exclude=True)  # arm - baseline, in the order of the seeds
    sd: float = Field(exclude=True)  # of the differences
    baseline: float = Field(exclude=True)  # mean of the baseline


def paired_effect(
    baseline: Mapping[int, float], arm: Mapping[int, float], *, name: str, metric: str, unit: str = "",
    seeds: Sequence[int] | None = None, planned: int = 0, failed: int = 0, level: float = 0.95,
) -> PairedEffect:  # fmt: skip
    """Paired differences over the seeds that both sides have; `seeds` limits them.

    The interval is Student's on the differences: at six pairs a bootstrap covers only about 85 % where it says 95.
    """
    wanted = sorted(set(baseline) | set(arm)) if seeds is None else list(seeds)
    if len(set(wanted)) != len(wanted):
        raise ValueError(f"a seed stands twice in {wanted}: a repeated seed is no new pair")
    paired = [seed for seed in wanted if seed in baseline and seed in arm]
    if len(paired) < 2:
        raise ValueError(f"{metric} of {name!r}: a paired effect needs at least 2 seeds, found {len(paired)}")
    before = np.array([baseline[seed] for seed in paired], dtype=np.float64)
    after = np.array([arm[seed] for seed in paired], dtype=np.float64)
    for side, values in (("baseline", before), (name, after)):
        if not np.isfinite(values).all():
            bad = [seed for seed, value in zip(paired, values, strict=True) if not math.isfinite(value)]
            raise ValueError(f"{metric} of {side!r} is not finite at seeds {bad}: such a cell failed, and is no number")
    differences = after - before
    n, mean, sd = len(paired), float(differences.mean()), float(differences.std(ddof=1))
    low, high = student_interval(mean, sd, n, level)
    return PairedEffect(
        arm=name, metric=metric, unit=unit, n=n, mean=mean, low=low, high=high, correlation=_correlation(before, after),
        planned=planned, failed=failed, seeds=tuple(paired), differences=tuple(differences.tolist()), sd=sd,
        baseline=float(before.mean()),
    )  # fmt: skip


def effect_without_pairs(
    name: str, metric: str, *, unit: str = "", planned: int, failed: int, mean: float | None = None
) -> Effect:
    """The record of an arm with fewer than two pairs (`mean`: the difference of the only one): failed where every seed that
    the plan asks for did, and otherwise no answer."""
    effect = Effect(
        arm=name, metric=metric, unit=unit, n=0 if mean is None else 1, mean=mean, low=None, high=None, correlation=None,
        p_adjusted=None, verdict="failed" if 0 < planned <= failed else "inconclusive", claim_verdict=None,
        planned=planned, failed=failed,
    )  # fmt: skip
    return effect.noted(failures_note(planned, failed))


def failures_note(planned: int, failed: int) -> Remark | None:
    """How many seeds of an arm failed; None where none did."""
    if not failed:
        return None
    text = f"all {planned} seeds failed" if failed >= planned > 0 else f"{failed} of {planned or '?'} seeds failed"
    return remark("seeds-failed", text, failed=failed, planned=planned)


def noise_floor(baseline: Mapping[int, float], metric: str) -> Noise:
    """Scatter of the baseline over its seeds: a gap below it needs pairing to be seen at all."""
    values = np.array(list(baseline.values()), dtype=np.float64)
    if len(values) < 2:
        raise ValueError(f"{metric}: a noise floor needs at least 2 baseline seeds, found {len(values)}")
    if not np.isfinite(values).all():
        raise ValueError(f"{metric}: a baseline value is not finite: {dict(baseline)}")
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    return Noise(metric=metric, n=len(values), mean=mean, sd=sd, cv=sd / abs(mean) if mean else None)


def student_interval(mean: float, sd: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval for the mean of n differences."""
    reach = float(stdtrit(n - 1, 0.5 + level / 2)) * sd / math.sqrt(n)
    return mean - reach, mean + reach


def half_widths(differences: Floats, alpha: float) -> Floats:
    """Half of Student's interval for the mean of every arm at 1 - alpha.  differences (..., n, A), NaN: no pair -> (..., A)

    Each arm by its own scatter. A variance shared with the family, as the test has it, makes the interval of an arm that is
    louder than its neighbours too narrow: three times louder than 24 others it covered .73 at six pairs, and was called a
    tie at a whole margin in .17 of studies. Power and true ties were the same within .003.
    """
    present = np.isfinite(differences)
    pairs = present.sum(axis=-2).astype(np.float64)
    n, own = np.maximum(pairs, 1.0), np.maximum(pairs - 1.0, 1.0)
    means = np.where(present, differences, 0.0).sum(axis=-2) / n
    around = np.square(np.where(present, differences - means[..., None, :], 0.0)).sum(axis=-2)
    return np.where(pairs > 1.0, stdtrit(own, 1.0 - alpha / 2.0) * np.sqrt(around / own / n), math.inf)


@lru_cache(maxsize=8)
def sign_vectors(n: int) -> Floats:
    """Sign vectors (S, n), the observed one first; up to `EXACT_PAIRS` all there are.

    Flipping every sign at once changes no two-sided statistic, so the first sign stays +: half the vectors, same p.
    """
    if n <= EXACT_PAIRS:
        bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1)) & 1  # (S, n - 1)
        signs = np.concatenate([np.ones((len(bits), 1)), 1.0 - 2.0 * bits], axis=1)
    else:
        drawn = 1.0 - 2.0 * np.random.default_rng([0, n]).integers(0, 2, size=(_SAMPLED, n))
        signs = np.concatenate([np.ones((1, n)), drawn])  # the observed vector counts: p is never zero
    signs.flags.writeable = False  # one array serves all arms and metrics
    return signs


def at_least(statistics: Floats, observed: Floats) -> NDArray[np.bool_]:
    """Which statistics reach the observed one, ties included."""
    return np.asarray(statistics >= observed * (1.0 - _TIE))


def _correlation(before: Floats, after: Floats) -> float | None:
    spread = float(before.std() * after.std())
    if spread <= 1e-300:
        return None
    return float(np.clip(((before - before.mean()) * (after - after.mean())).mean() / spread, -1.0, 1.0))
