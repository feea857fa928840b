"""Effects of paired cells: outliers, moderation, joint sign-flip test, verdicts."""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import log_ndtr, ndtri, polygamma, psi, stdtr, stdtrit

from fulcrum.judge.card import Better
from fulcrum.judge.schema import Effect, Noise
from fulcrum.spec.remark import Remark, remark

# --------------------------------------------------------------------------------------------------
# The effect of an arm: paired differences over seeds, with interval and correlation, and the signs
# that a test flips.
#
# n pairs, S sign vectors


Floats = NDArray[np.float64]

EXACT_PAIRS = 12  # up to here all sign vectors are enumerated (2,048 up to the common sign)
_SAMPLED = 20_000  # sign vectors beyond that, keyed: the same study always gives the same p
_TIE = 1e-9  # relative: statistics this close are equal, so that rounding cannot decide a p-value


class PairedEffect(Effect):
    """The report's record of an effect, and the pairs that its verdict is made from, which no page
    shows."""

    mean: float
    low: float
    high: float
    p_adjusted: float | None = None  # this and the verdicts are filled in by `judge`
    verdict: str = ""
    claim_verdict: str | None = None
    seeds: tuple[int, ...] = Field(exclude=True)
    #: arm - baseline, in the order of the seeds
    differences: tuple[float, ...] = Field(exclude=True)
    sd: float = Field(exclude=True)  # of the differences
    baseline: float = Field(exclude=True)  # mean of the baseline


def paired_effect(
    baseline: Mapping[int, float],
    arm: Mapping[int, float],
    *,
    name: str,
    metric: str,
    unit: str = "",
    seeds: Sequence[int] | None = None,
    planned: int = 0,
    failed: int = 0,
    level: float = 0.95,
) -> PairedEffect:
    """Paired differences over the seeds that both sides have; `seeds` limits them.

    The interval is Student's on the differences: at six pairs a bootstrap covers only about 85 %
    where it says 95.
    """
    wanted = sorted(set(baseline) | set(arm)) if seeds is None else list(seeds)
    if len(set(wanted)) != len(wanted):
        raise ValueError(f"a seed stands twice in {wanted}: a repeated seed is no new pair")
    paired = [seed for seed in wanted if seed in baseline and seed in arm]
    if len(paired) < 2:
        raise ValueError(
            f"{metric} of {name!r}: a paired effect needs at least 2 seeds, found {len(paired)}"
        )
    before = np.array([baseline[seed] for seed in paired], dtype=np.float64)
    after = np.array([arm[seed] for seed in paired], dtype=np.float64)
    for side, values in (("baseline", before), (name, after)):
        if not np.isfinite(values).all():
            bad = [
                seed for seed, value in zip(paired, values, strict=True) if not math.isfinite(value)
            ]
            raise ValueError(
                f"{metric} of {side!r} is not finite at seeds {bad}: such a cell failed, and is no"
                " number"
            )
    differences = after - before
    n, mean, sd = len(paired), float(differences.mean()), float(differences.std(ddof=1))
    low, high = student_interval(mean, sd, n, level)
    return PairedEffect(
        arm=name,
        metric=metric,
        unit=unit,
        n=n,
        mean=mean,
        low=low,
        high=high,
        correlation=_correlation(before, after),
        planned=planned,
        failed=failed,
        seeds=tuple(paired),
        differences=tuple(differences.tolist()),
        sd=sd,
        baseline=float(before.mean()),
    )


def effect_without_pairs(
    name: str, metric: str, *, unit: str = "", planned: int, failed: int, mean: float | None = None
) -> Effect:
    """The record of an arm with fewer than two pairs (`mean`: the difference of the only one):
    failed where every seed that the plan asks for did, and otherwise no answer."""
    effect = Effect(
        arm=name,
        metric=metric,
        unit=unit,
        n=0 if mean is None else 1,
        mean=mean,
        low=None,
        high=None,
        correlation=None,
        p_adjusted=None,
        verdict="failed" if 0 < planned <= failed else "inconclusive",
        claim_verdict=None,
        planned=planned,
        failed=failed,
    )
    return effect.noted(failures_note(planned, failed))


def failures_note(planned: int, failed: int) -> Remark | None:
    """How many seeds of an arm failed; None where none did."""
    if not failed:
        return None
    text = (
        f"all {planned} seeds failed"
        if failed >= planned > 0
        else f"{failed} of {planned or '?'} seeds failed"
    )
    return remark("seeds-failed", text, failed=failed, planned=planned)


