"""The runner: cells side by side in worker processes; finished and failed ones are never run again, lost ones are."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple, TextIO, cast

from torch.cuda import device_count

from fulcrum.judge.schema import CellState
from fulcrum.spec.errors import RunFailed
from fulcrum.spec.run import System
from fulcrum.study.run.cell import NOWHERE, Cell, Measuring, Tracked, failed, reached
from fulcrum.study.run.workers.capacity import gpus_of
from fulcrum.study.run.workers.signs_of_life import LineFromWorker, Silent
from fulcrum.study.run.workers.worker_death import MEMORY, Listener, ending
from fulcrum.training.dist.ranks import TIMEOUT

VISIBLE = "CUDA_VISIBLE_DEVICES"  # CUDA's own variable: the GPUs that a process may use
LAST = 5.0  # seconds in which a lane ends when its worker is gone
ARRIVAL = 10.0  # seconds for a finished cell's files to be seen
STANDS_STILL = "was it stopped, or has the machine too little memory? run fewer side by side with --lanes"
ATTEMPTS = 3  # a cell whose worker was lost this often has failed


class Board:
    """What is known of every cell, shared between lanes and the page."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells, self.lock = list(cells), threading.Lock()
        self.state: dict[str, CellState] = {cell.key: "waiting" for cell in cells}
        self.error: dict[str, str] = {}  # of cells that have to be run again
        self.seconds: dict[str, float] = {}  # of cells that ran in this session, by the clock on the wall
        self.lost = 0  # workers that went away under a cell
        self.slower: list[str] = []  # why cells run slower than they could, each reason once

    def mark(self, cell: Cell, state: CellState, error: str = "") -> None:
        with self.lock:
            self.state[cell.key] = state
            if error:
                self.error[cell.key] = error

    def let_go(self) -> None:
        """The study is ending: cells that ran wait for the next."""
        with self.lock:
            self.state.update({key: "waiting" for key, state in self.state.items() if state == "running"})

    def count(self, state: CellState) -> int:
        with self.lock:
            return sum(value == state for value in self.state.values())


class Work(NamedTuple):
    """What every worker must know."""

    out: Path
    system: System
    measuring: Measuring
    files: tuple[Path, ...]
    until: float | None = None  # share of the budget at which cells pause
    tracked: Tracked = NOWHERE
    timeout: float = TIMEOUT  # seconds that one process of a cell waits for another

    def setup(self) -> dict[str, Any]:
        return {
            "out": str(self.out.resolve()),
            "system": self.system.model_dump(),
            "samples": self.measuring.samples,
            "evaluations": self.measuring.evaluations,
            "judges": self.measuring.judges,
            "files": [str(path.resolve()) for path in self.files],
            "track": self.tracked.names,
            "group": self.tracked.group,
            "kept": self.tracked.kept,
            "timeout": self.timeout,
        }

    def asked(self, cell: Cell) -> dict[str, Any]:
        return {
            "arm": cell.arm,
            "seed": cell.seed,
            "run": cell.run.plain(),
            "phrase": cell.phrase,
            "key": cell.key,
            "user_files": cell.user_files,
            "kind": cell.kind,
            "rate": cell.rate,
            "until": self.until,
        }


