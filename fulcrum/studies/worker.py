"""A worker process: runs cells one after another, alone or under torchrun, and reports that it
lives."""

import gc
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch

from fulcrum.files.paths import sentence_and_hint
from fulcrum.levers.catalog import CATALOG, require_unchanged, with_files
from fulcrum.spec.edit import read
from fulcrum.spec.errors import FulcrumError, RankLost, TrainingFailed
from fulcrum.spec.phrase import Catalogue, described
from fulcrum.spec.run import System
from fulcrum.studies.cell import Cell, Measuring, Tracked
from fulcrum.studies.cell_training import run_cell
from fulcrum.studies.torchrun_cell import answer_together
from fulcrum.training.dist.compiled_code import SLOWER, compiles_here
from fulcrum.training.dist.machine import at_hand
from fulcrum.training.dist.ranks import ALONE, Ranks, is_loss
from fulcrum.training.session import Interrupted

# --------------------------------------------------------------------------------------------------
# The line from a worker to its study: answers, and empty lines between them that say only that the
# worker lives.
#
# A worker that was killed closes the line. One that stands still (SIGSTOP, a frozen container, a
# machine that swaps) does not: its study would wait for ever. While a worker starts it may be
# silent for longer: to load a library from a slow disk is one call into C, which holds all threads.
# No torch in here: the first sign comes before a worker imports it.


BEAT = 2.0  # seconds between two signs
SILENT = 60.0  # seconds without one after which a worker is given up
STARTING = 600.0  # the same, of a worker that has not said a word yet
READY = "ready"  # the first word of a worker that has loaded what it needs
LOOK = 1.0  # seconds between two looks


class Silent(Exception):
    """The worker gives no sign of life."""


class LineToStudy:
    """In the worker. Libraries may print: what goes to standard output goes to the other stream
    from now on."""

    def __init__(self) -> None:
        self.handle, self.lock = os.dup(1), threading.Lock()
        os.dup2(2, 1)
        threading.Thread(target=self._beat, daemon=True, name="signs of life").start()

    def say(self, text: str = "") -> None:
        data = f"{text}\n".encode()
        with self.lock:
            while data:
                data = data[os.write(self.handle, data) :]

    def ready(self) -> None:
        self.say(READY)

    def _beat(self) -> None:
        with suppress(OSError):  # the study is gone: whoever watches for that ends this process
            while True:
                self.say()
                time.sleep(BEAT)


class LineFromWorker:
    """In the study."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.rest = stream, b""
        self.answers: list[str] = []
        self.ready = False

    def answer(self) -> str:
        """The next one; "" when the worker has ended without it. Silent where it gives no sign for
        too long."""
        poll, quiet = select.poll(), 0.0
        poll.register(self.stream, select.POLLIN)
        while not self.answers:
            begun = time.monotonic()
            if poll.poll(1000 * LOOK):
                data = self.stream.read1(1 << 16)  # type: ignore[attr-defined]  # of a buffered stream, which a pipe's is
                if not data:
                    return ""
                quiet = 0.0
                *lines, self.rest = (self.rest + data).split(b"\n")
                words = [line.decode(errors="replace") for line in lines if line]
                self.ready = self.ready or bool(words)
                self.answers += [word for word in words if word != READY]
            else:
                # if the study itself stood still, that was no silence
                quiet += min(time.monotonic() - begun, 2 * LOOK)
                patience, when = (SILENT, "") if self.ready else (STARTING, " while it started")
                if quiet > patience:
                    raise Silent(f"it gave no sign of life for {patience:.0f} s{when}")
        return self.answers.pop(0)


# --------------------------------------------------------------------------------------------------
# What a worker that was lost printed last, and how it ended; while it lives, what it prints is
# passed on.


KEPT = 500  # lines: a crash names every thread's place
LONGEST = 300  # characters of what is told
PATIENCE = 2.0  # seconds for what is still in the pipe
FATAL, HERE, PLACE = "Fatal Python error", "Current thread", "File "
MEMORY = "was it killed for memory? run fewer side by side with --lanes"


class Listener(threading.Thread):
    """Reads what a worker prints to its standard error."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self.stream, self.lines = stream, deque[str](maxlen=KEPT)
        self.start()

    def run(self) -> None:
        with self.stream:
            for line in self.stream:
                self.lines.append(line.strip())
                print(line, end="", file=sys.stderr, flush=True)

    def last(self, files: Sequence[Path] = ()) -> str:
        """The last line; of a crash, what it was and where, in one of `files` if they had a part in
        it."""
        self.join(PATIENCE)
        lines = [line for line in self.lines if line]
        crash = next((place for place, line in enumerate(lines) if line.startswith(FATAL)), None)
        if crash is None:
            return lines[-1][:LONGEST] if lines else ""
        own = next(
            (place for place, line in enumerate(lines) if place > crash and line.startswith(HERE)),
            crash,
        )
        frames = [line for line in lines[own:] if line.startswith(PLACE)]
        in_files = [
            frame for frame in frames if any(f'"{path.resolve()}"' in frame for path in files)
        ]
        return ": ".join([lines[crash], *(in_files or frames)[:1]])[:LONGEST]


