"""Paired effects: hand-computed cases, refusals, and coverage of the interval on simulated
studies."""

import math

import numpy as np
import pytest
from pydantic import ValidationError

from fulcrum.judge.statistics import (
    adjusted,
    effect_without_pairs,
    noise_floor,
    paired_effect,
    sign_vectors,
)


def flip_p(differences: np.ndarray) -> float:
    """The test of one arm alone."""
    return float(adjusted(differences[:, None])[0])


BASELINE = {0: 10.0, 1: 12.0, 2: 11.0, 3: 13.0}
ARM = {0: 11.0, 1: 15.0, 2: 13.0, 3: 15.0}  # differences 1, 3, 2, 2


def test_hand_computed() -> None:
    effect = paired_effect(BASELINE, ARM, name="muon", metric="frechet")
    sd = math.sqrt(2 / 3)
    reach = 3.182446305284263 * sd / 2  # Student's 97.5 % point with 3 degrees, from a table
    assert effect.differences == (1.0, 3.0, 2.0, 2.0) and effect.n == 4
    assert effect.mean == pytest.approx(2.0) and effect.sd == pytest.approx(sd)
    assert (effect.low, effect.high) == pytest.approx((2.0 - reach, 2.0 + reach))
    # sums of products about the means
    assert effect.correlation == pytest.approx(7.0 / math.sqrt(5.0 * 11.0))
    assert effect.baseline == pytest.approx(11.5)
    # only all + and all - reach the observed sum
    assert flip_p(np.array(effect.differences)) == pytest.approx(2 / 16)


