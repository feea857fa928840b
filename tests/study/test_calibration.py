"""Calibration on simulated studies with known truth: at least 2,000 of each case, the engine's own rules throughout."""

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from fulcrum.study.judge.early_stop import hopeless
from fulcrum.study.judge.effect import student_interval
from fulcrum.study.judge.rank import adjusted
from fulcrum.study.plan.power import detectable

STUDIES = 4000


def studies(seed, n, arms, truth=0.0, shared=0.5, noise="normal"):
    """Differences (studies, n, arms): a baseline's noise is in all of them."""
    rng = np.random.default_rng([seed, n, arms])
    shape = (STUDIES, n, arms + 1)
    drawn = {
        "normal": lambda: rng.standard_normal(shape),
        "heavy": lambda: rng.standard_t(4, shape) / math.sqrt(2),
        "skewed": lambda: rng.exponential(1.0, shape) - 1.0,
    }[noise]()
    common = math.sqrt(shared) * rng.standard_normal((STUDIES, n, 1))
    cells = common + math.sqrt(1 - shared) * drawn
    return cells[:, :, 1:] - cells[:, :, :1] + truth


def limits(differences, level=0.95):
    mean, sd, n = differences.mean(1), differences.std(1, ddof=1), differences.shape[1]
    reach = float(stdtrit(n - 1, 0.5 + level / 2)) / math.sqrt(n) * sd
    return mean - reach, mean + reach


def test_the_interval_here_is_the_engines():
    values = studies(0, 6, 1)[0, :, 0]
    low, high = limits(values[None, :, None])
    assert student_interval(values.mean(), values.std(ddof=1), 6) == pytest.approx((low.item(), high.item()))


@pytest.mark.parametrize("noise", ["normal", "heavy", "skewed"])
@pytest.mark.parametrize("n", [6, 12])
@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_intervals_cover_at_their_nominal_rate(n, shared, noise):
    """95 % +- 2 %. The difference of two equally skewed cells is not skewed: pairing mends the shape too."""
    low, high = limits(studies(1, n, 1, truth=0.3, shared=shared, noise=noise))
    assert abs(float(((low <= 0.3) & (high >= 0.3)).mean()) - 0.95) <= 0.02


@pytest.mark.parametrize("design", ["interaction", "trend"])
def test_contrasts_cover_at_their_nominal_rate(design):
    """ab - a - b + base with a true interaction, and the slope of an effect over three scales."""
    rng = np.random.default_rng([5, len(design)])
    n, truth = 6, 0.4
    cells = rng.standard_normal((STUDIES, n, 6))
    if design == "interaction":
        contrast = cells[..., 3] - cells[..., 1] - cells[..., 2] + cells[..., 0] + truth
    else:
        x = np.array([0.0, 1.3, 2.1])
        effects = cells[..., 3:] - cells[..., :3] + 0.2 + truth * x
        contrast = effects @ (x - x.mean()) / float((x - x.mean()) @ (x - x.mean()))
    low, high = limits(contrast[..., None])
    assert abs(float(((low <= truth) & (truth <= high)).mean()) - 0.95) <= 0.02


def seen(differences, alpha=0.05):
    """Which effects get the verdict better or worse (studies, arms): corrected p, and an interval without zero."""
    p = adjusted(differences, alpha=alpha)
    low, high = limits(differences)
    return (p <= alpha) & ((low > 0) | (high < 0))


@pytest.mark.parametrize("noise", ["normal", "heavy"])
@pytest.mark.parametrize(("n", "arms"), [(6, 1), (6, 3), (6, 12), (8, 5)])
def test_family_false_positives_stay_below_five_percent(n, arms, noise):
    """Where no arm does anything, a verdict on any of them is false."""
    wrong = float(seen(studies(2, n, arms, noise=noise)).any(1).mean())
    assert wrong <= 0.05


@pytest.mark.parametrize(("n", "arms"), [(6, 4), (8, 4)])
def test_a_real_effect_does_not_let_the_others_through(n, arms):
    """Strong control: one arm moves a lot, the others nothing."""
    differences = studies(3, n, arms, truth=np.array([6.0] + [0.0] * (arms - 1)))
    assert float(seen(differences)[:, 1:].any(1).mean()) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / STUDIES)


