"""Training time is told once: the progress and the result say the same, encoding and compiling are
told apart."""

import json
import re
import time

import pytest

from fulcrum.spec.edit import put
from fulcrum.spec.run import System
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import StepClock
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform

SLOW = 0.7  # seconds


def walked(run, steps, state=None):
    """The states after steps of these lengths, in one session."""
    pace, state, seen = StepClock(run), state or State(), []
    for seconds in steps:
        state = state.advance(run.budget.batch, *pace.split(state.images, seconds))
        seen.append((state.seconds, state.preparing))
    return seen, state


def test_a_first_step_lasts_as_long_as_the_next_and_the_rest_of_it_was_preparation(tiny):
    run = put(tiny(), "budget.images", 4 * tiny().budget.batch)
    seen, half = walked(run, [10.0, 2.0])
    assert seen == [(0.0, 10.0), (4.0, 8.0)]
    seen, end = walked(run, [5.0, 1.0], half)  # resumed: it compiles again
    assert seen == [(4.0, 13.0), (6.0, 12.0)]
    assert end.images_per_second == run.budget.images / 6
    assert walked(run, [1.0, 2.0])[0][-1] == (3.0, 0.0)  # nothing was prepared
    # no other step to tell
    assert walked(put(run, "budget.images", run.budget.batch), [10.0])[0] == [(10.0, 0.0)]


def test_the_progress_and_the_result_tell_one_speed(tiny, tmp_path, monkeypatch, capsys):
    prepare = Feed._prepare

    def slowly(self, phase):
        time.sleep(SLOW)  # as if it encoded
        return prepare(self, phase)

    def looking(built, folder, state):
        return [lambda look: time.sleep(0.05)]  # as previews do

    monkeypatch.setattr(Feed, "_prepare", slowly)
    result = perform(Order(tiny(), 0, "spark", tmp_path, System()), lambda text: None, looking)
    last = capsys.readouterr().err.strip().splitlines()[-1]
    told = float(re.search(r"([\d,.]+) images/s", last).group(1).replace(",", ""))
    assert told == pytest.approx(result["images_per_second"], abs=0.06)
    assert result["images_per_second"] == pytest.approx(
        result["images"] / result["seconds"], rel=0.01
    )
    assert result["preparing_seconds"] >= SLOW - 0.2 and "0 s left" in last
    record = [
        json.loads(line)["seconds"]
        for line in RunFolder(tmp_path / result["key"]).record.read_text().splitlines()
    ]
    assert record[-1] == result["seconds"] and record == sorted(record)