def noise_floor(baseline: Mapping[int, float], metric: str) -> Noise:
    """Scatter of the baseline over its seeds: a gap below it needs pairing to be seen at all."""
    values = np.array(list(baseline.values()), dtype=np.float64)
    if len(values) < 2:
        raise ValueError(
            f"{metric}: a noise floor needs at least 2 baseline seeds, found {len(values)}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{metric}: a baseline value is not finite: {dict(baseline)}")
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    return Noise(
        metric=metric, n=len(values), mean=mean, sd=sd, cv=sd / abs(mean) if mean else None
    )


def student_interval(mean: float, sd: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """Two-sided interval for the mean of n differences."""
    reach = float(stdtrit(n - 1, 0.5 + level / 2)) * sd / math.sqrt(n)
    return mean - reach, mean + reach


def half_widths(differences: Floats, alpha: float) -> Floats:
    """Half of Student's interval for the mean of every arm at 1 - alpha.  differences (..., n, A),
    NaN: no pair -> (..., A)

    Each arm by its own scatter. A variance shared with the family, as the test has it, makes the
    interval of an arm that is louder than its neighbours too narrow: three times louder than 24
    others it covered .73 at six pairs, and was called a tie at a whole margin in .17 of studies.
    Power and true ties were the same within .003.
    """
    present = np.isfinite(differences)
    pairs = present.sum(axis=-2).astype(np.float64)
    n, own = np.maximum(pairs, 1.0), np.maximum(pairs - 1.0, 1.0)
    means = np.where(present, differences, 0.0).sum(axis=-2) / n
    around = np.square(np.where(present, differences - means[..., None, :], 0.0)).sum(axis=-2)
    return np.where(
        pairs > 1.0, stdtrit(own, 1.0 - alpha / 2.0) * np.sqrt(around / own / n), math.inf
    )


@lru_cache(maxsize=8)
def sign_vectors(n: int) -> Floats:
    """Sign vectors (S, n), the observed one first; up to `EXACT_PAIRS` all there are.

    Flipping every sign at once changes no two-sided statistic, so the first sign stays +: half the
    vectors, same p.
    """
    if n <= EXACT_PAIRS:
        bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1)) & 1  # (S, n - 1)
        signs = np.concatenate([np.ones((len(bits), 1)), 1.0 - 2.0 * bits], axis=1)
    else:
        drawn = 1.0 - 2.0 * np.random.default_rng([0, n]).integers(0, 2, size=(_SAMPLED, n))
        # the observed vector counts: p is never zero
        signs = np.concatenate([np.ones((1, n)), drawn])
    signs.flags.writeable = False  # one array serves all arms and metrics
    return signs


def at_least(statistics: Floats, observed: Floats) -> NDArray[np.bool_]:
    """Which statistics reach the observed one, ties included."""
    return np.asarray(statistics >= observed * (1.0 - _TIE))


def _correlation(before: Floats, after: Floats) -> float | None:
    spread = float(before.std() * after.std())
    if spread <= 1e-300:
        return None
    return float(
        np.clip(((before - before.mean()) * (after - after.mean())).mean() / spread, -1.0, 1.0)
    )


# --------------------------------------------------------------------------------------------------
# What a reader should know about the differences of an arm: skew, and one seed that stands apart
# from all others.
#
# n pairs


_APART = 0.01  # how rarely a seed of normal differences is called one that stands apart
_SKEWED = 2.0  # standard errors of the skewness


def oddities(differences: Floats, margin: float) -> tuple[Remark, ...]:
    """Warnings; none where the differences (n,) look as a sign-flip test assumes them."""
    apart = _one_apart(differences, margin)
    if apart is not None:
        return (apart,)
    return (remark("skewed", "the differences are skewed"),) if _skewed(differences) else ()


def _one_apart(differences: Floats, margin: float) -> Remark | None:
    """The seed farthest from the mean of the others, held against their scatter (a deleted
    residual, Bonferroni)."""
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


