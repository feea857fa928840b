"""Power: against published tables, against simulation, and the two answers that must not be mixed up."""

import numpy as np
import pytest

from fulcrum.study.plan.power import (
    rule_detectable,
    rule_pairs,
    rule_power,
    student_detectable,
    student_pairs,
    student_power,
)


def test_student_against_the_table() -> None:
    """Cohen's tables for the paired t-test, two-sided 0.05, power 0.8: 0.5, 0.8, 1.0 sd need 34, 15, 10 pairs."""
    assert [student_pairs(size, 1.0) for size in (0.5, 0.8, 1.0)] == [34, 15, 10]
    assert student_power(0.0, 1.0, 8) == pytest.approx(0.05)


def test_detectable_is_the_inverse_of_power() -> None:
    smallest = student_detectable(2.5, 6, power=0.9)
    assert student_power(smallest, 2.5, 6) == pytest.approx(0.9, abs=1e-9)
    assert student_detectable(5.0, 6, power=0.9) == pytest.approx(2 * smallest)


def test_student_power_against_simulation() -> None:
    draws = np.random.default_rng(0).standard_normal((20_000, 6)) + 1.2
    t = draws.mean(axis=1) / (draws.std(axis=1, ddof=1) / np.sqrt(6))
    assert student_power(1.2, 1.0, 6) == pytest.approx((np.abs(t) > 2.5705818).mean(), abs=0.01)


def test_six_pairs_need_six_equal_signs() -> None:
    """One arm, six pairs: the rule asks for equal signs, so power is at most Phi(effect)^6, below Student's."""
    most = 0.9772498680518208**6  # Phi(2)^6
    found = rule_power(2.0, 1.0, 6)
    assert most - 0.06 < found <= most + 0.03 and found < student_power(2.0, 1.0, 6)
    smallest = rule_detectable(1.0, 6)
    assert smallest is not None and smallest > student_detectable(1.0, 6)


def test_too_few_pairs_detect_nothing() -> None:
    assert rule_detectable(1.0, 5) is None and rule_power(100.0, 1.0, 5) == 0.0


def test_a_larger_family_costs_power_and_the_mean_costs_less() -> None:
    alone, family = rule_detectable(1.0, 6), rule_detectable(1.0, 6, arms=6)
    by_mean = rule_detectable(1.0, 6, arms=6, statistic="mean")
    assert alone is not None and family is not None and by_mean is not None
    assert alone < by_mean < family


def test_rule_pairs() -> None:
    n = rule_pairs(1.5, 1.0, arms=3)
    assert rule_power(1.5, 1.0, n, arms=3) >= 0.8 > rule_power(1.5, 1.0, n - 1, arms=3)
    assert rule_pairs(0.5, 1.0) == 34  # beyond enumeration: Student's answer


def test_refusals() -> None:
    with pytest.raises(ValueError, match="positive spread"):
        student_power(1.0, 0.0, 6)
    with pytest.raises(ValueError, match="effect of zero"):
        student_pairs(0.0, 1.0)
    with pytest.raises(ValueError, match="more than 1000 pairs"):
        student_pairs(0.01, 1.0)
    with pytest.raises(ValueError, match="alpha < power"):
        student_detectable(1.0, 6, power=1.2)
