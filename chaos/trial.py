"""One trial: a command of fulcrum, in a process of its own, struck at one call or after some seconds, or left in peace."""

import json
import os
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LIBRARY = HERE.parent / "build" / "chaos" / "faults.so"


class Fault(IntEnum):
    """As in faults.c."""

    NONE = 0
    KILL_BEFORE = 1
    KILL_AFTER = 2
    KILL_HALFWAY = 3
    NO_SPACE = 4
    IO_ERROR = 5
    READ_ONLY = 6
    NO_PERMISSION = 7
    SHORT_WRITE = 8
    SLOW = 9


KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.KILL_HALFWAY)
REFUSALS = (Fault.NO_SPACE, Fault.IO_ERROR, Fault.READ_ONLY, Fault.NO_PERMISSION)


class Strike(NamedTuple):
    fault: Fault = Fault.NONE
    at: int = -1  # the call that is struck, from one
    on: bool = False  # and every later one, as on a disk that stays full
    kill_after: float | None = None  # seconds

    def __str__(self) -> str:
        if self.kill_after is not None:
            return f"kill -9 after {self.kill_after:.2f} s"
        return f"{self.fault.name.lower().replace('_', ' ')} at call {self.at}{' and on' if self.on else ''}"


PEACE = Strike()


class End(NamedTuple):
    exit: int  # negative: the signal that ended it
    text: str  # what it printed
    calls: int | None  # that changed something in its folder; None: it was killed
    seconds: float
    hung: bool

    @property
    def has_traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.text or "this should not happen" in self.text


class Host:
    """The forking process; a context manager."""

    def __init__(self) -> None:
        _compile()
        environment = os.environ | {
            "LD_PRELOAD": str(LIBRARY),
            "CHAOS_SHIM": str(LIBRARY),
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "PYTHONPATH": str(HERE.parent),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.host"],
            cwd=HERE.parent,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def run(self, words: list[str], folder: Path, strike: Strike = PEACE) -> End:
        assert self._process.stdin
        said = folder.parent / f"{folder.name}.said"
        said.with_name(f"{said.name}.seen").unlink(missing_ok=True)
        order = {
            "words": words,
            "folder": str(folder),
            "said": str(said),
            "at": strike.at,
            "kind": int(strike.fault),
            "on": strike.on,
            "kill_after": strike.kill_after,
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return End(answer["exit"], said.read_text(errors="replace"), answer["calls"], answer["seconds"], answer["hung"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the forking process of the attack has died: see above")
        return dict(json.loads(line))


def _compile() -> None:
    source = HERE / "faults.c"
    if LIBRARY.exists() and LIBRARY.stat().st_mtime > source.stat().st_mtime:
        return
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(LIBRARY), str(source), "-ldl"], check=True)
    except FileNotFoundError:
        raise SystemExit("the attack needs a C compiler, and `cc` was not found: install gcc or clang") from None
