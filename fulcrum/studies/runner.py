"""The runner: cells in parallel worker processes, capacity and progress."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple, TextIO, cast

from torch.cuda import device_count

from fulcrum.files.sealed import read_json, read_tail
from fulcrum.judge.schema import CellState, duration
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.memory import step_memory
from fulcrum.spec.progress import Countdown
from fulcrum.spec.run import RunSpec, System
from fulcrum.spec.run import cores as machine_cores
from fulcrum.studies.arm_cost import NAME as TIMINGS
from fulcrum.studies.cell import NOWHERE, Cell, Measuring, Tracked, at, failed, reached
from fulcrum.studies.worker import MEMORY, LineFromWorker, Listener, Silent, ending
from fulcrum.training.cost_record import count_training
from fulcrum.training.dist.machine import free_memory
from fulcrum.training.dist.ranks import TIMEOUT

# --------------------------------------------------------------------------------------------------
# How many cells run side by side: as many as there are cores and memory for. No torch in here.


PROCESS = 900e6  # bytes: interpreter, torch, compiled code, judge and features
SLACK = 1.5  # over the formula of a step: allocator, previews, drawing


class Room(NamedTuple):
    """What the machine has, and what a cell needs of it."""

    lanes: int
    cores: int
    memory: float  # bytes that are free
    needed: float  # by the largest cell

    def __str__(self) -> str:
        cores = "1 core" if self.cores == 1 else f"{self.cores} cores"
        return (
            f"{self.lanes} side by side ({cores}; a cell needs about {self.needed / 1e9:.1f} of "
            f"{self.memory / 1e9:.1f} GB free)"
        )


def room(
    runs: Iterable[RunSpec],
    threads: int,
    processes: int = 1,
    cores: int | None = None,
    memory: float | None = None,
    gpus: int | None = None,
) -> Room:
    """min(cores / threads, memory / need), at least one: a cell that does not fit fails by itself,
    and says so.

    `gpus` of a plan that asks for them: a process has one of its own, and cells side by side share
    none.

    Many processes of a cell share the step's memory; the worker that waits for them counts as one
    more process.
    """
    cores = cores or machine_cores()
    memory = memory or free_memory()
    needed = (PROCESS if processes == 1 else (processes + 1) * PROCESS) + SLACK * max(
        step_memory(run) for run in runs
    )
    most = min(
        cores // (threads * processes),
        int(memory / needed),
        *([] if gpus is None else [gpus // processes]),
    )
    return Room(max(1, most), cores, memory, needed)


def gpus_of(lane: int, processes: int, gpus: Sequence[str]) -> list[str]:
    """The GPUs of the lane with this number: as many as a cell has processes. More lanes than that
    begin again."""
    first = lane % max(len(gpus) // processes, 1) * processes
    return list(gpus[first : first + processes])


# --------------------------------------------------------------------------------------------------
# The runner: cells side by side in worker processes; finished and failed ones are never run again,
# lost ones are.


VISIBLE = "CUDA_VISIBLE_DEVICES"  # CUDA's own variable: the GPUs that a process may use
LAST = 5.0  # seconds in which a lane ends when its worker is gone
ARRIVAL = 10.0  # seconds for a finished cell's files to be seen
STANDS_STILL = (
    "was it stopped, or has the machine too little memory? run fewer side by side with --lanes"
)
ATTEMPTS = 3  # a cell whose worker was lost this often has failed


class Board:
    """What is known of every cell, shared between lanes and the page."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells, self.lock = list(cells), threading.Lock()
        self.state: dict[str, CellState] = {cell.key: "waiting" for cell in cells}
        self.error: dict[str, str] = {}  # of cells that have to be run again
        # of cells that ran in this session, by the clock on the wall
        self.seconds: dict[str, float] = {}
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
            self.state.update(
                {key: "waiting" for key, state in self.state.items() if state == "running"}
            )

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
    """One worker and the cells it is given. How a worker is asked is the executor's: here a process
    of this machine."""

    program: tuple[str, ...] = ("-m", "fulcrum.studies.worker_start")
    number = 0  # among those of the study

    def __init__(
        self, work: Work, board: Board, queue: "Queue[Cell]", stop: threading.Event
    ) -> None:
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
            answer |= {
                "ok": False,
                "error": f"its worker has finished, but {place} does not hold what it found",
            }
            answer |= {"hint": "is --out one folder for the study and for whoever runs its cells?"}
        self.board.slower += [
            why for why in answer.get("slower", ()) if why not in self.board.slower
        ]
        known = answer["ok"] or answer.get("outcome")  # what the cell found stands in its folder
        self.board.mark(
            cell,
            "done" if answer["ok"] else "failed",
            "" if known else f"{cell.arm}, seed {cell.seed}: {answer['error']}\n{answer['hint']}",
        )
        return True

    def arrived(self, cell: Cell) -> bool:
        """Does the study see what the worker says that it wrote? A network's file system may need a
        moment."""
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
                f"the worker of {cell.arm}, seed {cell.seed}, is lost: {silence}; it was ended",
                file=sys.stderr,
                flush=True,
            )
            return None
        except (OSError, ValueError):  # it died, or whoever stops the study has closed it
            line = ""
        if not line:
            self.close()
            # another may be closing it
            self.ended = ending(process.wait(), self.listener.last(self.work.files))
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
            env={
                **os.environ,
                "OMP_NUM_THREADS": threads,
                "MKL_NUM_THREADS": threads,
                **self._gpus(),
            },
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
        seen = [name for name in os.environ.get(VISIBLE, "").split(",") if name] or list(
            map(str, range(device_count()))
        )
        return {VISIBLE: ",".join(gpus_of(self.number, system.processes, seen))}

    def ask_to_end(self) -> None:
        """The study is stopping: a worker that is training saves its cell and ends."""
        process = self.process
        if process is not None:
            process.terminate()

    def close(self, grace: float = 30.0) -> None:
        """Let the worker go, which ends when nothing more is asked."""
        # once, whoever comes first: the lane, or who stops it
        process, self.process = self.process, None
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
    """Run what is neither finished nor failed by itself; `tick` hears how it stands now and then,
    and at the end."""
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
            "\n  ".join(
                [
                    *hint.splitlines()[-1:],
                    "finished cells are kept; the same command runs only the others again",
                ]
            ),
        )
    return board