def test_without_power_the_verdict_is_inconclusive():
    """A third of a standard deviation at six pairs: hardly ever seen, and never called a tie either."""
    differences = studies(4, 6, 1, truth=0.33, shared=0.0)
    low, high = limits(differences)
    tie = (low >= -0.05) & (high <= 0.05)
    inconclusive = ~seen(differences) & ~tie
    assert float(inconclusive.mean()) >= 0.9
    assert float(seen(studies(4, 5, 1, truth=9.0)).mean()) == 0.0  # five pairs reach nothing at 0.05
    assert float(seen(studies(4, 6, 1, truth=9.0)).mean()) >= 0.95


def test_the_promised_power_is_found():
    smallest = detectable(8, 3, power=0.7)
    differences = studies(6, 8, 3, truth=np.array([smallest * math.sqrt(2), 0.0, 0.0]), shared=0.0)
    assert abs(float(seen(differences)[:, 0].mean()) - 0.7) <= 0.05


# ---- the crossing guard: validation losses of pairs of runs

SHARES = np.array([0.2, 0.4, 0.6, 0.8])


def curves(seed, kind, n=6, sd=0.01):
    """Differences (studies, n, points + 1) of a loss; the last point is the end of the budget."""
    rng = np.random.default_rng([seed, len(kind)])
    x = np.append(SHARES, 1.0)
    mean = {
        "crossing": 0.10 - 0.14 * x,
        "late": 0.06 - 0.07 * x,
        "worse": 0.05 + 0.0 * x,
        "diverging": 0.02 + 0.08 * x,
        "equal": 0.0 * x,
        "better": -0.03 + 0.0 * x,
        "log crossing": -0.05 * np.log(x) - 0.02,
    }[kind]
    own = sd * rng.standard_normal((2000, n, 1)) + sd / 2 * rng.standard_normal((2000, n, len(x)))
    return mean + own


def stopped(differences):
    """Share of studies that end the arm at any evaluation before the last."""
    points = range(1, len(SHARES) + 1)
    return np.mean([any(hopeless(SHARES[:k], one[:, :k], "lower") for k in points) for one in differences])


@pytest.mark.parametrize("kind", ["crossing", "late", "log crossing"])
def test_an_arm_whose_curve_crosses_is_not_stopped(kind):
    assert curves(7, kind)[..., -1].mean() < 0  # it is better in the end
    assert stopped(curves(7, kind)) <= 0.01


@pytest.mark.parametrize("kind", ["equal", "better"])
def test_an_arm_that_is_not_worse_is_not_stopped(kind):
    assert stopped(curves(8, kind)) <= 0.01


@pytest.mark.parametrize("kind", ["worse", "diverging"])
def test_an_arm_that_is_worse_and_stays_so_is_stopped(kind):
    assert stopped(curves(9, kind)) >= 0.8


@pytest.mark.parametrize("decay", [0.5, 0.2])
def test_an_arm_that_turns_when_the_rate_decays_is_not_stopped(decay):
    """Worse by a constant until the rate decays, better in the end: the guard stopped every such arm at the third point,
    as it did not know of the decay. An arm that stays worse is still stopped, where enough points lie in the decay."""
    shares = np.arange(1, 10) / 10
    turned = np.clip((shares - (1 - decay)) / decay, 0, 1)
    rng = np.random.default_rng(12)
    noise = 0.01 * rng.standard_normal((1000, 6, 1)) + 0.005 * rng.standard_normal((1000, 6, len(shares)))

    def ended(mean, decay):
        points = range(3, len(shares) + 1)
        return np.mean(
            [any(hopeless(shares[:k], (one + mean)[:, :k], "lower", decay=decay) for k in points) for one in noise]
        )

    assert ended(0.05 - 0.08 * turned, decay) <= 0.01
    assert ended(0.05 - 0.08 * turned, 0.0) >= 0.9  # what was done before
    assert (ended(0.05 + 0.0 * turned, decay) >= 0.8) == (decay == 0.5)  # the last fifth holds one point only


def test_the_guard_knows_which_side_is_worse_and_asks_for_enough():
    worse = np.full((6, 3), 0.05) + 0.001 * np.random.default_rng(0).standard_normal((6, 3))
    assert hopeless(SHARES[:3], worse, "lower") and not hopeless(SHARES[:3], worse, "higher")
    assert hopeless(SHARES[:3], -worse, "higher")
    assert not hopeless(SHARES[:2], worse[:, :2], "lower")  # two points are not three
    assert not hopeless(SHARES[:3], np.where(np.eye(6, 3) > 0, np.nan, worse), "lower")
