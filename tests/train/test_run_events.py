"""events.jsonl: what a session that resumes takes back, what stays, and that a full or foreign file
stops nobody."""

import json
import os

import pytest

from fulcrum.training import run_folder as run_events
from fulcrum.training.run_folder import ALARM, ROLLED_BACK, SESSION, RunEvents, counted_sessions


@pytest.fixture
def events(tmp_path):
    said = []
    made = RunEvents(tmp_path, said.append)
    made.said = said
    return made


def test_lines_are_written_as_they_happen_and_alarms_counted(events):
    events.write(SESSION, 0, {"machine": "a"})
    events.write(ALARM, 16, {"loss": 9.0})
    events.write(ROLLED_BACK, 8, {})
    assert events.read() == [
        {"event": "session", "images": 0, "machine": "a"},
        {"event": "alarm", "images": 16, "loss": 9.0},
        {"event": "rolled back", "images": 8},
    ]
    assert (events.written, events.alarms, events.said) == (3, 1, [])


def test_a_resume_takes_back_alarms_of_steps_that_are_taken_again(events):
    """One at the very step that the checkpoint stands after is not: that step is not taken
    again."""
    for event, images in (
        (SESSION, 0),
        (ALARM, 8),
        (ALARM, 16),
        (ALARM, 24),
        (ROLLED_BACK, 24),
        (SESSION, 32),
    ):
        events.write(event, images, {})
    with events.path.open("a") as stream:
        stream.write('{"event": "party", "images": 1}\n{"event": "alarm", "images": "8"}\n[1]\n')
    events.resume(16)
    assert [
        (line["event"], line["images"])
        for line in map(json.loads, events.path.read_text().splitlines())
    ] == [
        (SESSION, 0),
        (ALARM, 8),
        (ALARM, 16),
        (ROLLED_BACK, 24),
        (SESSION, 32),
    ]


def test_a_run_without_events_gets_no_file_by_resuming(events):
    events.resume(16)
    assert not os.path.lexists(events.path) and events.said == [] and events.read() == []


@pytest.mark.parametrize("whole", [False, True])
def test_a_link_is_set_aside_whatever_it_names(events, tmp_path, whole):
    theirs = tmp_path / "theirs"
    if whole:
        theirs.write_text("precious")
    events.path.symlink_to(theirs)
    events.write(ALARM, 8, {})
    assert (
        len(events.said) == 1 and "events.jsonl cannot be written: it is a link" in events.said[0]
    )
    events.resume(16)
    assert not events.path.is_symlink() and (tmp_path / "damaged-events.jsonl").is_symlink()
    events.write(ALARM, 24, {})
    assert len(events.read()) == 1 and (
        theirs.read_text() == "precious" if whole else not theirs.exists()
    )


def test_a_session_does_not_fill_the_disk(events, monkeypatch):
    monkeypatch.setattr(run_events, "MOST", 3)
    for images in range(5):
        events.write(ALARM, images, {})
    assert [line["images"] for line in events.read()] == [0, 1, 2] and (
        events.written,
        events.alarms,
    ) == (5, 5)


def test_a_folder_that_is_gone_is_told_and_the_run_goes_on(events):
    events.path.parent.rmdir()
    events.write(SESSION, 0, {})
    assert (
        len(events.said) == 1
        and "No such file or directory; what happens to this run is not kept there"
        in events.said[0]
    )


def test_sessions_whose_steps_were_lost_do_not_count():
    began = [0, 16, 8, 8, 24]
    lines = [
        {"event": SESSION, "images": images, "number": number}
        for number, images in enumerate(began)
    ]
    assert [
        line["number"] for line in counted_sessions([*lines, {"event": ALARM, "images": 1}])
    ] == [0, 3, 4]