# --------------------------------------------------------------------------------------------------
# How far the cells that run are, from the ends of their records, and how long the rest will take.


NAMED = 4  # cells that one line names


class Stand(NamedTuple):
    """How far one running cell is."""

    cell: Cell
    images: int  # 0: it encodes, compiles or has just begun
    target: int
    whole: float | None  # seconds of all its training, at the speed of its last lines

    @property
    def share(self) -> float:
        return min(self.images / self.target, 1.0)

    def __str__(self) -> str:
        how = (
            "starting (encoding, compiling)"
            if not self.images
            else "measuring"
            if self.share == 1.0
            else f"{self.share:.0%}"
        )
        return f"{self.cell.arm}/{self.cell.seed} {how}"


def standing(board: Board, out: Path, until: float | None = None) -> list[Stand]:
    """The cells that run now; only their records are read, and of each only the end."""
    with board.lock:
        going = [cell for cell in board.cells if board.state[cell.key] == "running"]
    return [
        _stand(
            cell,
            out / cell.key / "record.jsonl",
            cell.run.budget.images if until is None else at(cell.run, until),
        )
        for cell in going
    ]


class CellTimes(NamedTuple):
    """What a cell took, without its first step: that encodes, compiles and waits for others who
    do."""

    seconds: float
    training: float  # of the seconds

    def of(self, share: float) -> "CellTimes":
        """Of a cell that is `share` times as much work."""
        return CellTimes(self.seconds * share, self.training * share)

    @classmethod
    def read(cls, folder: Path, whole: float) -> "CellTimes":
        """From the cell's own timings; where there are none, all that it took by the clock on the
        wall."""
        try:
            timed = read_json(folder / TIMINGS, "")
            first, steps = timed["parts"]["first step"], timed["parts"]["steps"]
            return cls(max(timed["ended"] - timed["begun"] - first, 0.0), max(steps - first, 0.0))
        except (BadInput, KeyError, TypeError, OverflowError):
            return cls(whole, whole)