class Lane(threading.Thread):
    """One worker and the cells it is given. How a worker is asked is the executor's: here a process of this machine."""

    program: tuple[str, ...] = ("-m", "fulcrum.study.run.workers.worker_start")
    number = 0  # among those of the study

    def __init__(self, work: Work, board: Board, queue: "Queue[Cell]", stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.work, self.board, self.queue, self.stopped = work, board, queue, stop
        self.process: subprocess.Popen[str] | None = None
        self.ended = ("", MEMORY)  # how the last worker was lost, and what to do

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                cell = self.queue.get_nowait()
            except Empty:
                break
            self.board.mark(cell, "running")
            begun = time.monotonic()
            for attempt in range(1, ATTEMPTS + 1):
                if self.settled(cell):
                    break
                if self.stopped.is_set():
                    self.close()  # it may have been started after all were asked to end
                    return
                self.board.lost += 1
                if attempt == ATTEMPTS:
                    how, hint = self.ended
                    self.board.mark(
                        cell,
                        "failed",
                        f"the worker of {cell.arm}, seed {cell.seed}, was lost {ATTEMPTS} times"
                        f"{': ' + how if how else ''}\n{hint}",
                    )
            if self.board.state[cell.key] == "done":
                with self.board.lock:
                    self.board.seconds[cell.key] = time.monotonic() - begun
        self.close()

    def settled(self, cell: Cell) -> bool:
        """True when the worker answered, well or not; False when it was lost."""
        answer = self.ask(cell)
        if answer is None:
            return False
        if answer["ok"] and not self.arrived(cell):
            place = self.work.out / cell.key
            answer |= {"ok": False, "error": f"its worker has finished, but {place} does not hold what it found"}
            answer |= {"hint": "is --out one folder for the study and for whoever runs its cells?"}
        self.board.slower += [why for why in answer.get("slower", ()) if why not in self.board.slower]
        known = answer["ok"] or answer.get("outcome")  # what the cell found stands in its folder
        self.board.mark(
            cell,
            "done" if answer["ok"] else "failed",
            "" if known else f"{cell.arm}, seed {cell.seed}: {answer['error']}\n{answer['hint']}",
        )
        return True

    def arrived(self, cell: Cell) -> bool:
        """Does the study see what the worker says that it wrote? A network's file system may need a moment."""
        deadline = time.monotonic() + ARRIVAL
        while not (there := reached(self.work.out, cell, self.work.measuring.how, self.work.until)):
            if time.monotonic() > deadline or self.stopped.wait(0.2):
                break
        return there

    def ask(self, cell: Cell) -> dict[str, Any] | None:
        process = self._worker()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(self.work.asked(cell)) + "\n")
            process.stdin.flush()
            line = self.line.answer()
        except Silent as silence:
            process.kill()
            self.close()
            self.ended = (f"{silence}, and was ended", STANDS_STILL)
            print(
                f"the worker of {cell.arm}, seed {cell.seed}, is lost: {silence}; it was ended", file=sys.stderr, flush=True
            )
            return None
        except (OSError, ValueError):  # it died, or whoever stops the study has closed it
            line = ""
        if not line:
            self.close()
            self.ended = ending(process.wait(), self.listener.last(self.work.files))  # another may be closing it
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _worker(self) -> "subprocess.Popen[str]":
        if self.process is not None and self.process.poll() is None:
            return self.process
        threads = str(self.work.system.threads)
        process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", *self.program, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **self._gpus()},
            start_new_session=True,
        )
        assert process.stdin is not None and process.stderr is not None
        self.listener = Listener(process.stderr)
        self.line = LineFromWorker(cast(TextIO, process.stdout).buffer)
        process.stdin.write(json.dumps(self.work.setup()) + "\n")
        self.process = process  # from here on whoever stops the study may close it
        if self.stopped.is_set():  # all were asked to end before this one could be
            process.terminate()
        return process

    def _gpus(self) -> dict[str, str]:
        """What hides the other lanes' GPUs from this worker."""
        system = self.work.system
        if system.device != "cuda":
            return {}
        seen = [name for name in os.environ.get(VISIBLE, "").split(",") if name] or list(map(str, range(device_count())))
        return {VISIBLE: ",".join(gpus_of(self.number, system.processes, seen))}

    def ask_to_end(self) -> None:
        """The study is stopping: a worker that is training saves its cell and ends."""
        process = self.process
        if process is not None:
            process.terminate()

    def close(self, grace: float = 30.0) -> None:
        """Let the worker go, which ends when nothing more is asked."""
        process, self.process = self.process, None  # once, whoever comes first: the lane, or who stops it
        if process is None:
            return
        if self.stopped.is_set():
            process.terminate()
        with contextlib.suppress(OSError):  # its end of the pipe may be gone
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run_all(
    cells: Sequence[Cell],
    work: Work,
    lanes: int,
    tick: Callable[[Board], None],
    every: float = 2.0,
    lane: type[Lane] = Lane,
) -> Board:
    """Run what is neither finished nor failed by itself; `tick` hears how it stands now and then, and at the end."""
    board, queue, stop = Board(cells), Queue[Cell](), threading.Event()
    how = work.measuring.how
    for cell in cells:
        if reached(work.out, cell, how, work.until):
            board.mark(cell, "done")
        elif failed(work.out, cell, how) is not None:
            board.mark(cell, "failed")
        else:
            queue.put(cell)
    workers = [lane(work, board, queue, stop) for _ in range(min(lanes, queue.qsize()))]
    for number, worker in enumerate(workers):
        worker.number = number
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers):
            tick(board)
            deadline = time.monotonic() + every
            while time.monotonic() < deadline and any(worker.is_alive() for worker in workers):
                time.sleep(0.1)
    except BaseException:
        stop.set()
        for worker in workers:  # all at once: each may have a cell to save
            worker.ask_to_end()
        for worker in workers:
            worker.close()
        for worker in workers:
            worker.join(LAST)
        raise
    tick(board)
    if board.error:
        message, _, hint = next(iter(board.error.values())).partition("\n")
        raise RunFailed(
            f"{len(board.error)} of {len(cells)} cells failed: {message}",
            "\n  ".join([*hint.splitlines()[-1:], "finished cells are kept; the same command runs only the others again"]),
        )
    return board
