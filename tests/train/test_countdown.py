"""A time left that does not jump: on made-up sequences where reckoning from the last numbers does."""

import pytest

from fulcrum.train.watched.countdown import Countdown


def jumps(told, passed):
    """How far each value is from the one before it, run down by the clock; as a share of that."""
    return [abs(now - (before - passed)) / before for before, now in zip(told, told[1:], strict=False) if before > 60]


def test_a_machine_that_is_slow_for_a_while_does_not_make_it_jump():
    """20 minutes of work, told every 15 s; from 4 to 6 minutes another job takes two thirds of the machine."""
    speeds = [1 / 3 if 240 <= second < 360 else 1.0 for second in range(0, 1300, 15)]
    done, reckoned, countdown, told = 0.0, [], Countdown(), []
    for number, speed in enumerate(speeds):
        done += 15 * speed
        if done >= 1200:
            break
        reckoned.append((1200 - done) / speed)  # by the speed of the last lines
        told.append(countdown.tell(reckoned[-1], 15.0 * number))
    assert max(jumps(reckoned, 15)) > 1.5 and max(jumps(told, 15)) < 0.2
    assert told[-1] < 60, "at the end it says that it is near"


def test_a_first_reckoning_that_was_wrong_is_left_before_half_of_the_time():
    countdown, told = Countdown(), []
    for second in range(0, 600, 15):
        told.append(countdown.tell(3000.0 if second < 15 else 600.0 - second, second))
    assert max(jumps(told, 15)) < 0.2 and told[20] == pytest.approx(300, rel=0.35) and told[-1] == pytest.approx(15, abs=15)


def test_without_news_it_runs_down_with_the_clock():
    countdown = Countdown()
    assert [countdown.tell(100.0 - second, second) for second in (0.0, 30.0, 60.0)] == pytest.approx([100.0, 70.0, 40.0])
    assert countdown.tell(0.0, 1000.0) == pytest.approx(0.0, abs=1e-9)