# --------------------------------------------------------------------------------------------------
# How loud an arm's differences are, steadied by the arms that are about as loud.  (limma's
# moderated t, Smyth 2004)
#
# Six differences say little about their own scatter: one of 25 arms always looks calm by luck, and
# a t-test believes it. So the scatter of an arm is averaged with that of its *neighbours*, the arms
# of the family whose second moment lies within a factor that chance explains. How much they count,
# `degrees`, follows from how alike they are. An arm without neighbours stands alone, and its
# statistics are Student's.
#
# The test takes second moments about zero, sum d^2, which no flip of signs changes: so it is exact.
# (Moments about the mean, recomputed under every flip, were tried: arms with true effects inflate
# the flipped variances, and the family error rises to .09 where eight of 25 arms do something.)
# Only the test shares scatter. Intervals do not (`half_widths`).
#
# n seeds, A arms


_SHAPE = 3.0  # expected unlikeness of arms, before their data: variances as 1 / gamma(3)
_WEIGHT = 8.0  # arms' worth of data that this expectation counts for
# neighbours: log moments within so many standard deviations of what chance and _SHAPE give
_WINDOW = 3.0
# degrees of freedom at which the trigamma function is tabulated
_GRID = np.geomspace(2e-3, 2e5, 4000)
# of log variances with so many degrees, as a logarithm; falls
_SPREAD = np.log(polygamma(1, _GRID / 2.0))


class SharedScatter(NamedTuple):
    """What an arm's neighbours say about its variance: its size, and how many degrees of freedom
    that is worth."""

    degrees: Floats  # (..., A), 0 where an arm stands alone
    variance: Floats  # (..., A)


def shared_scatter(
    moment: Floats, pairs: Floats, groups: NDArray[np.int64] | None = None
) -> SharedScatter:
    """The prior of every arm: moment (..., A), a sum of squares, and how many (..., A) independent
    ones are in it.

    Only arms of one group (A,) are compared: those of one metric. The spread of log moments beyond
    what `pairs` alone give is fitted among an arm's neighbours, and steadied by the expectation;
    that the middle of few neighbours is not well known counts as further spread.
    """
    usable = (moment > 0.0) & (pairs >= 1.0)
    half = np.where(usable, pairs, 2.0) / 2.0
    # variance of a log moment, and of log variances
    chance, expected = polygamma(1, half), float(polygamma(1, _SHAPE))
    size = np.where(
        usable, np.log(np.where(usable, moment / (2.0 * half), 1.0)) - psi(half) + np.log(half), 0.0
    )
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
    return SharedScatter(
        degrees, np.where(count > 1, np.exp(middle + psi(held) - np.log(held)), 0.0)
    )


def normal_square(explained: Floats, degrees: Floats) -> Floats:
    """The square of t with so many degrees of freedom on the normal scale (Wallace 1959), so that
    arms with unequal numbers of pairs and of neighbours weigh alike; explained = t^2 / (t^2 +
    degrees)."""
    scale = degrees * np.square((8.0 * degrees + 1.0) / (8.0 * degrees + 3.0))
    return np.asarray(-scale * np.log(np.maximum(1.0 - explained, 1e-12)))


def _degrees(spread: Floats) -> Floats:
    """Degrees of freedom whose log variances have this spread: the inverse of the trigamma
    function."""
    return np.asarray(np.exp(np.interp(-np.log(spread), -_SPREAD, np.log(_GRID))))


# --------------------------------------------------------------------------------------------------
# Corrects a family of arms by a joint sign-flip max-T test, and orders the arms.  (Westfall and
# Young 1993, step-down)
#
# Where a lever does nothing, arm and baseline may be exchanged seed by seed: the sign of every
# paired difference is a coin. One sign vector flips a seed of all arms at once, so the correlation
# that the shared baseline causes stays in place, and the smallest possible p is 2 / 2^n for any
# number of arms (Holm would multiply it by that number). An arm that lacks a seed takes part with
# the pairs that it has.
#
# **Sign flips assume that the differences are symmetric about their mean.** An arm that leaves the
# mean alone but scatters to one side is not exchangeable with a quiet baseline: one such arm gets a
# false verdict in 7 % of studies of six pairs, and some of ten such arms in 34 % of studies of
# twenty pairs. Skew that both sides share is harmless, as it leaves the difference. `oddities`
# looks for what can be seen of it, and the page shows every seed.
#
# n seeds, A arms, S sign vectors


_AT_ONCE = 500_000  # statistics held in memory at a time, where many studies are judged together
_DISCOUNT = 0.77  # on the squared statistic of an arm by its own scatter alone: 3.2 counts as 2.8