def ending(code: int, last: str) -> tuple[str, str]:
    """How a process ended in words, and what to do about it."""
    how = f"it ended with code {code}"
    if code < 0:
        named = {one.value: one.name for one in signal.Signals}
        how = f"{named.get(-code, f'signal {-code}')} ended it"
    if code == -signal.SIGKILL:
        return how, MEMORY
    return (
        (f"{how}; it printed last: {last}", "all that it printed stands above")
        if last
        else (how, MEMORY)
    )


# --------------------------------------------------------------------------------------------------
# A worker process: reads cells as JSON lines, runs them one after another, answers with a JSON line
# each.
#
# One process runs many cells, so that imports and compiled code are paid for once.


AGAIN = "start the same command again"


def leave_with(parent: int) -> None:
    """End when the study that started this worker is gone: its cell is resumed by the next study,
    not by an orphan.

    The study says its number: by the time this runs it may be gone already.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def answer(
    asked: Mapping[str, Any], setup: Mapping[str, Any], catalogue: Catalogue, ranks: Ranks = ALONE
) -> dict[str, Any] | None:
    """Run one cell and say how it went; None when the study is ending and the cell was saved on the
    way, or when a process of the cell was lost, which is an error in those that are left. An
    `outcome` is the answer of a cell whose training came to nothing by itself.

    A cell of many processes is handed to as many, each of which comes here.
    """
    if setup["system"]["processes"] > ranks.size:
        return answer_together(asked, setup)
    try:
        require_unchanged(catalogue, asked["user_files"])
    except FulcrumError as error:
        return failure(asked["key"], error)
    cell = Cell(
        asked["arm"],
        asked["seed"],
        read(asked["run"], catalogue.fillers),
        asked["phrase"],
        asked["key"],
        asked["user_files"],
        asked["kind"],
        asked["rate"],
    )
    slower: list[str] = []  # what the person should hear of this cell
    measuring = Measuring(
        setup["samples"], tuple(setup["evaluations"]), tuple(setup.get("judges", ()))
    )
    try:
        run_cell(
            cell,
            Path(setup["out"]),
            _able(System(**setup["system"]), slower.append),
            measuring,
            lambda text: slower.append(text) if SLOWER in text else None,
            asked["until"],
            Tracked(tuple(setup.get("track", ())), setup.get("group", ""), setup.get("kept", 0)),
            ranks,
        )
        return {"key": cell.key, "ok": True, "slower": slower}
    except Interrupted:  # SIGTERM: the cell is saved, and the study is ending
        return None
    except TrainingFailed as error:
        if cell.kind == "trunk":
            error.hint = (
                f"every arm of seed {cell.seed} begins from it: {error.hint}; or leave this seed"
                " out of the plan"
            )
        return {**failure(cell.key, error), "outcome": cell.kind == "arm"}
    except FulcrumError as error:
        if isinstance(error, RankLost) or is_loss(error.__cause__):
            raise  # the watch knows whom this process lost
        return failure(cell.key, error)
    except OSError as error:  # a full disk says so itself; nothing finished is touched
        message, hint = sentence_and_hint(error)
        return {
            "key": cell.key,
            "ok": False,
            "error": message,
            "hint": f"{hint or AGAIN}: what is finished is kept",
        }
    except (Exception, SystemExit) as error:  # a bug in a cell must not take the study with it
        if is_loss(error):
            raise
        return {
            "key": cell.key,
            "ok": False,
            "error": described(error),
            "hint": traceback.format_exc(),
        }


def _able(system: System, say: Callable[[str], None]) -> System:
    """The system, not compiled where this machine cannot: a cluster's may be another than the one
    that made the plan."""
    if not system.compile:
        return system
    return system.model_copy(update={"compile": compiles_here(say)})


def failure(key: str, error: FulcrumError) -> dict[str, Any]:
    return {"key": key, "ok": False, "error": error.message, "hint": error.hint}


def serve(study: LineToStudy) -> None:
    """Until nothing more is asked: cells come in by standard input, answers go out by the line to
    the study."""
    threading.Thread(target=leave_with, args=(int(sys.argv[1]),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study decides when to stop; it sends SIGTERM
    setup = json.loads(sys.stdin.readline())
    system = System(**setup["system"])
    if system.processes == 1:  # what is amiss is told by the first cell
        if _able(system, lambda text: None).compile:
            # what compiled blocks will bring: faster with the collector off
            from torch._inductor import compile_fx  # noqa: F401
        with suppress(RuntimeError):
            # makes a GPU's context: long, and perhaps with all threads held
            torch.zeros(1, device=at_hand(system.device))
    gc.freeze()  # all of this stays: the collector need not look at it at every turn
    gc.enable()
    catalogue, refused = CATALOG, None
    try:
        catalogue, _ = with_files(Path(path) for path in setup["files"])
    except FulcrumError as error:  # the study could read them, this process cannot
        refused = error
    study.ready()  # from here on it is not silent for long
    for line in sys.stdin:
        asked = json.loads(line)
        reply = failure(asked["key"], refused) if refused else answer(asked, setup, catalogue)
        if reply is None:
            break
        study.say(json.dumps(reply))
        if reply.get("slower"):
            setup["system"]["compile"] = False  # it would fail again, and take as long for it
    # so that Python's end takes it apart before the modules it needs: locks would complain
    gc.unfreeze()
