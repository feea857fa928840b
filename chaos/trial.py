"""One trial: commands, each in a process of its own, struck at one call or after some seconds, or
left in peace."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LIBRARY = HERE.parent / "build" / "chaos" / "faults.so"
# seconds, and times the undisturbed command: what takes longer than both hangs
SOON, SLOWER = 120.0, 10.0
# where all may write
ANYWHERE = (Path(tempfile.gettempdir()), Path.home() / ".cache", Path("/dev"), Path("/proc"))
COMMAND = "fulcrum.cli:main"  # what is attacked: a module and its function that reads sys.argv


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
    CLOCK_BACK = 10
    CLOCK_FORTH = 11


KILLS = (Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.KILL_HALFWAY)
REFUSALS = (Fault.NO_SPACE, Fault.IO_ERROR, Fault.READ_ONLY, Fault.NO_PERMISSION)
# may go on with every later call
LASTING = (*REFUSALS, Fault.SLOW, Fault.CLOCK_BACK, Fault.CLOCK_FORTH)


class Strike(NamedTuple):
    fault: Fault = Fault.NONE
    at: int = -1  # the call that is struck, from one
    on: bool = False  # and every later one, as on a disk that stays full
    kill_after: float | None = None  # seconds
    #: it is not the command that is killed or stopped then, but a process that it has started
    worker: bool = False
    stall_after: float | None = None  # seconds: stopped, and never let go on
    memory: int | None = None  # bytes that it may take beyond what it has when it begins

    @property
    def name(self) -> str:
        """What it is counted as."""
        if self.memory is not None:
            return "memory limits"
        if self.stall_after is not None:
            return "workers stopped" if self.worker else "processes stopped"
        if self.kill_after is not None or self.fault in KILLS:
            return "kills"
        named = {
            Fault.SLOW: "slow disks",
            Fault.CLOCK_BACK: "clock jumps",
            Fault.CLOCK_FORTH: "clock jumps",
        }
        return named.get(self.fault, "write faults" if self.fault else "in peace")

    def __str__(self) -> str:
        if self.memory is not None:
            return f"{self.memory >> 20} MB of memory"
        if self.stall_after is not None:
            return f"{'worker ' if self.worker else ''}stopped after {self.stall_after:.2f} s"
        if self.kill_after is not None:
            return f"kill -9 {'of a worker ' if self.worker else ''}after {self.kill_after:.2f} s"
        if not self.fault:
            return "in peace"
        return (
            f"{self.fault.name.lower().replace('_', ' ')} at call"
            f" {self.at}{' and on' if self.on else ''}"
        )


PEACE = Strike()


class Process(NamedTuple):
    """One of the commands that run at a time."""

    words: Sequence[str]
    strike: Strike = PEACE
    environment: Mapping[str, str] = {}
    delay: float = 0.0  # seconds after the first


class End(NamedTuple):
    exit: int  # negative: the signal that ended it
    text: str  # what it printed
    calls: int | None  # that changed something in its folder; None: it was killed
    seconds: float
    hung: bool
    struck: bool = False  # by what comes at a moment: it may have ended before
    #: what it changed outside of its folder, temporary files and caches
    outside: tuple[str, ...] = ()

    def met(self, strike: Strike) -> bool:
        """Did the strike come before the end? One that came too late is none."""
        if strike.kill_after is not None or strike.stall_after is not None:
            return self.struck
        return not strike.fault or self.calls is None or self.calls >= strike.at

    @property
    def has_traceback(self) -> bool:
        return (
            "Traceback (most recent call last)" in self.text
            or "this should not happen" in self.text
        )


class Host:
    """The forking process; a context manager. `limit`: seconds after which a command hangs."""

    def __init__(self, command: str = COMMAND) -> None:
        _compile()
        self.limit = 10 * SOON  # until it is known how long a command takes here
        environment = os.environ | {
            "LD_PRELOAD": str(LIBRARY),
            "CHAOS_SHIM": str(LIBRARY),
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join(
                [str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.host", command],
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
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, words: Sequence[str], folder: Path, strike: Strike = PEACE) -> End:
        return self.together([Process(words, strike)], folder)[0]

    def together(self, processes: Sequence[Process], folder: Path) -> list[End]:
        """Commands that run in one folder at a time."""
        assert self._process.stdin
        said = [folder.parent / f"{folder.name}.said{number}" for number in range(len(processes))]
        for path in said:
            for mark in (".seen", ".outside"):
                path.with_name(path.name + mark).unlink(missing_ok=True)
            path.write_bytes(b"")  # a command may be killed before it has opened its own
        orders = [
            {
                **one.strike._asdict(),
                "words": list(one.words),
                "environment": dict(one.environment),
                "delay": one.delay,
                "limit": self.limit,
                "folder": str(folder),
                "said": str(path),
            }
            for one, path in zip(processes, said, strict=True)
        ]
        self._process.stdin.write(json.dumps(orders) + "\n")
        self._process.stdin.flush()
        return [
            End(**end, text=path.read_text(errors="replace"), outside=changed_outside(folder, path))
            for end, path in zip(self._answer()["ends"], said, strict=True)
        ]

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the forking process of the attack has died: see above")
        return dict(json.loads(line))


def changed_outside(folder: Path, said: Path) -> tuple[str, ...]:
    """What the shim noted of a command that is neither below its folder nor a temporary file or a
    cache."""
    notes = said.with_name(f"{said.name}.outside")
    paths = notes.read_text(errors="replace").splitlines() if notes.exists() else []
    return tuple(
        sorted(
            {path for path in map(os.path.normpath, paths) if not _may_change(Path(path), folder)}
        )
    )


def _may_change(path: Path, folder: Path) -> bool:
    # the attack's own place, though it is a temporary one: other trials lie there
    if path.is_relative_to(folder.parent):
        return path.is_relative_to(folder)
    return "__pycache__" in path.parts or any(path.is_relative_to(place) for place in ANYWHERE)


def _compile() -> None:
    source = HERE / "faults.c"
    if LIBRARY.exists() and LIBRARY.stat().st_mtime > source.stat().st_mtime:
        return
    LIBRARY.parent.mkdir(parents=True, exist_ok=True)
    aside = LIBRARY.with_name(f"{LIBRARY.name}.{os.getpid()}")  # tests may compile at a time
    try:
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", str(aside), str(source), "-ldl"], check=True
        )
    except FileNotFoundError:
        raise SystemExit(
            "the attack needs a C compiler, and `cc` was not found: install gcc or clang"
        ) from None
    aside.rename(LIBRARY)
