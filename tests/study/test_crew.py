"""A cell on two processes through torchrun: started, killed, resumed, asked to stop; what is
refused before it starts."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.studies.cell import finished, lay_out, measuring
from fulcrum.studies.frozen_plan import freeze
from fulcrum.studies.runner import PROCESS, Lane, Work, room, run_all
from fulcrum.studies.study import run
from fulcrum.studies.torchrun_cell import verdict, wait_for_launcher
from tests.study.small import descendants, plan, told

GOOD, BAD = {"key": "k", "ok": True}, {"key": "k", "ok": False, "error": "no luck", "hint": ""}


def test_one_answer_from_those_of_all_processes():
    assert verdict([GOOD, GOOD]) == GOOD
    assert verdict([None, BAD]) == verdict([BAD, GOOD]) == verdict([GOOD, BAD]) == BAD
    # its training failed on one: the other waits for it
    assert verdict([None, {**BAD, "outcome": True}])["outcome"]
    # one was lost: run it again
    assert verdict([GOOD, None]) is None and verdict([None, None]) is None


def test_lanes_leave_room_for_a_cells_processes(tiny):
    assert room([tiny()], threads=2, processes=2, cores=8, memory=1e12).lanes == 2
    assert room([tiny()], threads=1, processes=2, cores=8, memory=3.5 * PROCESS).lanes == 1


def test_a_batch_that_cannot_be_shared_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(BadInput, match="8 rows cannot be dealt evenly to 3"):
        run(plan(processes=3), CATALOG, tmp_path, "x", print)
    assert not list(tmp_path.iterdir())


def test_one_process_per_cell_is_the_plan_that_it_was(tmp_path):
    assert plan(processes=1).hash == plan().hash != plan(processes=2).hash
    assert (
        freeze(plan(processes=2), tmp_path)
        == freeze(plan(processes=2), tmp_path)
        != freeze(plan(), tmp_path)
    )


# ---- with real processes


def ranks(of):
    return sorted(
        pid
        for pid in descendants(of)
        if told(pid)[1:3] == ["-u", "-m"] and "fulcrum.studies.torchrun_cell" in told(pid)
    )


def wait_for(what, seconds=240):
    deadline = time.monotonic() + seconds
    while not (result := what()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.02)
    return result


def trained(out, asked, meddle=None):
    """The first cell of a plan, with somebody who meddles while it trains."""
    cell = lay_out(asked, CATALOG, {}, out).cells[0]
    lanes = []

    class Watched(Lane):
        def __init__(self, *given):
            super().__init__(*given)
            lanes.append(self)

    if meddle:
        threading.Thread(target=lambda: meddle(out / cell.key, lanes), daemon=True).start()
    board = run_all(
        [cell],
        Work(out, System(processes=2), measuring(asked), ()),
        1,
        lambda board: None,
        lane=Watched,
    )
    return board, finished(out, cell, measuring(asked).how)


@pytest.mark.slow
def test_a_cell_of_two_processes_one_of_them_killed_ends_as_an_undisturbed_one(tmp_path):
    asked, killed = plan(images=160, processes=2, evaluations=(0.5, 1.0)), []

    def kill_one(folder, lanes):
        wait_for(lambda: list(folder.glob("checkpoints/0*")))
        killed.extend(ranks(lanes[0].process.pid))
        os.kill(killed[-1], signal.SIGKILL)

    board, result = trained(tmp_path / "killed", asked, kill_one)
    calm, expected = trained(tmp_path / "calm", asked)
    assert len(killed) == 2 and (board.lost, calm.lost) == (1, 0)
    assert result["metrics"] == expected["metrics"]
    assert result["result"]["weights_sha256"] == expected["result"]["weights_sha256"]
    points = [
        next((tmp_path / name).glob("*/point-*80-*.json")).read_text()
        for name in ("killed", "calm")
    ]
    assert points[0] == points[1]
    saved = next((tmp_path / "calm").glob("*/checkpoints/0*160/state.json"))
    assert json.loads(saved.read_text())["system"]["processes"] == 2


@pytest.mark.slow
def test_processes_leave_when_their_worker_is_killed_and_save_when_it_is_asked(tmp_path):
    asked = plan(images=80_000, processes=2)
    cell = lay_out(asked, CATALOG, {}, tmp_path).cells[0]
    work = Work(tmp_path, System(processes=2), measuring(asked), ())
    for number in (signal.SIGKILL, signal.SIGTERM):
        worker = subprocess.Popen(
            [sys.executable, "-m", "fulcrum.studies.worker_start", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        worker.stdin.write(f"{json.dumps(work.setup())}\n{json.dumps(work.asked(cell))}\n")
        worker.stdin.flush()
        pair = wait_for(
            lambda worker=worker: running if len(running := ranks(worker.pid)) == 2 else None
        )
        record, before = tmp_path / cell.key / "record.jsonl", time.time()
        wait_for(
            lambda record=record, before=before: (
                record.exists()
                and record.stat().st_mtime > before
                and record.read_text().count("\n") > 2
            )
        )
        worker.send_signal(number)
        worker.wait(60)
        wait_for(lambda pair=pair: not any(told(pid) for pid in pair), 60)
        saved = sorted((tmp_path / cell.key / "checkpoints").glob("0*"))
        assert bool(saved) == (number == signal.SIGTERM)
        worker.stdin.close()
        worker.stdout.close()


def test_a_launcher_that_stands_still_is_not_waited_for_when_all_have_answered(tmp_path):
    """torchrun's agent was stopped, both ranks had ended, and the study waited for ever."""
    files = [tmp_path / "0.json", tmp_path / "1.json"]
    files[0].write_text("null")
    launcher = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    threading.Timer(1.0, files[1].write_text, ["null"]).start()
    try:
        begun = time.monotonic()
        wait_for_launcher(launcher, files, patience=0.5)
        assert launcher.poll() is None and files[1].exists() and time.monotonic() - begun < 60
    finally:
        launcher.kill()
        launcher.wait()
    # it has ended: no answer is waited for
    wait_for_launcher(launcher, [tmp_path / "2.json"], patience=0.5)
