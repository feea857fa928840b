"""A worker process: reads cells as JSON lines, runs them one after another, answers with a JSON line each.

One process runs many cells, so that imports and compiled code are paid for once.
"""

import gc
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fulcrum.files.paths import sentence_and_hint
from fulcrum.levers.catalog import CATALOG, require_unchanged, with_files
from fulcrum.spec.edit import read
from fulcrum.spec.errors import FulcrumError, RankLost, TrainingFailed
from fulcrum.spec.phrase import Catalogue, described
from fulcrum.spec.run import System
from fulcrum.study.run.cell import Cell, Measuring, Tracked
from fulcrum.study.run.cell_training import run_cell
from fulcrum.study.run.workers.signs_of_life import LineToStudy
from fulcrum.study.run.workers.torchrun_cell import answer_together
from fulcrum.training.dist.compiled_code import SLOWER, compiles_here
from fulcrum.training.dist.machine import at_hand
from fulcrum.training.dist.ranks import ALONE, Ranks, is_loss
from fulcrum.training.session import Interrupted

AGAIN = "start the same command again"


def leave_with(parent: int) -> None:
    """End when the study that started this worker is gone: its cell is resumed by the next study, not by an orphan.

    The study says its number: by the time this runs it may be gone already.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def answer(
    asked: Mapping[str, Any], setup: Mapping[str, Any], catalogue: Catalogue, ranks: Ranks = ALONE
) -> dict[str, Any] | None:
    """Run one cell and say how it went; None when the study is ending and the cell was saved on the way, or when a process
    of the cell was lost, which is an error in those that are left. An `outcome` is the answer of a cell whose training came
    to nothing by itself.

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
    measuring = Measuring(setup["samples"], tuple(setup["evaluations"]), tuple(setup.get("judges", ())))
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
            error.hint = f"every arm of seed {cell.seed} begins from it: {error.hint}; or leave this seed out of the plan"
        return {**failure(cell.key, error), "outcome": cell.kind == "arm"}
    except FulcrumError as error:
        if isinstance(error, RankLost) or is_loss(error.__cause__):
            raise  # the watch knows whom this process lost
        return failure(cell.key, error)
    except OSError as error:  # a full disk says so itself; nothing finished is touched
        message, hint = sentence_and_hint(error)
        return {"key": cell.key, "ok": False, "error": message, "hint": f"{hint or AGAIN}: what is finished is kept"}
    except (Exception, SystemExit) as error:  # a bug in a cell must not take the study with it
        if is_loss(error):
            raise
        return {"key": cell.key, "ok": False, "error": described(error), "hint": traceback.format_exc()}


def _able(system: System, say: Callable[[str], None]) -> System:
    """The system, not compiled where this machine cannot: a cluster's may be another than the one that made the plan."""
    if not system.compile:
        return system
    return system.model_copy(update={"compile": compiles_here(say)})


def failure(key: str, error: FulcrumError) -> dict[str, Any]:
    return {"key": key, "ok": False, "error": error.message, "hint": error.hint}


def serve(study: LineToStudy) -> None:
    """Until nothing more is asked: cells come in by standard input, answers go out by the line to the study."""
    threading.Thread(target=leave_with, args=(int(sys.argv[1]),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the study decides when to stop; it sends SIGTERM
    setup = json.loads(sys.stdin.readline())
    system = System(**setup["system"])
    if system.processes == 1:  # what is amiss is told by the first cell
        if _able(system, lambda text: None).compile:
            from torch._inductor import compile_fx  # noqa: F401  # what compiled blocks will bring: faster with the collector off
        with suppress(RuntimeError):
            torch.zeros(1, device=at_hand(system.device))  # makes a GPU's context: long, and perhaps with all threads held
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
    gc.unfreeze()  # so that Python's end takes it apart before the modules it needs: locks would complain
