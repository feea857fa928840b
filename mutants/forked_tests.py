"""Tests run in a fork of a process that has imported torch and no part of fulcrum: a second for
each, not ten.

The fork imports the package from a copy of the tree, mutated or not, or finds it imported and swaps
a function. It says which tests passed, how long they took, which one failed and by what; when asked
also which lines each of them reached.
"""

import gc
import importlib
import inspect
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# of pytest; what else is installed takes half a second to find
PLUGINS = ("pytest_timeout", "xdist.plugin")
WARM = (
    *(
        "numpy",
        "scipy.special",
        "scipy.stats",
        "torch",
        "torch.distributed",
        "torch.distributed.tensor",
        "pydantic",
    ),
    *(
        "safetensors.torch",
        "PIL.Image",
        "jinja2",
        "typer",
        "rich.console",
        "rich.progress",
        "yaml",
        "pytest",
    ),
    *PLUGINS,
)
_IMPORTED: dict[str, list[FunctionType]] = {}  # file -> functions, once the package is imported
SLEEPING = 20.0  # times the seconds that tests may compute: they may take, on a busy machine
BUSY = 4.0  # seconds of a test that count as one: others use the machine, or it waits
STILL = 20.0  # seconds in which nothing that a run started computes: it waits for what never comes
# bytes that a mutant may take: one that asks for the whole machine must not get it
MEMORY = 6 << 30


class Ending(NamedTuple):
    """How a run of tests ended."""

    passed: dict[str, float]  # test -> seconds
    failed: str  # the first test that failed; empty: none
    fault: str  # by which kind of exception, or why there is no ending
    reached: dict[str, dict[str, list[int]]]  # test -> file -> lines, where they were asked for

    @property
    def asserted(self) -> bool:
        """Did a test fail because something was not as it says, rather than because nothing ran at
        all?"""
        return self.fault in ("AssertionError", "Failed")


def warm_up() -> None:
    """What every fork would import; never fulcrum, which each must take from its own tree."""
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    for name in WARM:
        importlib.import_module(name)
    assert "fulcrum" not in sys.modules


def warm_package(tree: Path) -> None:
    """Import the package of a tree too: forks then need a second less. What is changed in a
    function, they swap in."""
    _only_from(tree)
    for path in sorted((tree / "fulcrum").rglob("*.py")):
        name = ".".join(path.relative_to(tree).with_suffix("").parts)
        if path.stem != "__main__":
            with suppress(ImportError):  # what only some machines have
                importlib.import_module(name.removesuffix(".__init__"))
    know_functions(tree)
    gc.freeze()  # what is here stays: forks look for rubbish among what they make themselves


def know_functions(folder: Path) -> None:
    """Note the functions of all modules of a folder that are imported, wherever decorators have put
    them."""
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(str(folder)):
            _IMPORTED.setdefault(one.__code__.co_filename, []).append(one)


def _only_from(tree: Path) -> None:
    sys.path[:] = [
        str(tree),
        *(entry for entry in sys.path if Path(entry or ".").resolve() not in (ROOT, tree)),
    ]


class Swap(NamedTuple):
    """A file of which functions have changed, and nothing else."""

    file: str
    before: str  # its whole text
    after: str


def swap(tree: Path, file: str, before: str, after: str) -> None:
    """Give the functions of a module that is imported the code that they have now."""
    path = str(tree / file)
    old, new = (
        _functions(compile(text, path, "exec", dont_inherit=True)) for text in (before, after)
    )
    changed = {place: code for place, code in new.items() if old.get(place) != code}
    swapped = 0
    for function in _IMPORTED.get(path, ()):
        place = function.__code__.co_qualname, function.__code__.co_firstlineno
        if place in changed:
            function.__code__ = changed[place]
            swapped += 1
    if not swapped:
        raise LookupError(f"no function of {file} that is imported has changed")