def rank(
    effects: Sequence[PairedEffect],
    better: Better,
    alpha: float = 0.05,
    p_values: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Arm -> corrected p-value, best arm first; all effects on one metric. `p_values`: those of a
    larger family."""
    _check_family(effects)
    if p_values is None:
        p_values = dict(
            zip((effect.arm for effect in effects), corrected(effects, alpha), strict=True)
        )
    sign = -1.0 if better == "higher" else 1.0
    return {
        effect.arm: p_values[effect.arm]
        for effect in sorted(effects, key=lambda one: (sign * one.mean, one.arm))
    }


def corrected(effects: Sequence[PairedEffect], alpha: float = 0.05) -> list[float]:
    """Corrected p-values in the order of the effects: one joint test, which may go over several
    metrics."""
    metrics = {name: k for k, name in enumerate(dict.fromkeys(effect.metric for effect in effects))}
    groups = np.array([metrics[effect.metric] for effect in effects]) if len(metrics) > 1 else None
    return [float(p) for p in adjusted(aligned(effects), alpha=alpha, groups=groups)]


def aligned(effects: Sequence[PairedEffect]) -> Floats:
    """Differences (n, A) over all seeds that any arm has; NaN where an arm lacks the pair."""
    seeds = sorted({seed for effect in effects for seed in effect.seeds})
    rows = {seed: row for row, seed in enumerate(seeds)}
    differences = np.full((len(seeds), len(effects)), np.nan)
    for column, effect in enumerate(effects):
        differences[[rows[seed] for seed in effect.seeds], column] = effect.differences
    return differences


def adjusted(
    differences: Floats,
    *,
    alpha: float = 0.05,
    signs: Floats | None = None,
    groups: NDArray[np.int64] | None = None,
) -> Floats:
    """Step-down adjusted p-values of the arms, of one study or of many at once.

    differences (..., n, A) with NaN for a missing pair, signs (S, n) with the observed vector first
    -> (..., A). Scatter is shared among the arms of one group (A,), which is one metric; none: all.

    Arms with too few pairs for p <= alpha are a family of their own: an arm with two pairs reaches
    its largest statistic under every second sign vector, and would silence all others. Their
    scatter is not shared with the others either.
    """
    n, arms = differences.shape[-2:]
    signs = sign_vectors(n) if signs is None else signs
    studies = differences.reshape(-1, n, arms)
    size = max(1, _AT_ONCE // (len(signs) * arms))
    needed = pairs_needed(alpha)
    parts = [
        _adjusted(studies[k : k + size], signs, needed, groups)
        for k in range(0, len(studies), size)
    ]
    return np.concatenate(parts).reshape(*differences.shape[:-2], arms)


def _adjusted(
    differences: Floats, signs: Floats, needed: int, groups: NDArray[np.int64] | None
) -> Floats:
    enough = np.isfinite(differences).sum(axis=-2) >= needed  # (..., A)
    if enough.all() or not enough.any():
        return step_down(flipped_statistics(differences, signs, groups))
    # strangers to each other
    apart = [np.where(part[..., None, :], differences, np.nan) for part in (enough, ~enough)]
    return np.where(enough, *(step_down(flipped_statistics(part, signs, groups)) for part in apart))


def flipped_statistics(
    differences: Floats, signs: Floats, groups: NDArray[np.int64] | None = None
) -> Floats:
    """How far every arm stands from zero under every sign vector, on the normal scale, squared.

    (..., n, A), (S, n) -> (..., S, A)

    The larger of two: the moderated t, and Student's own at a discount (else an arm that is much
    calmer than its neighbours could not be seen). What they divide by does not change under flips.
    """
    present = np.isfinite(differences)
    # (..., A)
    values, pairs = np.where(present, differences, 0.0), present.sum(axis=-2).astype(np.float64)
    moment = np.square(values).sum(axis=-2)
    prior = shared_scatter(moment, pairs, groups)
    # (..., S, A): n times the squared mean
    means = np.square(signs @ values) / np.maximum(pairs, 1.0)[..., None, :]
    whole, own = prior.degrees * prior.variance + moment, np.maximum(pairs - 1.0, 0.0)
    moderated = normal_square(
        means / np.where(whole > 0.0, whole, 1.0)[..., None, :], (prior.degrees + own)[..., None, :]
    )
    if not prior.degrees.any():
        return moderated
    alone = normal_square(
        means / np.where(moment > 0.0, moment, 1.0)[..., None, :], own[..., None, :]
    )
    return np.maximum(moderated, _DISCOUNT * alone)


def step_down(statistics: Floats) -> Floats:
    """Adjusted p-values from statistics under all sign vectors, the observed one first.  (..., S,
    A) -> (..., A)"""
    strongest_first = np.argsort(-statistics[..., :1, :], axis=-1, kind="stable")  # (..., 1, A)
    reached = np.take_along_axis(statistics, strongest_first, axis=-1)
    # max over an arm and all weaker ones
    rivals = np.maximum.accumulate(reached[..., ::-1], axis=-1)[..., ::-1]
    p_values = at_least(rivals, reached[..., :1, :]).mean(axis=-2)  # (..., A)
    p_values = np.maximum.accumulate(p_values, axis=-1)  # a weaker arm never gets the smaller p
    back = np.argsort(strongest_first[..., 0, :], axis=-1)
    return np.asarray(np.take_along_axis(p_values, back, axis=-1))


def pairs_needed(alpha: float = 0.05) -> int:
    """Pairs from which p <= alpha is possible at all: six for 0.05."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"expected alpha between 0 and 1, found {alpha}")
    n = 1
    while 2.0 / 2**n > alpha:
        n += 1
    return n


