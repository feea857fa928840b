"""The record: lines wait for each other, and are on disk whenever a checkpoint is."""

import json
import time

import pytest

from fulcrum.spec.edit import key
from fulcrum.spec.run import System
from fulcrum.training import checkpoint, observers
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform


def quiet(text):
    pass


@pytest.fixture
def patient(monkeypatch):
    """Nothing is written because of the time, and a line is due at every other step."""
    monkeypatch.setattr(observers, "RECORD_SECONDS", 1e9)
    monkeypatch.setattr(observers.Recorder.__init__, "__defaults__", (2,))


def lines(folder):
    return [json.loads(line) for line in folder.record.read_text().splitlines()]


def test_lines_wait_and_are_written_before_a_checkpoint(patient, tiny, tmp_path, monkeypatch):
    run = tiny("spark", "budget.images=80")
    folder, seen = RunFolder(tmp_path / key(run, 0)), []
    save = checkpoint.save

    def saved(place, saving, *ranks):
        seen.append(
            (
                saving.state.images,
                len(folder.record.with_suffix(".steps").read_bytes()) // 8,
                len(lines(folder)),
            )
        )
        save(place, saving, *ranks)

    monkeypatch.setattr(checkpoint, "save", saved)

    def watch(built, place, state):
        def look(now):
            if now.state.images == 24:
                assert not lines(folder), "three steps wait"

        return [look]

    perform(Order(run, 0, "spark", tmp_path, System(save_every=32), quiet=True), quiet, watch)
    assert seen == [(32, 4, 2), (64, 8, 4), (80, 10, 5)]
    assert [line["images"] for line in lines(folder)] == [16, 32, 48, 64, 80]


def test_a_run_that_fails_leaves_its_lines(patient, tiny, tmp_path):
    run = tiny("spark", "budget.images=80")

    def watch(built, place, state):
        def look(now):
            if now.state.images == 40:
                raise RuntimeError("lost")

        return [look]

    with pytest.raises(RuntimeError, match="lost"):
        perform(Order(run, 0, "spark", tmp_path, System(), quiet=True), quiet, watch)
    assert [line["images"] for line in lines(RunFolder(tmp_path / key(run, 0)))] == [16, 32]


def test_a_line_waits_a_second_at_most(tiny, tmp_path, monkeypatch):
    run, times = tiny("spark", "budget.images=80"), iter(range(1000))
    monkeypatch.setattr(observers.Recorder.__init__, "__defaults__", (2,))
    monkeypatch.setattr(time, "monotonic", lambda: 2.0 * next(times))

    def watch(built, folder, state):
        def look(now):
            if now.state.images == 48:
                assert [line["images"] for line in lines(folder)] == [16, 32, 48]

        return [look]

    perform(Order(run, 0, "spark", tmp_path, System(), quiet=True), quiet, watch)
