"""The multiplier is a pure function of images seen."""

import pytest

from fulcrum.levers.recipes import spark
from fulcrum.spec.edit import during, put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.stage import OwnRate, at_rate, phases
from fulcrum.training.optim.schedule import Schedule, rates


def test_warm_up_plateau_decay() -> None:
    schedule = Schedule(1000, warmup=0.1, decay=0.2)
    assert [schedule(images) for images in (0, 50, 100, 500, 800)] == [0.0, 0.5, 1.0, 1.0, 1.0]
    assert schedule(900) == pytest.approx(0.5) and schedule(1000) == pytest.approx(0.0)
    assert schedule(2000) == 0.0  # a run past its budget does not turn round
    # the middle of a last batch that is larger than what is left
    assert Schedule(1000, warmup=0.1)(996, rows=16) == 1.0


def test_no_step_is_wasted_on_a_rate_of_zero() -> None:
    schedule = Schedule(64, warmup=0.5, decay=0.5)
    rates = [schedule(images, rows=8) for images in range(0, 64, 8)]
    assert min(rates) > 0 and rates == pytest.approx(rates[::-1])
    assert rates[0] == pytest.approx(4 / 32)


def test_the_multiplier_does_not_know_the_batch_before() -> None:
    schedule = Schedule(1000, warmup=0.3)
    assert (
        schedule(128, rows=64)
        == Schedule(1000, warmup=0.3)(128, rows=64)
        == pytest.approx(160 / 300)
    )
    assert Schedule(1000, warmup=0.0)(0) == 1.0


@pytest.mark.parametrize(
    "bad", [Schedule(0), Schedule(10, warmup=-0.1), Schedule(10, warmup=0.6, decay=0.6)]
)
def test_the_impossible_is_refused(bad: Schedule) -> None:
    with pytest.raises(BadInput):
        bad.checked()


# ---- stages with a rate of their own


def by_hand(images: float, budget: float, warmup: float, decay: float) -> float:
    """Warm-up, plateau, decay, written out."""
    progress = images / budget
    return min(1.0, progress / warmup if warmup else 1.0, (1 - progress) / decay if decay else 1.0)


def test_a_stage_goes_through_the_schedule_once_more_and_the_rest_is_as_if_it_were_not_there() -> (
    None
):
    stage = OwnRate(800, 1000, 0.5)
    plain = Schedule(1000, warmup=0.1, decay=0.5)
    staged = plain._replace(rewarm=0.2, stages=(stage,))
    for images in range(0, 800, 8):
        assert (
            staged(images, 8)
            == plain(images, 8)
            == pytest.approx(by_hand(images + 4, 1000, 0.1, 0.5))
        )
    for images in range(800, 1000, 8):
        assert staged(images, 8) == pytest.approx(0.5 * by_hand(images - 800 + 4, 200, 0.2, 0.5))
    assert staged(800, 8) < plain(799, 8) < staged(848, 8), "down, and up again"


def test_of_two_rates_the_stage_that_began_last_has_its_own() -> None:
    staged = Schedule(1000, warmup=0.0, stages=(OwnRate(500, 1000, 1.0), OwnRate(700, 800, 0.25)))
    assert [staged(images) for images in (499, 500, 699, 700, 799, 800, 999)] == [
        1.0,
        1.0,
        1.0,
        0.25,
        0.25,
        1.0,
        1.0,
    ]


def test_the_last_tenth_of_a_decaying_run_is_starved_and_a_stage_of_its_own_is_not() -> None:
    run = put_all(spark(), [("optim.warmup", 0.05), ("optim.decay", 0.5), ("optim.rewarm", 0.1)])
    shares = []
    for one in (run, during(run, 0.9, 1.0, "optim.lr", run.optim.lr)):
        steps = rates(one)
        shares.append(sum(steps[round(0.9 * len(steps)) :]) / sum(steps))
    assert shares[0] == pytest.approx(0.0135, abs=0.0005) and shares[1] == pytest.approx(
        0.09, abs=0.005
    )


def test_another_rate_is_another_rate_in_every_stage() -> None:
    """A sweep of learning rates moved the run's and would have left the stage's behind."""
    run = during(spark(), 0.5, 1.0, "optim.lr", spark().optim.lr / 4)
    other = at_rate(run, run.optim.lr * 2)
    assert rates(other) == rates(run) and phases(other)[-1].run.optim.lr == pytest.approx(
        run.optim.lr / 2
    )
