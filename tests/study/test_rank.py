"""The corrected family: hand-computed and brute-force cases, refusals, and family-wise error on
simulated studies."""

import itertools
import math

import numpy as np
import pytest

from fulcrum.judge.statistics import (
    PairedEffect,
    adjusted,
    corrected,
    paired_effect,
    pairs_needed,
    rank,
    shared_scatter,
)


def effect(name: str, differences: list[float], metric: str = "frechet") -> PairedEffect:
    seeds = range(len(differences))
    baseline = {seed: 10.0 + seed % 3 for seed in seeds}
    return paired_effect(
        baseline, {s: baseline[s] + differences[s] for s in seeds}, name=name, metric=metric
    )


def on_the_normal_scale(t: float, degrees: float) -> float:
    return math.sqrt(degrees * math.log1p(t * t / degrees)) * (8 * degrees + 1) / (8 * degrees + 3)


def distances(differences: np.ndarray) -> list[float]:
    """The moderated t of every arm by its definition, about the mean; or Student's own, at a
    discount."""
    pairs = np.isfinite(differences).sum(axis=0)
    prior = shared_scatter(np.nansum(differences**2, axis=0), pairs.astype(float))
    sizes = []
    for k, n in enumerate(pairs):
        own = differences[np.isfinite(differences[:, k]), k]
        degrees = n - 1 + prior.degrees[k]
        variance = (prior.degrees[k] * prior.variance[k] + (n - 1) * own.var(ddof=1)) / degrees
        moderated, student = (
            own.mean() / math.sqrt(max(v, 1e-18) / n) for v in (variance, own.var(ddof=1))
        )
        alone = on_the_normal_scale(student, n - 1) * (math.sqrt(0.77) if prior.degrees[k] else 1.0)
        sizes.append(max(on_the_normal_scale(moderated, degrees), alone))
    return sizes


def brute_force(differences: np.ndarray) -> list[float]:
    """Westfall and Young's step-down by its definition, one sign vector at a time."""
    n, arms = differences.shape
    observed = distances(differences)
    order = sorted(range(arms), key=lambda a: -observed[a])
    flipped = [
        distances(differences * np.array(signs)[:, None])
        for signs in itertools.product((1.0, -1.0), repeat=n)
    ]
    p, highest = [0.0] * arms, 0.0
    for place, arm in enumerate(order):
        reached = sum(
            max(sizes[a] for a in order[place:]) >= observed[arm] * (1 - 1e-9) for sizes in flipped
        )
        highest = max(highest, reached / 2**n)
        p[arm] = highest
    return p


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    differences = rng.standard_normal((6, 3)) * [1.0, 3.0, 0.2] + [1.5, 0.0, 0.3]
    assert adjusted(differences) == pytest.approx(brute_force(differences))


@pytest.mark.parametrize("seed", range(3))
def test_missing_pairs_equal_the_definition(seed: int) -> None:
    """Each arm's own pairs, all seeds of the family flipped; the scale is the normal's, so that few
    pairs do not shout."""
    differences = np.random.default_rng([9, seed]).standard_normal((9, 3)) + [1.5, 0.0, 0.4]
    differences[[0, 4], 1] = differences[[1, 2, 8], 2] = np.nan
    assert adjusted(differences) == pytest.approx(brute_force(differences))


def test_a_joint_test_over_metrics_shares_no_scatter_between_them() -> None:
    """The units of another metric say nothing; its arms only join the family."""
    rng = np.random.default_rng(4)
    accuracy = [
        effect(f"a{k}", (rng.standard_normal(8) + 2.0 * (k == 0)).tolist()) for k in range(4)
    ]
    loss = [
        effect(f"a{k}", (1e-3 * rng.standard_normal(8)).tolist(), metric="loss") for k in range(4)
    ]
    scaled = [effect(e.arm, [50.0 * d for d in e.differences], metric="loss") for e in loss]
    alone, joint, other_unit = (
        corrected(accuracy),
        corrected([*accuracy, *loss]),
        corrected([*accuracy, *scaled]),
    )
    assert joint == pytest.approx(other_unit)
    assert alone[0] <= joint[0] <= 0.05 and all(a <= b for a, b in zip(alone, joint, strict=False))


def test_many_studies_at_once_equal_one_by_one() -> None:
    studies = np.random.default_rng(1).standard_normal((20, 7, 4)) + 0.6
    studies[3, 2, 1] = studies[5, :5, 0] = np.nan
    assert np.array_equal(adjusted(studies), np.stack([adjusted(study) for study in studies]))


