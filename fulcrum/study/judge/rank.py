"""Corrects a family of arms by a joint sign-flip max-T test, and orders the arms.  (Westfall and Young 1993, step-down)

Under the null the sign of every paired difference is a coin. One sign vector flips all arms at once, so the correlation
that the shared baseline causes stays in place, and the smallest possible p is 2 / 2^n for any number of arms (Holm
would multiply it by that number).

n pairs, A arms, S sign vectors
"""

from collections.abc import Sequence

import numpy as np

from fulcrum.measure.card import Better
from fulcrum.study.judge.effect import Floats, PairedEffect, at_least, sign_vectors


def rank(effects: Sequence[PairedEffect], better: Better) -> dict[str, float]:
    """Arm -> corrected p-value, best arm first; all effects on one metric, paired over the same seeds."""
    if not effects:
        raise ValueError("a family needs at least one effect, found none")
    _check_family(effects)
    differences = np.array([effect.differences for effect in effects], dtype=np.float64).T  # (n, A)
    adjusted = max_t(differences, sign_vectors(effects[0].n))
    sign = -1.0 if better == "higher" else 1.0
    pairs = sorted(zip(effects, adjusted, strict=True), key=lambda pair: (sign * pair[0].mean, pair[0].arm))
    return {effect.arm: float(p) for effect, p in pairs}


def max_t(differences: Floats, signs: Floats) -> Floats:
    """Step-down adjusted p-values of the arms, of one study or of many at once.

    differences (..., n, A), signs (S, n) with the observed vector first -> (..., A)

    Each arm in units of its own spread, |sum s d| / sqrt(n sum d^2). For a given n this rises with Student's t, and its
    denominator does not change under flips: the vectors come in the order of t, nothing divides by zero.
    """
    scale = np.sqrt(differences.shape[-2] * np.square(differences).sum(axis=-2, keepdims=True))  # (..., 1, A)
    reached = np.abs(signs @ differences) / np.where(scale > 0.0, scale, 1.0)  # (..., S, A); no difference: zero, p = 1
    strongest_first = np.argsort(-reached[..., :1, :], axis=-1, kind="stable")  # (..., 1, A)
    reached = np.take_along_axis(reached, strongest_first, axis=-1)
    rivals = np.maximum.accumulate(reached[..., ::-1], axis=-1)[..., ::-1]  # max over an arm and all weaker ones
    adjusted = at_least(rivals, reached[..., :1, :]).mean(axis=-2)  # (..., A)
    adjusted = np.maximum.accumulate(adjusted, axis=-1)  # a weaker arm never gets the smaller p
    back = np.argsort(strongest_first[..., 0, :], axis=-1)
    return np.asarray(np.take_along_axis(adjusted, back, axis=-1))


def pairs_needed(alpha: float = 0.05) -> int:
    """Pairs from which p <= alpha is possible at all: six for 0.05."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"expected alpha between 0 and 1, found {alpha}")
    n = 1
    while 2.0 / 2**n > alpha:
        n += 1
    return n


def _check_family(effects: Sequence[PairedEffect]) -> None:
    first, names = effects[0], [effect.arm for effect in effects]
    if len(set(names)) != len(names):
        raise ValueError(f"an arm stands twice in the family: {names}")
    for effect in effects:
        if effect.metric != first.metric:
            raise ValueError(f"a family has one metric, found {first.metric!r} and {effect.metric!r}")
        if effect.seeds != first.seeds:
            raise ValueError(
                f"a family is paired over the same seeds: {first.arm!r} has {list(first.seeds)}, "
                f"{effect.arm!r} has {list(effect.seeds)}; finish the missing cells or leave the arm out"
            )