class TimeLeft:
    """How long the cells of a round will take, told steadily: from those that ended, arm by arm;
    before, of training."""

    def __init__(self, out: Path, lanes: int) -> None:
        self.out, self.lanes = out, lanes
        self.ended: dict[str, CellTimes] = {}  # key -> times
        self.flops: dict[str, float] = {}  # arm -> of all the training of one cell
        # before and since a cell has ended: of unlike things
        self.told = {False: Countdown(), True: Countdown()}

    def tell(self, board: Board, going: list[Stand], now: float) -> float | None:
        reckoned = self.reckon(board, going)
        return None if reckoned is None else self.told[bool(self.ended)].tell(reckoned, now)

    def reckon(self, board: Board, going: list[Stand]) -> float | None:
        """None: nothing is known yet, or only measuring is left, which is not long, but not
        nothing."""
        with board.lock:
            waiting = [cell for cell in board.cells if board.state[cell.key] == "waiting"]
            ended = dict(board.seconds)
        for key in ended.keys() - self.ended.keys():
            self.ended[key] = CellTimes.read(self.out / key, ended[key])
        lanes = min(self.lanes, len(waiting) + len(going))
        if self.ended:
            usual = self._usual(board.cells)
            running = sum(self._rest(stand, usual) for stand in going)
            return (
                (sum(usual[cell.arm].seconds for cell in waiting) + running) / lanes
                if lanes
                else None
            )
        speeds = [
            stand.whole / self._flops(stand.cell) for stand in going if stand.whole is not None
        ]
        flops_left = sum(self._flops(cell) for cell in waiting)
        flops_left += sum(self._flops(stand.cell) * (1.0 - stand.share) for stand in going)
        return statistics.median(speeds) * flops_left / lanes if speeds and flops_left else None

    def _usual(self, cells: Sequence[Cell]) -> dict[str, CellTimes]:
        """Of a cell of each arm: the median of those that ended; where none has, of all arms', by
        their FLOPs: an arm at 256 tokens takes ten times as long as one at 16."""
        times: dict[str, list[CellTimes]] = {cell.arm: [] for cell in cells}
        flops = {cell.arm: self._flops(cell) for cell in cells}
        for cell in cells:
            times[cell.arm] += [self.ended[cell.key]] if cell.key in self.ended else []
        per_flop = _median([one.of(1 / flops[arm]) for arm, own in times.items() for one in own])
        return {arm: _median(own) if own else per_flop.of(flops[arm]) for arm, own in times.items()}

    def _flops(self, cell: Cell) -> float:
        if cell.arm not in self.flops:
            self.flops[cell.arm] = count_training(cell.run).training() * cell.run.budget.images
        return self.flops[cell.arm]

    @staticmethod
    def _rest(stand: Stand, usual: Mapping[str, CellTimes]) -> float:
        seconds, training = usual[stand.cell.arm]
        return seconds - training * stand.share


def _median(times: Sequence[CellTimes]) -> CellTimes:
    return CellTimes(*(statistics.median(column) for column in zip(*times, strict=True)))


def line(
    board: Board, going: list[Stand], left: float | None, seconds: float, until: float | None = None
) -> str:
    """One line for the terminal: cells done, cells that run, time left."""
    named = [str(stand) for stand in going[:NAMED]] + (
        [f"{len(going) - NAMED} more"] if len(going) > NAMED else []
    )
    failed = board.count("failed")
    return (
        f"{board.count('done')} of {len(board.cells)} cells"
        f" {f'at {until:.0%}' if until else 'done'}"
        + (f", {failed} failed," if failed else "")
        + f" after {duration(seconds)}"
        + (f"; running: {', '.join(named)}" if named else "")
        + (
            f"; about {duration(left)}{'' if board.seconds else ' of training'} left"
            if left is not None
            else ""
        )
    )


def _is_time(value: Any) -> bool:
    """A number that a sound record holds: whatever else stands there must not stop the study that
    looks on."""
    return isinstance(value, int | float) and 0 <= value < 1e15


def _stand(cell: Cell, record: Path, target: int) -> Stand:
    tail = [(one.get("images", -1), one.get("seconds", -1)) for one in read_tail(record)]
    lines = [
        (images, seconds) for images, seconds in tail if _is_time(images) and _is_time(seconds)
    ]
    if not lines:
        return Stand(cell, 0, target, None)
    images, seconds = lines[-1]
    # the tail's own speed: the first step also compiles
    first = lines[0] if len(lines) > 1 else (0, 0.0)
    speed = (images - first[0]) / max(seconds - first[1], 1e-9)
    return Stand(cell, images, target, target / speed if speed > 0 else None)
