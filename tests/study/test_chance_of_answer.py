"""The chance that an arm still gets an answer, against its definition in Student's and the normal
distribution."""

import math

import numpy as np
import pytest
from scipy.stats import norm, t

from fulcrum.judge.looks import chance_of_answer, looks_of
from fulcrum.judge.statistics import paired_effect

FIRST, SECOND, LAST = looks_of((8, 12, 16), 0.05)
NOISE = np.array([1.0, -1.0, 1.2, -1.2, 0.3, -0.3, 0.8, -0.8])


def effect_of(mean: float, margin: float | None, failed: int = 0, scale: float = 1.0):
    values = {seed: mean + scale * noise for seed, noise in enumerate(NOISE)}
    made = paired_effect(
        dict.fromkeys(values, 0.0), values, name="arm", metric="x", planned=8, failed=failed
    )
    return made.model_copy(update={"margin": margin})


def by_hand(effect, pairs: int, level: float, family: int) -> tuple[float, float, float]:
    """Chances that the mean of all pairs ends below, above, and inside the margin, from 8 pairs so
    far."""
    spread, error = effect.sd * math.sqrt(1 / 8 - 1 / pairs), effect.sd / math.sqrt(pairs)
    end = t(df=7, loc=effect.mean, scale=spread)
    bound = norm.isf((1 - (1 - level) ** (1 / family)) / 2) * error
    room = (effect.margin or 0.0) - t.isf(level, pairs - 1) * error
    return end.cdf(-bound), end.sf(bound), max(0.0, end.cdf(room) - end.cdf(-room))


@pytest.mark.parametrize("margin", [None, 0.05, 1.0, 1.5])
@pytest.mark.parametrize("mean", [-0.4, 0.0, 0.3, 0.9])
@pytest.mark.parametrize(("look", "pairs"), [(FIRST, 16), (SECOND, 12)])
def test_better_worse_and_tied_are_added_up(mean, margin, look, pairs):
    """At the second look four pairs are left; an arm that lacks some of its own still has as many
    to come."""
    for family in (1, 5):
        effect = effect_of(mean, margin)
        expected = by_hand(effect, pairs, LAST.level, family)
        assert chance_of_answer(effect, look, LAST, family, "higher") == pytest.approx(
            min(1.0, sum(expected)), rel=1e-9
        )
    assert (expected[2] > 0) == (margin is not None and margin >= 1.0)


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_survivors_can_only_speak_against_an_arm(better):
    effect = effect_of(0.3, 1.0, failed=1)
    below, above, _ = by_hand(effect, 16, LAST.level, 2)
    wanted = below if better == "higher" else above
    assert chance_of_answer(effect, FIRST, LAST, 2, better) == pytest.approx(wanted, rel=1e-9)


def test_without_scatter_or_pairs_to_come_nothing_is_uncertain():
    assert chance_of_answer(effect_of(0.3, None, scale=0.0), FIRST, LAST, 1, "higher") == 1.0
    assert chance_of_answer(effect_of(0.0, None), LAST, LAST, 1, "higher") == 1.0
