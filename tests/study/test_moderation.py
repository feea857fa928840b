"""Scatter shared by a family: against simulated truth, arms that are unlike, and what is left of a
picked effect."""

import numpy as np
import pytest
from scipy.special import stdtrit

from fulcrum.judge.statistics import attained_level, half_widths, kept_share, shared_scatter


def moments(sds: list[float], n: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    differences = np.random.default_rng(seed).standard_normal((n, len(sds))) * np.array(sds)
    return np.square(differences).sum(axis=0), np.full(len(sds), float(n))


def test_arms_of_equal_noise_share_it() -> None:
    """25 arms with a variance of four: it is found, and worth more than twenty pairs of an arm's
    own."""
    prior = shared_scatter(*moments([2.0] * 25))
    assert (
        prior.variance == pytest.approx(np.full(25, 4.0), rel=0.25) and (prior.degrees > 12).all()
    )


def test_unequal_noise_counts_for_less() -> None:
    rng = np.random.default_rng(1)
    equal, unequal = (
        shared_scatter(*moments(sds))
        for sds in ([1.0] * 25, np.sqrt(2 / rng.gamma(3, 1, 25)).tolist())
    )
    assert np.median(unequal.degrees) < np.median(equal.degrees) / 2


def test_an_arm_alone_or_far_from_all_others_stands_alone() -> None:
    assert shared_scatter(*moments([1.0])).degrees == [0.0]
    prior = shared_scatter(*moments([1.0] * 9 + [100.0, 0.01, 0.0]))
    assert (prior.degrees[9:] == 0.0).all() and (prior.degrees[:9] > 3.0).all()
    # the loud one is not averaged in
    assert prior.variance[:9] == pytest.approx(np.ones(9), rel=0.6)


def test_other_metrics_are_no_neighbours() -> None:
    moment, pairs = moments([1.0] * 6)
    both = shared_scatter(moment, pairs, np.array([0, 0, 0, 1, 1, 1]))
    assert both.variance[:3] == pytest.approx(shared_scatter(moment[:3], pairs[:3]).variance)


def test_flips_do_not_change_it() -> None:
    differences = np.random.default_rng(2).standard_normal((7, 5)) + 1.0
    flipped = differences * np.array([1, -1, 1, 1, -1, -1, 1])[:, None]
    for one, other in zip(
        *(
            shared_scatter(np.square(d).sum(axis=0), np.full(5, 7.0))
            for d in (differences, flipped)
        ),
        strict=True,
    ):
        assert one == pytest.approx(other)


@pytest.mark.parametrize("loudness", [1.0, 2.0, 3.0])
def test_an_arm_that_is_louder_than_the_others_has_an_interval_of_its_own(loudness: float) -> None:
    """24 quiet arms say nothing about a loud one. With their scatter shared its interval covered
    .73 at six pairs, and an effect of a whole margin was called a tie in .17 of studies."""
    cells = np.random.default_rng(3).standard_normal((4000, 6, 26)) / 2**0.5
    differences = cells[..., 1:] - cells[..., :1]
    differences[..., 0] *= loudness
    mean, (reach, tie_reach) = (
        differences[..., 0].mean(axis=1),
        (half_widths(differences, a)[:, 0] for a in (0.05, 0.1)),
    )
    assert abs(float((np.abs(mean) <= reach).mean()) - 0.95) <= 0.012
    margin = 2.0 * loudness
    # at a true effect of just the margin
    assert float((mean + margin + tie_reach <= margin).mean()) <= 0.06


def test_other_arms_do_not_move_an_interval() -> None:
    differences = np.random.default_rng(4).standard_normal((6, 3)) * np.array([1.0, 1.5, 1.2])
    assert (half_widths(differences, 0.05)[:2] == half_widths(differences[:, :2], 0.05)).all()
    # one pair
    assert (
        half_widths(np.where(np.arange(6)[:, None] < 1, differences, np.nan), 0.05).tolist()
        == [np.inf] * 3
    )
    own = differences[:, 0]
    assert half_widths(differences, 0.05)[0] == pytest.approx(
        stdtrit(5, 0.975) * own.std(ddof=1) / 6**0.5
    )


def test_a_picked_effect_is_cut_near_the_bar_and_kept_far_from_it() -> None:
    level = attained_level(0.05, 3, 6)
    assert kept_share(2.45, level) < 0.5 and kept_share(0.0, level) == 1.0
    assert all(kept_share(4.0, attained_level(0.05, arms, 8)) >= 0.9 for arms in (1, 3, 25))
    shares = [kept_share(distance, level) for distance in (2.5, 3.0, 3.5, 4.0, 6.0)]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0, abs=0.01)


def test_six_pairs_are_tested_at_a_step_below_alpha() -> None:
    assert attained_level(0.05, 1, 6) == 1 / 32 and attained_level(0.05, 25, 6) == 0.002
    assert attained_level(0.05, 1, 20) == pytest.approx(0.05, abs=1e-4)
