"""Workers that are lost, die, do not hear or cannot read a file: what is told of them, and that
nothing stays behind."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.run import System
from fulcrum.studies import runner
from fulcrum.studies import worker as signs_of_life
from fulcrum.studies.cell import Measuring, lay_out
from fulcrum.studies.runner import Lane, Work, run_all
from fulcrum.studies.worker import Listener
from tests.study.small import plan

pytestmark = pytest.mark.long


def test_a_stopped_study_leaves_no_lane_no_worker_and_no_trace(tmp_path):
    """The workers do not hear that they shall end, as one that compiles does not."""
    cells, failures, lanes = lay_out(plan(), CATALOG, {}, tmp_path).cells, [], []
    deaf = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.close(1); os.write(2,"
        " b'deaf'); time.sleep(60)"
    )

    class Deaf(Lane):
        program = ("-c", deaf)

        def _worker(self):
            lanes.append((self, super()._worker()))
            return lanes[-1][1]

        def close(self, grace=30.0):
            super().close(0.5)

    def stop(board):
        if board.count("running") == 2:
            raise KeyboardInterrupt

    hook, threading.excepthook = threading.excepthook, failures.append
    try:
        with pytest.raises(KeyboardInterrupt):
            run_all(
                cells, Work(tmp_path, System(), Measuring(64), ()), 2, stop, every=0.1, lane=Deaf
            )
    finally:
        threading.excepthook = hook
    assert not failures, failures
    assert lanes and not any(lane.is_alive() or worker.poll() is None for lane, worker in lanes)


def test_a_cell_that_keeps_losing_its_worker_fails(tmp_path):
    asked = plan()
    lost = type("Lost", (Lane,), {"ask": lambda self, cell: None})
    with pytest.raises(RunFailed, match="was lost 3 times"):
        run_all(
            lay_out(asked, CATALOG, {}, tmp_path).cells,
            Work(tmp_path, System(), Measuring(64), ()),
            2,
            lambda board: None,
            lane=lost,
        )
    assert runner.ATTEMPTS == 3


@pytest.mark.parametrize(
    ("code", "says", "hint"),
    [
        (
            "raise SystemExit('no licence\\n for you')",
            "it ended with code 1; it printed last: for you",
            "stands above",
        ),
        (
            "import ctypes; ctypes.string_at(0)",
            "SIGSEGV ended it; it printed last: Fatal Python error: Segmentation",
            "above",
        ),
        (
            "import os; os.write(2, b'half \\xff'); os._exit(7)",
            "it ended with code 7; it printed last: half \ufffd",
            "above",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "3 times: SIGKILL ended it",
            "killed for memory",
        ),
        ("pass", "3 times: it ended with code 0", "killed for memory"),
    ],
    ids=["exit", "crash", "half_a_line", "killed", "silent"],
)
def test_a_worker_that_dies_at_once_is_told_with_what_it_printed_last(
    tmp_path, capfd, code, says, hint
):
    dying = type("Dying", (Lane,), {"program": ("-c", code)})
    cells = lay_out(plan(), CATALOG, {}, tmp_path).cells[:1]
    with pytest.raises(RunFailed) as error:
        run_all(
            cells, Work(tmp_path, System(), Measuring(64), ()), 1, lambda board: None, lane=dying
        )
    assert says in error.value.message and hint in error.value.hint, str(error.value)
    assert says.rpartition("printed last: ")[2] in capfd.readouterr().err or "printed" not in says


def test_a_worker_that_stands_still_is_named_and_its_cell_goes_on_in_another(
    tmp_path, capfd, monkeypatch
):
    """It closes nothing and says nothing: without signs of life a study would wait for it for
    ever."""
    monkeypatch.setattr(signs_of_life, "SILENT", 4.0)
    # for Python's own start on a crowded machine
    monkeypatch.setattr(signs_of_life, "STARTING", 100.0)
    # several looks between two signs: each must begin the count anew
    monkeypatch.setattr(signs_of_life, "LOOK", 0.1)
    cells = lay_out(plan(), CATALOG, {}, tmp_path).cells[:1]
    stopped = tmp_path / "stopped"
    code = f"""
import json, os, pathlib, signal, sys, time
asked = [json.loads(sys.stdin.readline()) for _ in range(2)][1]
print("ready", flush=True)
if not pathlib.Path({str(stopped)!r}).exists():
    pathlib.Path({str(stopped)!r}).write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)
begun = time.monotonic()
while time.monotonic() < begun + 6:  # longer than may be silent
    print(flush=True)
    time.sleep(0.5)