def _check_family(effects: Sequence[PairedEffect]) -> None:
    if not effects:
        raise ValueError("a family needs at least one effect, found none")
    first, names = effects[0], [effect.arm for effect in effects]
    if len(set(names)) != len(names):
        raise ValueError(f"an arm stands twice in the family: {names}")
    for effect in effects:
        if effect.metric != first.metric:
            raise ValueError(
                f"a family has one metric, found {first.metric!r} and {effect.metric!r}"
            )


# --------------------------------------------------------------------------------------------------
# An effect without the flattery of having been picked: what is left of it for a headline.
#
# Only effects that stand far enough from zero get a verdict, so those that do are too large on
# average: a true effect of half a margin shows three times its size. The conditional estimate asks
# which true effect makes the one that was seen most likely *among those that pass*; just above the
# bar it falls almost to zero, which is too little. So it is averaged with the raw one, which counts
# the less the farther the two are apart (Zhong and Prentice 2008, with 0.55 of their weight:
# exaggeration stays below 1.5 at half a margin of six pairs, and four standard errors, on the
# normal scale, lose a tenth or so at most: by Student's law with eight pairs that is 8.6 of the
# effect's own).
#
# It never leaves the effect's own interval: with 31 arms and eight pairs the bar is so high that
# effects of which all seeds agree fell to a fifth, "about -0.05" beside [-0.32, -0.13].


_RAW = 0.55  # weight of the raw effect where both agree


def headline_size(mean: float, reach: float, share: float) -> float:
    """What a headline says of a picked effect: the kept share of its mean, and no less than its
    interval allows."""
    least = max(abs(mean) - reach, 0.0)
    return math.copysign(max(abs(mean) * share, least), mean)


def kept_share(distance: float, level: float) -> float:
    """The share of a picked effect that remains: `distance` from zero in standard errors, on the
    normal scale; picked where it passed a two-sided test at `level`."""
    if distance <= 0.0:
        return 1.0
    bar = min(-float(ndtri(level / 2.0)), distance)
    truths = np.linspace(0.0, distance, 401)
    # log chance to pass the bar
    passing = np.logaddexp(log_ndtr(truths - bar), log_ndtr(-truths - bar))
    likely = float(truths[np.argmax(-0.5 * np.square(distance - truths) - passing)])
    weight = _RAW / (1.0 + (distance - likely) ** 2)
    return (weight * distance + (1.0 - weight) * likely) / distance


def attained_level(alpha: float, arms: int, pairs: int) -> float:
    """The level at which one of `arms` is really tested: sign flips of few pairs come in steps of 2
    / 2^n."""
    steps = 2.0 ** (min(pairs, 50) - 1)
    return min(alpha / arms, max(math.floor(alpha * steps), 1) / steps)


# --------------------------------------------------------------------------------------------------
# Verdicts on an effect: better, worse, tie, inconclusive.


Verdict = Literal["better", "worse", "tie", "inconclusive"]


