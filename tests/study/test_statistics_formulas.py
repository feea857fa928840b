"""Numbers of the judge against their definitions, written out arm by arm with what scipy has of
them."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import polygamma, psi
from scipy.stats import multivariate_normal, norm, skew, t

from fulcrum.judge.effects import few_seeds
from fulcrum.judge.looks import error_by_hand, looks_of
from fulcrum.judge.sequence import hopeless
from fulcrum.judge.statistics import (
    adjusted,
    flipped_statistics,
    kept_share,
    oddities,
    shared_scatter,
)

SKEWED = ["the differences are skewed"]


def told(differences, margin):
    return [warning.text for warning in oddities(differences, margin)]


def test_differences_are_skewed_where_the_unbiased_skewness_is_two_of_its_standard_errors() -> None:
    """G1 and its standard error under the normal distribution (Cramér 1946); a margin beyond all
    leaves outliers out."""
    seen = []
    for seed in range(400):
        n = 3 + seed % 10
        differences = np.random.default_rng(seed).exponential(1.0, n) * 0.1
        error = math.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
        expected = n >= 4 and abs(skew(differences, bias=False)) > 2 * error
        assert (told(differences, 1e9) == SKEWED) == expected, (n, differences)
        assert (told(-differences, 1e9) == SKEWED) == expected
        seen.append((n, expected))
    assert all({(n, True), (n, False)} <= set(seen) for n in (5, 6, 9, 12)) and (4, False) in seen
    # four can hardly be: G1 is 2, its error 1.01
    assert oddities(np.array([0.0, 0.0, 0.0, 1.0]), 1e9) == ()
    assert told(np.array([0.0, 0.0, 0.0, 1.0, 0.0]), 1e9) == SKEWED
    assert oddities(np.full(6, 0.3), 1e9) == ()


def test_a_seed_stands_apart_where_its_deleted_residual_is_rare() -> None:
    """Of the farthest of n seeds: Student's, from the mean and the scatter of the others, at 1 %
    over all of them."""
    seen = set()
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = 4 + seed % 7
        differences = rng.standard_normal(n)
        differences[seed % n] += rng.uniform(0, 15)
        residuals = []
        for k in range(n):
            others = np.delete(differences, k)
            residuals.append(
                (
                    abs(differences[k] - others.mean()),
                    others.std(ddof=1) * math.sqrt(1 + 1 / (n - 1)),
                )
            )
        distance, scatter = max(residuals)
        expected = distance > 0.5 and 2 * n * t.sf(distance / scatter, n - 2) <= 0.01
        sentence = f"{n - 1} of {n} seeds agree, one is {distance / 0.5:.0f} margins off"
        assert (told(differences, 0.5) == [sentence]) == expected
        seen.add((n, expected))
    assert {(n, True) for n in range(5, 11)} | {(n, False) for n in range(4, 11)} <= seen
    calm = np.array([0.0, 0.0, 0.0, 1.0])
    assert oddities(calm, 1.0) == () and told(calm, 0.25) == [
        "3 of 4 seeds agree, one is 4 margins off"
    ]
    assert (
        told(calm, 0.0) == ["3 of 4 seeds agree, one is 1 off"] and oddities(calm[1:], 0.25) == ()
    )


def prior_by_hand(moments: list[float], pairs: list[float], arm: int) -> tuple[float, float]:
    """Degrees and variance that an arm's neighbours give it."""

    # log of a variance, without what chance shifts the log of a chi-square by
    def size(k: int) -> float:
        return math.log(moments[k] / pairs[k]) - psi(pairs[k] / 2) + math.log(pairs[k] / 2)

    def chance(k: int) -> float:
        return float(polygamma(1, pairs[k] / 2))

    unlike = float(polygamma(1, 3.0))
    near = [
        k
        for k in range(len(moments))
        if abs(size(k) - size(arm)) <= 3 * math.sqrt((chance(k) + chance(arm)) / 2 + unlike)
    ]
    if len(near) == 1:
        return 0.0, 0.0
    middle = np.mean([size(k) for k in near])
    around = sum((size(k) - middle) ** 2 for k in near) - (len(near) - 1) * np.mean(
        [chance(k) for k in near]
    )
    spread = max((around + 8 * unlike) / (len(near) - 1 + 8), 1e-5)
    spread += (spread + chance(arm)) / (len(near) - 1)
    degrees = brentq(lambda held: float(polygamma(1, held / 2)) - spread, 1e-3, 1e6)
    return degrees, math.exp(middle + psi(degrees / 2) - math.log(degrees / 2))