answer = dict(key=asked["key"], ok=False, outcome=True, error="trained to nothing", hint="")
print(json.dumps(answer), flush=True)
"""
    lane = type("Stopped", (Lane,), {"program": ("-c", code)})
    board = run_all(
        cells, Work(tmp_path, System(), Measuring(64), ()), 1, lambda board: None, lane=lane
    )
    assert board.lost == 1 and board.state[cells[0].key] == "failed" and not board.error
    told = capfd.readouterr().err
    assert (
        f"the worker of {cells[0].arm}, seed 0, is lost: it gave no sign of life for 4 s; it was"
        " ended" in told
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int(stopped.read_text()), 0)


def test_a_worker_that_stands_still_every_time_fails_with_words(tmp_path, monkeypatch):
    monkeypatch.setattr(signs_of_life, "STARTING", 0.2)
    monkeypatch.setattr(signs_of_life, "LOOK", 0.1)
    cells = lay_out(plan(), CATALOG, {}, tmp_path).cells[:1]
    still = type(
        "Still",
        (Lane,),
        {"program": ("-c", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")},
    )
    with pytest.raises(
        RunFailed, match="lost 3 times: it gave no sign of life for 0 s while it started"
    ) as error:
        run_all(
            cells, Work(tmp_path, System(), Measuring(64), ()), 1, lambda board: None, lane=still
        )
    assert "was it stopped" in error.value.hint


def test_a_line_that_comes_in_pieces_with_signs_between_is_read_whole(monkeypatch):
    monkeypatch.setattr(signs_of_life, "SILENT", 0.2)
    monkeypatch.setattr(signs_of_life, "LOOK", 0.05)
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as stream:
        line = signs_of_life.LineFromWorker(stream)
        os.write(theirs, b'\n\n{"a": 1}\n{"b"')
        assert line.answer() == '{"a": 1}'
        os.write(theirs, b": 2}\n\n")
        assert line.answer() == '{"b": 2}'
        with pytest.raises(signs_of_life.Silent):
            line.answer()
        os.close(theirs)
        assert line.answer() == ""


def test_a_worker_may_be_silent_for_longer_until_its_first_word(monkeypatch):
    monkeypatch.setattr(signs_of_life, "SILENT", 0.2)
    monkeypatch.setattr(signs_of_life, "LOOK", 0.05)
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as stream, os.fdopen(theirs, "wb", 0) as worker:
        line = signs_of_life.LineFromWorker(stream)
        worker.write(b"\n")  # a sign is no word
        threading.Timer(1.0, worker.write, [b'ready\n{"a": 1}\n']).start()
        assert line.answer() == '{"a": 1}'
        with pytest.raises(signs_of_life.Silent):
            line.answer()


def test_a_worker_that_loads_a_library_is_not_taken_for_one_that_stands_still(monkeypatch):
    """A call into C that holds all threads stops the signs too; what a library prints is no word of
    the worker's."""
    monkeypatch.setattr(signs_of_life, "SILENT", 0.3)
    monkeypatch.setattr(signs_of_life, "LOOK", 0.05)
    code = """
import ctypes, time
from fulcrum.studies.worker import LineToStudy
line = LineToStudy()
print("a library speaks", flush=True)
ctypes.PyDLL(None).usleep(900_000)
line.ready()
time.sleep(600)  # with a sign every two seconds
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as worker:
        line = signs_of_life.LineFromWorker(worker.stdout)
        try:
            with pytest.raises(signs_of_life.Silent):
                line.answer()
        finally:
            worker.kill()
    assert line.ready, "it was given up while it loaded"


def test_a_crash_is_told_with_the_line_of_the_persons_own_file(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("import ctypes\n\nctypes.string_at(0)\n")
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", str(own)], stderr=subprocess.PIPE, text=True
    )
    listener = Listener(process.stderr)
    assert process.wait() == -signal.SIGSEGV
    assert (
        listener.last([own])
        == f'Fatal Python error: Segmentation fault: File "{own}", line 3 in <module>'
    )


@pytest.mark.processes
@pytest.mark.slow
def test_a_lever_file_that_only_the_worker_cannot_read_is_told_as_such(tmp_path):
    """A real worker process: what it says of the file is the cell's error, and it is not asked
    three times."""
    own = tmp_path / "own.py"
    own.write_text("raise RuntimeError('no licence')\n")
    cells = lay_out(plan(), CATALOG, {}, tmp_path).cells[:1]
    with pytest.raises(RunFailed, match="own.py cannot be used: RuntimeError: no licence"):
        run_all(cells, Work(tmp_path, System(), Measuring(64), (own,)), 1, lambda board: None)