def _functions(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Those of a module and of its classes; what is defined inside a function is a part of it."""
    found = {}
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_flags & inspect.CO_OPTIMIZED:
                found[one.co_qualname, one.co_firstlineno] = one
            else:
                found |= _functions(one)
    return found


def run_tests(
    tree: Path,
    files: Sequence[str],
    *,
    only: Mapping[str, float] | None = None,
    seconds: float = 120.0,
    watched: bool = False,
    swapped: Swap | None = None,
    anew: bool = False,
) -> Ending:
    """Run test files (or single tests, FILE::NAME) of a tree; `only` some of them, of which the
    seconds are known.

    They end at the first failure and after `seconds` of computing (others may use the machine too);
    where they are `watched`, failures do not end them, lines are noted, and what was known when the
    time was over is told. Where the package is imported already, functions can be `swapped`, or all
    of it imported `anew`.
    """
    place = Path(tempfile.mkdtemp(prefix="mutant-"))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            if swapped is not None:
                swap(tree, *swapped)
            if anew:
                for name in [one for one in sys.modules if one.split(".")[0] == "fulcrum"]:
                    del sys.modules[name]
            code = _child(tree, list(files), only, place, seconds, watched)
        except BaseException:
            traceback.print_exc()  # of ours: tests' own are caught
        finally:
            os._exit(code)
    try:
        by = _waited(pid, SLEEPING * seconds)
        answer = place / "answer.json"
        if by in (signal.SIGXCPU, signal.SIGALRM):
            return Ending({}, "the time limit", "TimeLimit", {})
        if not answer.exists():
            return Ending({}, "the process", "Died", {})
        return Ending(*json.loads(answer.read_text()))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _waited(pid: int, seconds: float) -> int:
    """Until the fork ends; the signal that ended it, or 0. At the limit it ends with all that it
    started."""
    now, code = time.monotonic(), 0
    deadline, still_since, look, used = now + seconds, now, now, -1
    while now < min(deadline, still_since + STILL):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            break
        time.sleep(0.02)
        now = time.monotonic()
        if now > look + 1.0:
            look, before, used = now, used, _computed(pid)
            still_since = still_since if used == before else now
    else:
        code = signal.SIGALRM
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if code == signal.SIGALRM:
        os.waitpid(pid, 0)
    return code


def _computed(pid: int) -> int:
    """What a process and all that it started have computed so far, in ticks of the system."""
    parents, ticks = dict[int, int](), dict[int, int]()
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            words = place.read_text().rsplit(")", 1)[1].split()
            one = int(place.parent.name)
            # its own, and of children that ended
            parents[one], ticks[one] = int(words[1]), sum(map(int, words[11:15]))
    ours = {pid}
    while more := {one for one, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(one, 0) for one in ours)


def _cpu_seconds() -> float:
    """Of this process and of those it has started and waited for."""
    uses = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _child(
    tree: Path,
    files: list[str],
    only: Mapping[str, float] | None,
    place: Path,
    seconds: float,
    watched: bool,
) -> int:
    import pytest

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    used = int(time.process_time())
    resource.setrlimit(
        resource.RLIMIT_CPU, (used + int(4 * seconds if watched else seconds) + 1,) * 2
    )
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    os.environ |= {
        "PYTHONPATH": str(tree),
        "TMPDIR": str(place),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    tempfile.tempdir = str(place)
    os.chdir(tree)
    _only_from(tree)
    watcher = _Watcher(tree, only, seconds if watched else None)
    stop = [] if watched else ["-x"]
    options = [
        "-q",
        *stop,
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(place / "base"),
        "-c",
        "pyproject.toml",
    ]
    options += [
        "-m",
        "not slow",
        "-o",
        "addopts=--import-mode=importlib --strict-markers --timeout=300",
    ]
    code = pytest.main(
        [*options, *files], plugins=[watcher, *(sys.modules[name] for name in PLUGINS)]
    )
    ended = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.INTERRUPTED)
    if not watcher.failed and code not in ended:
        watcher.failed, watcher.fault = "collection", pytest.ExitCode(code).name
    answer = [watcher.passed, watcher.failed, watcher.fault, watcher.told_lines()]
    (place / "answer.json").write_text(json.dumps(answer))
    return 0


class _Watcher:
    """A plug-in of pytest: leaves out what is not asked for, notes what passes, fails, and is
    reached."""

    def __init__(self, tree: Path, only: Mapping[str, float] | None, watched: float | None) -> None:
        self.root, self.only = str(tree / "fulcrum") + os.sep, only
        self.end = None if watched is None else time.process_time() + watched
        self.skip = len(str(tree)) + 1
        self.passed: dict[str, float] = {}
        self.failed = self.fault = ""
        self.hits: dict[str, set[tuple[str, int]]] = {}
        self.now: set[tuple[str, int]] = set()
        self.spent, self.since = dict[str, float](), 0.0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Files in their order, since their tests share what they make; of each the quickest
        first."""
        if (only := self.only) is not None:
            files = {
                file: place
                for place, file in enumerate(dict.fromkeys(_file(item.nodeid) for item in items))
            }
            wanted = [item for item in items if item.nodeid in only]
            items[:] = sorted(
                wanted, key=lambda item: (files[_file(item.nodeid)], only[item.nodeid])
            )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.since = _cpu_seconds()
        if self.end is not None:
            self.now = self.hits.setdefault(nodeid, set())
            threading.settrace(self._entered)
            sys.settrace(self._entered)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def pytest_runtest_teardown(self, item: Any) -> None:
        if self.end is not None and time.process_time() > self.end:
            item.session.shouldstop = "the time is over"

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        self.spent[item.nodeid] = self.spent.get(item.nodeid, 0.0) + call.duration
        kind = "" if call.excinfo is None else call.excinfo.type.__name__
        if kind in ("", "Skipped"):
            if call.when == "call" and not kind:
                self.passed[item.nodeid] = max(
                    _cpu_seconds() - self.since, self.spent[item.nodeid] / BUSY
                )
            return
        self.passed.pop(item.nodeid, None)
        if not self.failed:
            self.failed, self.fault = item.nodeid, kind

    def _entered(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(self.root):
            return None
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, argument: object) -> Any:
        self.now.add((frame.f_code.co_filename, frame.f_lineno))
        return self._stepped

    def told_lines(self) -> dict[str, dict[str, list[int]]]:
        told: dict[str, dict[str, list[int]]] = {}
        for test, hits in self.hits.items():
            files: dict[str, list[int]] = told.setdefault(test, {})
            for file, line in sorted(hits):
                files.setdefault(file[self.skip :], []).append(line)
        return told


def _file(test: str) -> str:
    return test.partition("::")[0]


def tests_in(folder: Path) -> Iterator[str]:
    """The files of tests, as pytest is told of them."""
    return (str(path.relative_to(folder)) for path in sorted((folder / "tests").rglob("test_*.py")))
