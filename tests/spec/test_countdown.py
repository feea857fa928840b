"""A time left that does not jump: on made-up sequences where reckoning from the last numbers
does."""

import re
import time

import pytest

from fulcrum.spec import progress as countdown
from fulcrum.spec.progress import Countdown, Tally


def jumps(told, passed):
    """How far each value is from the one before it, run down by the clock; as a share of that."""
    return [
        abs(now - (before - passed)) / before
        for before, now in zip(told, told[1:], strict=False)
        if before > 60
    ]


def test_a_machine_that_is_slow_for_a_while_does_not_make_it_jump():
    """20 minutes of work, told every 15 s; from 4 to 6 minutes another job takes two thirds of the
    machine."""
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
    assert (
        max(jumps(told, 15)) < 0.2
        and told[20] == pytest.approx(300, rel=0.35)
        and told[-1] == pytest.approx(15, abs=15)
    )


def test_without_news_it_runs_down_with_the_clock():
    countdown = Countdown()
    assert [
        countdown.tell(100.0 - second, second) for second in (0.0, 30.0, 60.0)
    ] == pytest.approx([100.0, 70.0, 40.0])
    assert countdown.tell(0.0, 1000.0) == pytest.approx(0.0, abs=1e-9)


@pytest.fixture
def passing(monkeypatch):
    """A clock that a test turns."""
    now = [100.0]
    monkeypatch.setattr(countdown.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def test_a_tally_says_nothing_of_what_is_short(passing):
    lines = []
    tally = Tally("read", 3, lines.append, "files")
    for done in (1, 2, 3):
        passing(0.6)
        tally.tell(done)
    assert lines == []


def test_a_tally_speaks_less_often_the_longer_it_takes_and_does_not_jump(passing):
    lines = []
    tally = Tally("read", 3_000, lines.append, "files")
    for done in range(1, 3_001):
        passing(1.0 if done > 200 else 3.0)  # the beginning is three times as slow
        tally.tell(done)
    assert (
        lines[0] == "read 1 of 3,000 files"
        and lines[1] == "read 2 of 3,000 files, 2 h 29 min left"
        and lines[-1] == "read 3,000 of 3,000 files, 0 s left"
    )
    assert len(lines) < 3_400 / 15 + 60
    told = [seconds(line) for line in lines[1:]]
    assert all(after < before * 1.01 for before, after in zip(told, told[1:], strict=False)), (
        "it only runs down"
    )


def seconds(line):
    parts = re.findall(r"(\d+) (h|min|s)\b", line.rsplit(", ", 1)[1])
    return sum(int(number) * {"h": 3600, "min": 60, "s": 1}[unit] for number, unit in parts)


def test_what_an_earlier_go_has_done_took_no_time(passing):
    lines = []
    tally = Tally("imported", 1.0, lines.append)
    tally.tell(0.5, "imported 50 samples (50%)")
    passing(10.0)
    tally.tell(0.6, "imported 60 samples (60%)")
    assert lines == ["imported 60 samples (60%), 40 s left"]
    passing(10.0)
    Tally("nobody listens", 9, None).tell(1)


def test_work_that_nobody_can_count_is_named_when_it_takes_long(monkeypatch):
    lines = []
    monkeypatch.setattr(countdown, "SOONEST", 0.02)
    with countdown.awaited("judging", lines.append):
        time.sleep(0.3)
    assert lines == ["judging"]
    monkeypatch.setattr(countdown, "SOONEST", 30.0)
    with countdown.awaited("nothing", lines.append):
        pass
    assert lines == ["judging"]


def test_what_comes_before_the_first_piece_is_no_measure_of_the_rest(passing):
    """An import that filled its pipeline for a minute said four hours for the 270 pictures that
    then took a minute."""
    lines = []
    tally = Tally("imported", 271, lines.append)
    passing(55.0)
    for done in range(1, 200):
        tally.tell(done)
        passing(0.25)
    assert lines[0] == "imported 1 of 271" and max(seconds(line) for line in lines[1:]) < 90
