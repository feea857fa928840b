"""A study that was killed: its page says so, and how to go on."""

from __future__ import annotations

import os
import platform
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fulcrum.judge import page
from fulcrum.judge import page as alive
from fulcrum.judge.schema import StudyResult
from fulcrum.spec.errors import BadInput

FAKE = runpy.run_path(str(Path(__file__).parent / "fake_study.py"))
STUDY = """
import sys, time
from pathlib import Path
from fulcrum.judge.page import beating
with beating(Path(sys.argv[1]), 0.05):
    print("runs", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    page.write(StudyResult.model_validate(FAKE["running_study"]()), tmp_path)
    return tmp_path


@pytest.fixture
def study(folder: Path) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", STUDY, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "runs\n"
    yield process
    process.kill()
    process.communicate()


def test_a_study_killed_with_minus_9_is_told_as_stopped_with_the_way_on(
    folder: Path, study: Any
) -> None:
    os.utime(folder / "report.html", (0, 0))
    while (folder / "report.html").stat().st_mtime == 0:  # it touches its page
        time.sleep(0.01)
    before = (folder / "report.html").read_text()
    assert (
        alive.settle(folder) is None
        and alive.notice(folder) == ""
        and (folder / "report.html").read_text() == before
    )
    os.kill(study.pid, signal.SIGKILL)
    study.wait()
    heard = time.strftime(
        "%Y-%m-%d %H:%M UTC", time.gmtime((folder / "report.html").stat().st_mtime)
    )
    notice = alive.notice(folder)
    result, text = page.read(folder / "report.json"), (folder / "report.html").read_text()
    assert (
        f"last heard of {heard}: it was stopped; what is done is kept" in notice
        and result.made.command in notice
    )
    assert (
        result.state == "stopped"
        and result.progress.seconds_left is None
        and result.made.date == heard
    )
    states = {cell.state for arm in result.arms for cell in arm.cells}
    assert "running" not in states and {"waiting", "done"} <= states
    assert (
        "stopped before its end" in text
        and heard in text
        and "<script" not in text
        and "renews itself" not in text
    )
    assert alive.notice(folder) == ""  # once: the page says it from now on


def test_a_study_on_another_machine_is_judged_by_its_silence_only(folder: Path) -> None:
    (folder / alive.LOCK).write_text("elsewhere")
    assert (
        platform.node() != "elsewhere"
        and alive.settle(folder) is None
        and alive.notice(folder) == ""
    )
    then = time.time() - alive.SILENT - 1
    os.utime(folder / "report.html", (then, then))
    assert "it was stopped, or its machine sleeps" in alive.notice(folder)
    assert page.read(folder / "report.json").state == "running"  # it may wake and go on


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "report.json").unlink(),
        lambda folder: (folder / "report.json").write_text('{\n "state": "running",'),
        lambda folder: (folder / alive.LOCK).unlink(),
    ],
)
def test_what_cannot_be_known_is_left_as_it_is(folder: Path, harm: Any) -> None:
    with alive.beating(folder):
        pass
    harm(folder)
    before = (folder / "report.html").read_text()
    assert alive.settle(folder) is None and (folder / "report.html").read_text() == before


def test_a_second_engine_on_a_running_study_is_told_at_once(
    folder: Path, study: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(alive, "PATIENCE", 0.2)
    with pytest.raises(BadInput, match="running already"), alive.beating(folder):
        pass


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
def test_a_lock_that_is_no_plain_file_is_refused_and_nothing_is_written_through_it(
    tmp_path: Path, what: str
) -> None:
    precious, lock = tmp_path / "precious", tmp_path / alive.LOCK
    precious.write_text("data")
    {
        "link": lambda: lock.symlink_to(precious),
        "folder": lock.mkdir,
        "pipe": lambda: os.mkfifo(lock),
    }[what]()
    with pytest.raises(BadInput, match="running.lock cannot be opened"), alive.beating(tmp_path):
        pass
    assert precious.read_text() == "data"
