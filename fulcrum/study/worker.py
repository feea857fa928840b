"""A worker process: reads cells as JSON lines, runs them one after another, answers with a JSON line each.

One process runs many cells, so that imports and compiled code are paid for once.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from fulcrum.levers.catalog import with_files
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.plain import read
from fulcrum.spec.system import System
from fulcrum.study.cell import Cell, run_cell
from fulcrum.train.session import Interrupted


def leave_with(parent: int) -> None:
    """End when the study that started this worker is gone: its cell is resumed by the next study, not by an orphan.

    The study says its number: by the time this runs it may be gone already.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> None:
    threading.Thread(target=leave_with, args=(int(sys.argv[1]),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)             # the study decides when to stop; it sends SIGTERM
    answers = os.fdopen(os.dup(1), "w")                      # libraries may print: keep the line to the study clean
    os.dup2(2, 1)
    setup = json.loads(sys.stdin.readline())
    catalogue, _ = with_files(Path(path) for path in setup["files"])
    system, out = System(**setup["system"]), Path(setup["out"])
    for line in sys.stdin:
        asked = json.loads(line)
        cell = Cell(asked["arm"], asked["seed"], read(asked["run"], catalogue.fillers), asked["phrase"], asked["key"],
                    asked["user_files"])
        try:
            run_cell(cell, out, system, setup["samples"], lambda text: None)
            answer = {"key": cell.key, "ok": True}
        except Interrupted:                                  # SIGTERM: the cell is saved, and the study is ending
            return
        except FulcrumError as error:
            answer = {"key": cell.key, "ok": False, "error": error.message, "hint": error.hint}
        except Exception as error:                           # a bug in a cell must not take the study with it
            answer = {"key": cell.key, "ok": False, "error": f"{type(error).__name__}: {error}",
                      "hint": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