@pytest.mark.parametrize(("n", "floor"), [(3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_sign_flip_floor(n: int, floor: float) -> None:
    assert flip_p(np.linspace(1.0, 2.0, n)) == pytest.approx(floor)


def test_sign_flip_counts_ties() -> None:
    """d = (0.1, 0.2, -0.3): the observed sum is 0 up to rounding, so every vector reaches it."""
    assert flip_p(np.array([0.1, 0.2, -0.3])) == 1.0
    # |sum| >= 0.2: 2 x (1 + 4) of 16
    assert flip_p(np.array([0.1, 0.1, 0.1, -0.1])) == pytest.approx(10 / 16)


def test_many_pairs_are_sampled_and_keyed() -> None:
    differences = np.random.default_rng(0).standard_normal(16) + 0.5
    signs = sign_vectors(16)
    assert len(signs) < 2**15 and (signs[0] == 1).all()
    bits = 1.0 - 2.0 * ((np.arange(2**16)[:, None] >> np.arange(16)) & 1)
    truth = float((np.abs(bits @ differences) >= abs(differences.sum()) - 1e-12).mean())
    assert (
        flip_p(differences)
        == flip_p(differences)
        == pytest.approx(truth, abs=4 * math.sqrt(truth / 20_000))
    )


def test_shift_and_scale() -> None:
    """Adding a constant per seed to both sides changes nothing that is paired; a scale scales."""
    plain = paired_effect(BASELINE, ARM, name="a", metric="m")
    shifted = paired_effect(
        {s: v + 7.0 * s for s, v in BASELINE.items()},
        {s: v + 7.0 * s for s, v in ARM.items()},
        name="a",
        metric="m",
    )
    scaled = paired_effect(
        {s: -3 * v for s, v in BASELINE.items()},
        {s: -3 * v for s, v in ARM.items()},
        name="a",
        metric="m",
    )
    p, p_shifted, p_scaled = (flip_p(np.array(one.differences)) for one in (plain, shifted, scaled))
    assert (shifted.mean, shifted.low, p_shifted) == pytest.approx((plain.mean, plain.low, p))
    assert (scaled.low, scaled.high, p_scaled) == pytest.approx(
        (-3 * plain.high, -3 * plain.low, p)
    )


def test_refusals_name_the_seeds() -> None:
    with pytest.raises(ValueError, match=r"not finite at seeds \[2\]"):
        paired_effect(BASELINE, {**ARM, 2: math.nan}, name="muon", metric="frechet")
    with pytest.raises(ValueError, match="at least 2 seeds"):
        paired_effect({0: 1.0}, {0: 2.0}, name="muon", metric="frechet")
    with pytest.raises(ValueError, match="stands twice"):
        paired_effect(BASELINE, ARM, name="muon", metric="frechet", seeds=[0, 1, 1])
    with pytest.raises(ValidationError):
        paired_effect(BASELINE, ARM, name="muon", metric="frechet").mean = 3.0  # type: ignore[misc]


def test_an_effect_is_over_the_seeds_that_both_sides_have() -> None:
    """A seed that one side lacks ends nothing: before, it was an error, and the study went without
    the seed altogether."""
    more, fewer = {**BASELINE, 4: 99.0}, {**{s: ARM[s] for s in (0, 1, 3)}, 9: 1.0}
    effect = paired_effect(more, fewer, name="a", metric="m", planned=5, failed=1)
    assert effect.seeds == (0, 1, 3) and effect.differences == (1.0, 3.0, 2.0)
    assert (effect.n, effect.planned, effect.failed) == (3, 5, 1)
    assert paired_effect(
        more, {**ARM, 4: 1.0}, name="a", metric="m", seeds=[0, 1, 2, 3]
    ).baseline == pytest.approx(11.5)
    assert noise_floor(more, "m").n == 5


def test_the_level_of_the_interval_is_the_callers() -> None:
    wide, narrow = (
        paired_effect(BASELINE, ARM, name="a", metric="m", level=level) for level in (0.95, 0.9)
    )
    # from a table
    assert narrow.high - narrow.mean == pytest.approx(
        (wide.high - wide.mean) * 2.3533634 / 3.1824463
    )


def test_an_arm_without_pairs_has_a_record() -> None:
    failed = effect_without_pairs("a", "m", planned=6, failed=6)
    assert (failed.verdict, failed.n, failed.mean, failed.note) == (
        "failed",
        0,
        None,
        "all 6 seeds failed",
    )
    started = effect_without_pairs("a", "m", planned=6, failed=2, mean=0.5)
    assert (started.verdict, started.n, started.mean) == ("inconclusive", 1, 0.5)
    assert started.note == "2 of 6 seeds failed"
    assert effect_without_pairs("a", "m", planned=6, failed=0).verdict == "inconclusive"


def test_noise_floor() -> None:
    noise = noise_floor({0: 911.0, 1: 666.0}, "frechet")  # the two loud seeds of the prototype
    assert noise.mean == pytest.approx(788.5) and noise.sd == pytest.approx(245 / math.sqrt(2))
    assert noise.cv == pytest.approx(noise.sd / 788.5)
    with pytest.raises(ValueError, match="at least 2"):
        noise_floor({0: 1.0}, "frechet")


def test_a_constant_side_has_no_correlation() -> None:
    effect = paired_effect({0: 1.0, 1: 1.0}, {0: 2.0, 1: 3.0}, name="a", metric="m")
    assert effect.correlation is None


@pytest.mark.parametrize(("n", "shared"), [(6, 0.0), (6, 0.9), (12, 0.5)])
def test_coverage(n: int, shared: float) -> None:
    """The interval holds the true effect in 95 % +- 2 % of 2,000 simulated studies."""
    rng = np.random.default_rng([n, int(10 * shared)])
    truth, studies, held = 0.3, 2000, 0
    for _ in range(studies):
        common = math.sqrt(shared) * rng.standard_normal(n)
        before, after = (common + math.sqrt(1 - shared) * rng.standard_normal(n) for _ in range(2))
        effect = paired_effect(
            dict(enumerate(before)), dict(enumerate(after + truth)), name="a", metric="m"
        )
        held += effect.low <= truth <= effect.high
    assert abs(held / studies - 0.95) <= 0.02