@pytest.mark.parametrize("arms", [2, 3, 9, 25])
@pytest.mark.parametrize("unlike", [0.0, 0.6, 2.0])
def test_neighbours_give_the_prior_of_their_definition(arms: int, unlike: float) -> None:
    """Arms with unequal numbers of pairs too; and one of which nothing is known is nobody's
    neighbour."""
    rng = np.random.default_rng(arms)
    pairs = rng.integers(2, 12, arms).astype(float)
    moments = np.exp(unlike * rng.standard_normal(arms)) * rng.chisquare(pairs)
    prior = shared_scatter(np.append(moments, [0.0, 3.0]), np.append(pairs, [5.0, 0.0]))
    for arm in range(arms):
        degrees, variance = prior_by_hand(moments.tolist(), pairs.tolist(), arm)
        assert prior.degrees[arm] == pytest.approx(degrees, rel=1e-3)
        assert prior.variance[arm] == pytest.approx(variance, rel=1e-3)
    assert prior.degrees[arms:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("level", [0.05, 0.01, 0.002])
@pytest.mark.parametrize("distance", [0.5, 1.5, 2.0, 2.6, 3.0, 3.7, 5.0])
def test_the_share_of_a_picked_effect_that_is_kept(distance: float, level: float) -> None:
    """The most likely truth among those that pass the bar, averaged with the raw effect."""
    bar = min(norm.isf(level / 2), distance)

    def unlikely(truth: float) -> float:
        return -norm.logpdf(distance - truth) + math.log(
            norm.sf(bar - truth) + norm.sf(bar + truth)
        )

    truth = minimize_scalar(
        unlikely, bounds=(0.0, distance), method="bounded", options={"xatol": 1e-9}
    ).x
    truth = min((truth, 0.0, distance), key=unlikely)
    weight = 0.55 / (1 + (distance - truth) ** 2)
    expected = weight + (1 - weight) * truth / distance
    assert kept_share(distance, level) == pytest.approx(expected, abs=4e-3)


def test_an_arm_is_hopeless_where_every_line_ends_on_the_worse_side() -> None:
    """The lines of all seeds carried on to the end, over the budget and over its logarithm, by
    polyfit."""
    shares, seen = [0.2, 0.4, 0.6, 0.8], set()
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n, drift = 3 + seed % 4, rng.uniform(-2, 2)
        differences = (
            rng.uniform(0, 3)
            + drift * (np.array(shares) - 0.6)
            + 0.15 * rng.standard_normal((n, 4))
        )
        differences[:, 0] = -50.0  # before the last three: says nothing
        recent = differences[:, 1:]
        reach = t.isf(0.005, n - 1) / math.sqrt(n)
        lows = [column.mean() - reach * column.std(ddof=1) for column in recent.T]
        for axis, end in ((np.array(shares[1:]), 1.0), (np.log(shares[1:]), 0.0)):
            final = np.array([np.polyval(np.polyfit(axis, row, 1), end) for row in recent])
            lows.append(final.mean() - reach * final.std(ddof=1))
        expected = min(lows) > 0
        assert (
            hopeless(shares, differences, "lower")
            == hopeless(shares, -differences, "higher")
            == expected
        )
        assert not hopeless(shares, -differences, "lower") and not hopeless(
            shares, differences, "higher"
        )
        # all three are within the decay
        assert hopeless(shares, differences, "lower", decay=0.6) == expected
        assert not hopeless(shares, differences, "lower", decay=0.5)
        seen.add((expected, min(lows[:3]) > 0))
    assert seen == {(True, True), (False, True), (False, False)}


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("seeds", [2, 4])
def test_few_seeds_are_judged_by_the_scatter_of_all_contrasts_at_least(
    seeds: int, lost: bool
) -> None:
    """Student's with the degrees of the whole family; an arm louder than it by its own; Sidak, step
    by step."""
    rng = np.random.default_rng(seeds)
    family = rng.standard_normal((seeds, 7)) * np.array(
        [1.0, 1.0, 4.0, 0.1, 1.0, 1.0, 1.0]
    ) + np.arange(7)
    if lost:
        family[0, [1, 5]] = math.nan
    contrasts = family[:, :4]
    columns = [column[np.isfinite(column)] for column in family.T]
    degrees = sum(len(column) - 1 for column in columns)
    shared = sum(np.square(column - column.mean()).sum() for column in columns) / degrees
    expected, errors = [], []
    for column in columns[:4]:
        own = column.var(ddof=1) if len(column) > 1 else 0.0
        errors.append(math.sqrt(max(own, shared) / len(column)))
        expected.append(2 * t.sf(abs(column.mean()) / errors[-1], degrees))
    corrected, largest = dict[int, float](), 0.0
    for step, place in enumerate(np.argsort(expected)):
        largest = max(largest, 1 - (1 - expected[place]) ** (4 - step))
        corrected[int(place)] = largest
    found, spread, held = few_seeds(contrasts, family)
    assert held == [degrees] and spread == pytest.approx(errors)
    assert found.tolist() == pytest.approx([corrected[place] for place in range(4)])
    both = few_seeds(np.stack([contrasts, contrasts[:, ::-1]]), np.stack([family, family]))[0]
    # two studies at once
    assert both[0].tolist() == both[1][::-1].tolist() == pytest.approx(found.tolist())


@pytest.mark.parametrize("scale", [1e-4, 0.03, 40.0])
def test_the_unit_of_a_metric_does_not_matter(scale: float) -> None:
    """Arms as loud as each other, and one that is much calmer and is seen by its own scatter
    alone."""
    rng = np.random.default_rng(3)
    differences = rng.standard_normal((8, 6)) * np.array([1.0, 1.0, 1.2, 0.8, 1.0, 0.1]) + np.array(
        [0, 0, 0, 0, 0, 0.3]
    )
    signs = np.array([[1.0] * 8, [1.0, -1.0] * 4])
    expected = flipped_statistics(differences, signs)
    assert np.allclose(flipped_statistics(scale * differences, signs), expected, rtol=1e-9)
    alone = differences[:, 5]
    student = alone.mean() / (alone.std(ddof=1) / math.sqrt(8))
    normal = 7 * ((8 * 7 + 1) / (8 * 7 + 3)) ** 2 * math.log1p(student**2 / 7)
    assert expected[0, 5] == pytest.approx(0.77 * normal)
    assert np.allclose(adjusted(scale * differences), adjusted(differences))


def test_looking_time_and_again_at_alpha_is_wrong_as_often_as_a_walk_says() -> None:
    """One look is at the level that sign flips have, and more looks err more: 0.08 for three of
    them."""
    # flips of six pairs come in steps of 1 / 32
    assert error_by_hand((6,), 0.05) == pytest.approx(1 / 32, abs=0.002)
    assert error_by_hand((8,), 0.05) == pytest.approx(6 / 128, abs=0.002)
    assert error_by_hand((4,), 0.05) == 0.0
    assert error_by_hand((6, 8, 10), 0.05) == pytest.approx(0.08, abs=0.005)


@pytest.mark.parametrize("alpha", [0.04, 0.1])
@pytest.mark.parametrize("pairs", [(7, 18), (7, 11, 18)])
def test_levels_of_looks_spend_alpha_as_the_joint_normal_distribution_says(
    pairs: tuple[int, ...], alpha: float
) -> None:
    """Looks at one walk: the correlation of two of them is the root of the ratio of their pairs."""
    looks = looks_of(pairs, alpha)
    for number, look in enumerate(looks, start=1):
        so_far, bounds = (
            np.array(pairs[:number], dtype=float),
            [norm.isf(one.level / 2) for one in looks[:number]],
        )
        together = np.sqrt(np.minimum.outer(so_far, so_far) / np.maximum.outer(so_far, so_far))
        inside = multivariate_normal(cov=together).cdf(
            bounds, lower_limit=[-bound for bound in bounds]
        )
        assert 1 - inside == pytest.approx(look.spent, abs=2e-4)
        assert look.spent == pytest.approx(
            alpha * math.log(1 + (math.e - 1) * look.pairs / pairs[-1])
        )
