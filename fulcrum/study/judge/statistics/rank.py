"""Corrects a family of arms by a joint sign-flip max-T test, and orders the arms.  (Westfall and Young 1993, step-down)

Where a lever does nothing, arm and baseline may be exchanged seed by seed: the sign of every paired difference is a coin.
One sign vector flips a seed of all arms at once, so the correlation that the shared baseline causes stays in place, and
the smallest possible p is 2 / 2^n for any number of arms (Holm would multiply it by that number). An arm that lacks a
seed takes part with the pairs that it has.

**Sign flips assume that the differences are symmetric about their mean.** An arm that leaves the mean alone but scatters
to one side is not exchangeable with a quiet baseline: one such arm gets a false verdict in 7 % of studies of six pairs,
and some of ten such arms in 34 % of studies of twenty pairs. Skew that both sides share is harmless, as it leaves the
difference. `outliers.py` looks for what can be seen of it, and the page shows every seed.

n seeds, A arms, S sign vectors
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fulcrum.measure.card import Better
from fulcrum.study.judge.statistics.effect import Floats, PairedEffect, at_least, sign_vectors
from fulcrum.study.judge.statistics.moderation import normal_square, shared_scatter

_AT_ONCE = 500_000  # statistics held in memory at a time, where many studies are judged together
_DISCOUNT = 0.77  # on the squared statistic of an arm by its own scatter alone: 3.2 counts as 2.8


def rank(
    effects: Sequence[PairedEffect], better: Better, alpha: float = 0.05, p_values: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Arm -> corrected p-value, best arm first; all effects on one metric. `p_values`: those of a larger family."""
    _check_family(effects)
    if p_values is None:
        p_values = dict(zip((effect.arm for effect in effects), corrected(effects, alpha), strict=True))
    sign = -1.0 if better == "higher" else 1.0
    return {effect.arm: p_values[effect.arm] for effect in sorted(effects, key=lambda one: (sign * one.mean, one.arm))}


def corrected(effects: Sequence[PairedEffect], alpha: float = 0.05) -> list[float]:
    """Corrected p-values in the order of the effects: one joint test, which may go over several metrics."""
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
    differences: Floats, *, alpha: float = 0.05, signs: Floats | None = None, groups: NDArray[np.int64] | None = None
) -> Floats:
    """Step-down adjusted p-values of the arms, of one study or of many at once.

    differences (..., n, A) with NaN for a missing pair, signs (S, n) with the observed vector first -> (..., A). Scatter
    is shared among the arms of one group (A,), which is one metric; none: all.

    Arms with too few pairs for p <= alpha are a family of their own: an arm with two pairs reaches its largest statistic
    under every second sign vector, and would silence all others. Their scatter is not shared with the others either.
    """
    n, arms = differences.shape[-2:]
    signs = sign_vectors(n) if signs is None else signs
    studies = differences.reshape(-1, n, arms)
    size = max(1, _AT_ONCE // (len(signs) * arms))
    needed = pairs_needed(alpha)
    parts = [_adjusted(studies[k : k + size], signs, needed, groups) for k in range(0, len(studies), size)]
    return np.concatenate(parts).reshape(*differences.shape[:-2], arms)


def _adjusted(differences: Floats, signs: Floats, needed: int, groups: NDArray[np.int64] | None) -> Floats:
    enough = np.isfinite(differences).sum(axis=-2) >= needed  # (..., A)
    if enough.all() or not enough.any():
        return step_down(flipped_statistics(differences, signs, groups))
    apart = [np.where(part[..., None, :], differences, np.nan) for part in (enough, ~enough)]  # strangers to each other
    return np.where(enough, *(step_down(flipped_statistics(part, signs, groups)) for part in apart))


def flipped_statistics(differences: Floats, signs: Floats, groups: NDArray[np.int64] | None = None) -> Floats:
    """How far every arm stands from zero under every sign vector, on the normal scale, squared.

    (..., n, A), (S, n) -> (..., S, A)

    The larger of two: the moderated t, and Student's own at a discount (else an arm that is much calmer than its
    neighbours could not be seen). What they divide by does not change under flips.
    """
    present = np.isfinite(differences)
    values, pairs = np.where(present, differences, 0.0), present.sum(axis=-2).astype(np.float64)  # (..., A)
    moment = np.square(values).sum(axis=-2)
    prior = shared_scatter(moment, pairs, groups)
    means = np.square(signs @ values) / np.maximum(pairs, 1.0)[..., None, :]  # (..., S, A): n times the squared mean
    whole, own = prior.degrees * prior.variance + moment, np.maximum(pairs - 1.0, 0.0)
    moderated = normal_square(means / np.where(whole > 0.0, whole, 1.0)[..., None, :], (prior.degrees + own)[..., None, :])
    if not prior.degrees.any():
        return moderated
    alone = normal_square(means / np.where(moment > 0.0, moment, 1.0)[..., None, :], own[..., None, :])
    return np.maximum(moderated, _DISCOUNT * alone)


def step_down(statistics: Floats) -> Floats:
    """Adjusted p-values from statistics under all sign vectors, the observed one first.  (..., S, A) -> (..., A)"""
    strongest_first = np.argsort(-statistics[..., :1, :], axis=-1, kind="stable")  # (..., 1, A)
    reached = np.take_along_axis(statistics, strongest_first, axis=-1)
    rivals = np.maximum.accumulate(reached[..., ::-1], axis=-1)[..., ::-1]  # max over an arm and all weaker ones
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
            raise ValueError(f"a family has one metric, found {first.metric!r} and {effect.metric!r}")