def verdict(
    effect: PairedEffect, p_adjusted: float, *, better: Better, alpha: float = 0.05
) -> Verdict:
    """The verdict on an effect whose margin and tie interval are known.

    tie           the tie interval lies within +- margin: whatever is there is too small to matter.
                  An equivalence test at level alpha asks the interval at 1 - 2 alpha
    better/worse  p_adjusted <= alpha and the interval excludes zero (both: the p-value makes no
                  assumption on the size of the noise, the interval guards against one wild seed)
    inconclusive  everything else, always with fewer than six pairs unless it is a tie
    A tie is asked first: an effect may be significant and still not matter. Where seeds of the arm
    failed, the survivors alone can only speak against it: they make it neither better nor a tie.
    """
    assert effect.margin is not None and effect.tie_low is not None and effect.tie_high is not None
    if -effect.margin <= effect.tie_low and effect.tie_high <= effect.margin:
        return "inconclusive" if effect.failed else "tie"
    if p_adjusted <= alpha and (effect.low > 0.0 or effect.high < 0.0):
        if (effect.mean > 0.0) != (better == "higher"):
            return "worse"
        return "inconclusive" if effect.failed else "better"
    return "inconclusive"


def judge(
    effects: Sequence[PairedEffect],
    *,
    better: Better,
    smallest_effect: float | Mapping[str, float],
    alpha: float = 0.05,
    p_values: Mapping[str, float] | None = None,
) -> list[PairedEffect]:
    """A family of arms on one metric with corrected p-values and verdicts, best arm first.

    Arms may differ in their seeds, and each may have a smallest effect of interest of its own.
    `p_values` (arm -> p) are those of a larger family, over several metrics or looks, where the
    plan asks for one.
    """
    by_arm, judged = {effect.arm: effect for effect in _with_intervals(effects, alpha)}, []
    for arm, p in rank(effects, better, alpha, p_values).items():
        margin = smallest_effect[arm] if isinstance(smallest_effect, Mapping) else smallest_effect
        effect = _with_margin(by_arm[arm], margin, alpha)
        word = verdict(effect, p, better=better, alpha=alpha)
        # nobody picked the others
        shrunk = effect.shrunk if word in ("better", "worse") else effect.mean
        judged.append(
            effect.model_copy(update={"p_adjusted": p, "verdict": word, "shrunk": shrunk})
        )
    return judged


def _with_intervals(effects: Sequence[PairedEffect], alpha: float) -> list[PairedEffect]:
    """Each effect with its intervals, and with its mean as it would be told if it was picked out of
    the family."""
    differences = aligned(effects)
    reach, tie_reach = half_widths(differences, alpha), half_widths(differences, 2.0 * alpha)
    distances = np.sqrt(flipped_statistics(differences, np.ones((1, len(differences))))[0])
    tested = max(1, sum(effect.n >= pairs_needed(alpha) for effect in effects))
    return [
        effect.model_copy(
            update={
                "low": effect.mean - float(reach[k]),
                "high": effect.mean + float(reach[k]),
                "tie_low": effect.mean - float(tie_reach[k]),
                "tie_high": effect.mean + float(tie_reach[k]),
                "shrunk": headline_size(
                    effect.mean,
                    float(reach[k]),
                    kept_share(float(distances[k]), attained_level(alpha, tested, effect.n)),
                ),
            }
        )
        for k, effect in enumerate(effects)
    ]


def _with_margin(effect: PairedEffect, margin: float, alpha: float) -> PairedEffect:
    """With the margin that a verdict asks for, and what a reader must know about the effect."""
    if not margin >= 0.0:
        raise ValueError(f"expected a smallest effect of interest >= 0, found {margin}")
    noted = effect.noted(failures_note(effect.planned, effect.failed), _too_few(effect.n, alpha))
    warned = noted.warned(*oddities(np.array(effect.differences), margin))
    return warned.model_copy(update={"margin": margin})


def _too_few(n: int, alpha: float) -> Remark | None:
    missing = pairs_needed(alpha) - n
    if missing <= 0:
        return None
    seeds = "one more seed" if missing == 1 else f"{missing} more seeds"
    return remark(
        "too-few-pairs",
        f"{n} pairs cannot reach p ≤ {alpha:g}: {seeds} can",
        pairs=n,
        missing=missing,
    )
