"""Power: the promise is kept on studies that it was not made from, for every number of pairs and
arms."""

import time

import numpy as np
import pytest

from fulcrum.judge.power import chance_seen, detectable
from fulcrum.judge.statistics import adjusted, half_widths


def share_seen(n: int, arms: int, effect: float, studies: int) -> float:
    """Share of studies with noise of equal size whose first arm gets its verdict, by all sign
    vectors of the judge."""
    cells = np.random.default_rng([11, n, arms]).standard_normal((studies, n, arms + 1)) / 2**0.5
    differences = cells[:, :, 1:] - cells[:, :, :1]
    differences[:, :, 0] += effect
    apart = differences[:, :, 0].mean(axis=1) > half_widths(differences, 0.05)[:, 0]
    return float((apart & (adjusted(differences)[:, 0] <= 0.05)).mean())


@pytest.mark.parametrize(
    ("n", "arms", "studies"), [(6, 1, 2000), (8, 3, 2000), (13, 1, 200), (13, 25, 60), (16, 10, 60)]
)
def test_the_promise_is_kept(n: int, arms: int, studies: int) -> None:
    """Student's formula, which was used from 13 pairs on, kept 31 to 37 % where it promised 80 with
    25 arms."""
    smallest = detectable(n, arms)
    assert smallest is not None
    seen, error = share_seen(n, arms, smallest, studies), (0.8 * 0.2 / studies) ** 0.5
    assert seen >= 0.8 - 0.03 - 2.5 * error  # equal noise is the kinder case: more is no fault
    assert seen <= 0.8 + 0.03 + 2.5 * error or arms > 1


def test_six_pairs_need_six_equal_signs() -> None:
    """One arm, six pairs: the rule asks for equal signs, so power is at most Phi(effect)^6."""
    # Phi(2)
    assert 0.8 * 0.9772498680518208**6 < chance_seen(2.0, 6) <= 0.9772498680518208**6 + 0.02


def test_power_is_the_inverse_of_what_is_detectable() -> None:
    smallest = detectable(8, 5, power=0.7)
    assert smallest is not None and chance_seen(smallest, 8, 5) == pytest.approx(0.7, abs=0.011)


def test_too_few_pairs_detect_nothing() -> None:
    assert detectable(5) is None and chance_seen(9.0, 5) == 0.0
    assert detectable(6) is not None and detectable(6, alpha=0.01) is None


def test_a_strict_level_can_be_reached() -> None:
    """With 512 sign vectors for any alpha the smallest p was 1 / 512, and no effect whatever was
    seen at 0.001."""
    strict, usual = detectable(12, 3, alpha=0.001), detectable(12, 3)
    assert strict is not None and usual is not None and 1.3 * usual < strict < 2.5 * usual


def test_more_arms_cost_power_and_more_pairs_give_it() -> None:
    smallest = [
        detectable(n, arms) or 0.0 for n, arms in ((20, 1), (20, 25), (12, 25), (8, 25), (6, 25))
    ]
    assert smallest == sorted(smallest) and smallest[0] > 0.0


def test_a_page_and_a_plan_do_not_wait_for_it() -> None:
    begun = time.perf_counter()
    first = detectable(14, 25, alpha=0.04)
    took = time.perf_counter() - begun
    assert took < 8.0  # half a second on a free core
    begun = time.perf_counter()
    assert detectable(14, 25, alpha=0.04) == first and time.perf_counter() - begun < 0.01


def test_refusals() -> None:
    with pytest.raises(ValueError, match="at least 2 pairs"):
        detectable(1)
    with pytest.raises(ValueError, match="alpha < power"):
        detectable(6, power=1.2)
    with pytest.raises(ValueError, match="at least one arm"):
        detectable(6, 0)
