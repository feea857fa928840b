"""The corrected family: hand-computed and brute-force cases, refusals, and family-wise error on simulated studies."""

import itertools
import math

import numpy as np
import pytest

from fulcrum.study.judge.effect import PairedEffect, paired_effect, sign_vectors
from fulcrum.study.judge.rank import max_t, pairs_needed, rank


def effect(name: str, differences: list[float], metric: str = "frechet") -> PairedEffect:
    seeds = range(len(differences))
    baseline = {seed: 10.0 + seed % 3 for seed in seeds}
    return paired_effect(baseline, {s: baseline[s] + differences[s] for s in seeds}, name=name, metric=metric)


def brute_force(differences: np.ndarray) -> list[float]:
    """Westfall and Young's step-down by its definition, Student's t written out, one sign vector at a time."""
    n, arms = differences.shape

    def size(d: np.ndarray) -> float:
        return abs(d.mean()) / max(d.std(ddof=1), 1e-12)

    observed = [size(differences[:, a]) for a in range(arms)]
    order = sorted(range(arms), key=lambda a: -observed[a])
    p, highest = [0.0] * arms, 0.0
    for place, arm in enumerate(order):
        reached = 0
        for signs in itertools.product((1.0, -1.0), repeat=n):
            flipped = differences * np.array(signs)[:, None]
            reached += max(size(flipped[:, a]) for a in order[place:]) >= observed[arm] * (1 - 1e-9)
        highest = max(highest, reached / 2**n)
        p[arm] = highest
    return p


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    differences = rng.standard_normal((6, 3)) * [1.0, 3.0, 0.2] + [1.5, 0.0, 0.3]
    assert max_t(differences, sign_vectors(6)) == pytest.approx(brute_force(differences))


def test_many_studies_at_once_equal_one_by_one() -> None:
    studies = np.random.default_rng(1).standard_normal((20, 7, 4)) + 0.6
    signs = sign_vectors(7)
    assert np.array_equal(max_t(studies, signs), np.stack([max_t(study, signs) for study in studies]))


def test_floor_holds_for_the_whole_family() -> None:
    """A constant difference of one sign is as extreme as data can be: 2/64 with 6 pairs, however many arms."""
    rng = np.random.default_rng(0)
    arms = [effect("clear", [2.0, 2.01, 1.99, 2.0, 2.0, 2.02])]
    arms += [effect(f"null{k}", rng.standard_normal(6).tolist()) for k in range(20)]
    family = rank(arms, "lower")
    assert family["clear"] == pytest.approx(2 / 64)
    assert min(p for arm, p in family.items() if arm != "clear") >= 2 / 64


def test_one_arm_is_the_plain_test() -> None:
    alone = effect("a", [1.0, 2.0, -0.5, 3.0, 1.0, 0.4])
    assert rank([alone], "lower")["a"] == pytest.approx(brute_force(np.array([alone.differences]).T)[0])


def test_order_follows_the_direction() -> None:
    arms = [effect("up", [1.0, 2.0, 1.0]), effect("down", [-1.0, -2.0, -1.0]), effect("flat", [0.1, -0.1, 0.0])]
    assert list(rank(arms, "lower")) == ["down", "flat", "up"]
    assert list(rank(arms, "higher")) == ["up", "flat", "down"]


def test_an_arm_equal_to_the_baseline() -> None:
    family = rank([effect("same", [0.0] * 6), effect("b", [1.0, 2.0, 1.0, 2.0, 1.0, 2.0])], "lower")
    assert family["same"] == 1.0 and family["b"] == pytest.approx(2 / 64)


def test_five_pairs_cannot_reach_significance() -> None:
    assert rank([effect("a", [1.0] * 4 + [1.1])], "lower")["a"] == pytest.approx(0.0625)
    assert [pairs_needed(alpha) for alpha in (0.25, 0.05, 0.01)] == [3, 6, 8]


def test_refusals() -> None:
    three, four = effect("a", [1.0, 2.0, 3.0]), effect("b", [1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match=r"same seeds: 'a' has \[0, 1, 2\], 'b' has \[0, 1, 2, 3\]"):
        rank([three, four], "lower")
    with pytest.raises(ValueError, match="one metric"):
        rank([three, effect("b", [1.0, 2.0, 3.0], metric="mmd")], "lower")
    with pytest.raises(ValueError, match="stands twice"):
        rank([three, three], "lower")
    with pytest.raises(ValueError, match="at least one effect"):
        rank([], "lower")


@pytest.mark.parametrize(("n", "arms"), [(6, 3), (6, 12), (8, 5)])
def test_family_wise_error(n: int, arms: int) -> None:
    """With a shared baseline, unequal heavy-tailed noise and no effect: any false alarm in <= 5 % of the studies."""
    studies = 4000
    rng = np.random.default_rng([n, arms])
    noise = rng.standard_t(3, size=(studies, n, arms + 1)) * np.linspace(0.3, 3.0, arms + 1)
    differences = noise[:, :, 1:] - noise[:, :, :1]
    alarms = (max_t(differences, sign_vectors(n)) <= 0.05).any(axis=1).mean()
    assert 0.0 < alarms <= 0.05 + 2.0 * math.sqrt(0.05 * 0.95 / studies)


def test_family_wise_error_with_true_effects() -> None:
    """Strong control: the arms without an effect stay quiet although another arm has a large one."""
    rng = np.random.default_rng(5)
    noise = rng.standard_normal((4000, 7, 4))
    differences = noise[:, :, 1:] - noise[:, :, :1]
    differences[:, :, 0] += 8.0
    p = max_t(differences, sign_vectors(7))
    assert (p[:, 0] <= 0.05).mean() > 0.9
    assert (p[:, 1:] <= 0.05).any(axis=1).mean() <= 0.05 + 2.0 * math.sqrt(0.05 * 0.95 / 4000)
