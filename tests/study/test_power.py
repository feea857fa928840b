"""Power: against published tables, against simulation, and the two answers that must not be mixed up."""

import numpy as np
import pytest

from fulcrum.study.plan.power import rule_detectable, student_detectable, student_power


def test_student_against_the_table() -> None:
    """Cohen's tables for the paired t-test, two-sided 0.05, power 0.8: 0.5, 0.8, 1.0 sd need 34, 15, 10 pairs."""
    for size, pairs in ((0.5, 34), (0.8, 15), (1.0, 10)):
        assert student_power(size, 1.0, pairs) >= 0.8 > student_power(size, 1.0, pairs - 1)
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
    least, smallest = rule_detectable(1.0, 6, power=most - 0.06), rule_detectable(1.0, 6, power=most + 0.03)
    assert least is not None and smallest is not None and least < 2.0 <= smallest
    smallest = rule_detectable(1.0, 6)
    assert smallest is not None and smallest > student_detectable(1.0, 6)


def test_too_few_pairs_detect_nothing() -> None:
    assert rule_detectable(1.0, 5) is None


def test_a_larger_family_costs_power() -> None:
    alone, family = rule_detectable(1.0, 6), rule_detectable(1.0, 6, arms=6)
    assert alone is not None and family is not None and alone < family


def test_beyond_enumeration_it_is_students_answer() -> None:
    assert rule_detectable(2.0, 34, arms=3) == student_detectable(2.0, 34)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="positive spread"):
        student_power(1.0, 0.0, 6)
    with pytest.raises(ValueError, match="alpha < power"):
        student_detectable(1.0, 6, power=1.2)