def test_floor_holds_for_the_whole_family() -> None:
    """A constant difference of one sign is as extreme as data can be: 2/64 with 6 pairs, however
    many arms."""
    rng = np.random.default_rng(0)
    arms = [effect("clear", [2.0, 2.01, 1.99, 2.0, 2.0, 2.02])]
    arms += [effect(f"null{k}", rng.standard_normal(6).tolist()) for k in range(20)]
    family = rank(arms, "lower")
    assert family["clear"] == pytest.approx(2 / 64)
    assert min(p for arm, p in family.items() if arm != "clear") >= 2 / 64


def test_one_arm_is_the_plain_test() -> None:
    alone = effect("a", [1.0, 2.0, -0.5, 3.0, 1.0, 0.4])
    assert rank([alone], "lower")["a"] == pytest.approx(
        brute_force(np.array([alone.differences]).T)[0]
    )


def test_order_follows_the_direction() -> None:
    arms = [
        effect("up", [1.0, 2.0, 1.0]),
        effect("down", [-1.0, -2.0, -1.0]),
        effect("flat", [0.1, -0.1, 0.0]),
    ]
    assert list(rank(arms, "lower")) == ["down", "flat", "up"]
    assert list(rank(arms, "higher")) == ["up", "flat", "down"]


def test_an_arm_equal_to_the_baseline() -> None:
    family = rank([effect("same", [0.0] * 6), effect("b", [1.0, 2.0, 1.0, 2.0, 1.0, 2.0])], "lower")
    assert family["same"] == 1.0 and family["b"] == pytest.approx(2 / 64)


def test_five_pairs_cannot_reach_significance() -> None:
    assert rank([effect("a", [1.0] * 4 + [1.1])], "lower")["a"] == pytest.approx(0.0625)
    assert [pairs_needed(alpha) for alpha in (0.25, 0.05, 0.01)] == [3, 6, 8]


def test_an_arm_that_lacks_seeds_leaves_the_others_as_they_are() -> None:
    """Before, a family was judged over the seeds of all arms: one arm with two seeds silenced every
    other."""
    rng = np.random.default_rng(1)
    clear, small = (
        effect("clear", (2.0 + rng.standard_normal(8)).tolist()),
        effect("small", [0.1, -0.2, 0.3, 0.1] * 2),
    )
    whole = rank([clear, small], "lower")
    two = paired_effect({0: 1.0, 5: 1.0}, {0: 3.0, 5: 3.1}, name="two", metric="frechet")
    family = rank([clear, small, two], "lower")
    assert {arm: family[arm] for arm in whole} == whole
    assert family["two"] == pytest.approx(0.5)  # two pairs alone


def test_the_scatter_of_an_arm_with_too_few_pairs_is_not_shared() -> None:
    """It was: an arm with two pairs moved the others' p, by .375 at most, and turned one decision
    in seventy."""
    rng = np.random.default_rng(6)
    for _ in range(50):
        differences, few = (
            rng.standard_normal((7, 4)) + np.array([1.2, 0.0, 0.0, 0.0]),
            np.full((7, 1), np.nan),
        )
        few[:2] = rng.standard_normal((2, 1))
        assert (
            adjusted(np.concatenate([differences, few], axis=1))[:4] == adjusted(differences)
        ).all()


def test_refusals() -> None:
    three = effect("a", [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="one metric"):
        rank([three, effect("b", [1.0, 2.0, 3.0], metric="mmd")], "lower")
    with pytest.raises(ValueError, match="stands twice"):
        rank([three, three], "lower")
    with pytest.raises(ValueError, match="at least one effect"):
        rank([], "lower")


@pytest.mark.parametrize(("n", "arms"), [(6, 3), (6, 12), (8, 5)])
def test_family_wise_error(n: int, arms: int) -> None:
    """With a shared baseline, unequal heavy-tailed noise and no effect: any false alarm in <= 5 %
    of the studies."""
    studies = 4000
    rng = np.random.default_rng([n, arms])
    noise = rng.standard_t(3, size=(studies, n, arms + 1)) * np.linspace(0.3, 3.0, arms + 1)
    differences = noise[:, :, 1:] - noise[:, :, :1]
    alarms = (adjusted(differences) <= 0.05).any(axis=1).mean()
    assert 0.0 < alarms <= 0.05 + 2.0 * math.sqrt(0.05 * 0.95 / studies)


def test_family_wise_error_with_true_effects() -> None:
    """Strong control: the arms without an effect stay quiet although another arm has a large
    one."""
    rng = np.random.default_rng(5)
    noise = rng.standard_normal((4000, 7, 4))
    differences = noise[:, :, 1:] - noise[:, :, :1]
    differences[:, :, 0] += 8.0
    p = adjusted(differences)
    assert (p[:, 0] <= 0.05).mean() > 0.9
    assert (p[:, 1:] <= 0.05).any(axis=1).mean() <= 0.05 + 2.0 * math.sqrt(0.05 * 0.95 / 4000)
