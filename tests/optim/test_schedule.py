"""The multiplier is a pure function of images seen."""

import pytest

from fulcrum.optim.schedule import Schedule
from fulcrum.spec.errors import BadInput


def test_warm_up_plateau_decay() -> None:
    schedule = Schedule(1000, warmup=0.1, decay=0.2)
    assert [schedule(images) for images in (0, 50, 100, 500, 800)] == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert schedule(900) == pytest.approx(0.5) and schedule(1000) == pytest.approx(0.0)
    assert schedule(2000) == 0.0  # a run past its budget does not turn round


def test_no_step_is_wasted_on_a_rate_of_zero() -> None:
    schedule = Schedule(64, warmup=0.5, decay=0.5)
    rates = [schedule(images, rows=8) for images in range(0, 64, 8)]
    assert min(rates) > 0 and rates == pytest.approx(rates[::-1])
    assert rates[0] == pytest.approx(4 / 32)


def test_the_multiplier_does_not_know_the_batch_before() -> None:
    schedule = Schedule(1000, warmup=0.3)
    assert schedule(128, rows=64) == Schedule(1000, warmup=0.3)(128, rows=64) == pytest.approx(160 / 300)
    assert Schedule(1000, warmup=0.0)(0) == 1.0


@pytest.mark.parametrize("bad", [Schedule(0), Schedule(10, warmup=-0.1), Schedule(10, warmup=0.6, decay=0.6)])
def test_the_impossible_is_refused(bad: Schedule) -> None:
    with pytest.raises(BadInput):
        bad.checked()
