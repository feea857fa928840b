"""Measure how far a reader travels: functions, files and changes of file on four ways.

    python bench/hops.py                       the table, about a minute on one core
    python bench/hops.py --trail step          the functions of a step, in order of first call
    python bench/hops.py --limits --skip-cell  exit with 1 if a number is above its limit

  step     one training step: from one call of the loop's mark to the next (median by calls)
  start    `fulcrum train`, from the command to the first step
  draw     `fulcrum sample`, the whole command; painter is the part of it that draws
  cell     `fulcrum study run` on finished cells: from the first read of a cell's file until
           the page is in place

The real commands run in this process under sys.setprofile. Every Python call into the package on
the main thread is recorded. Generator expressions, lambdas and comprehensions count as part of
their file, not as functions. Class bodies, module bodies, C functions and other packages are not
recorded. Workers train and evaluate the cells in processes of their own, without recording.

functions  distinct functions              calls  all calls into the package
files      distinct files                  depth  deepest stack, from the shallowest call on
moves      changes of file from one call to the next
returns    changes of file with every return counted too
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

# Numbers of today, lowered with the code. The goal for a step is 110 functions, 18 files, 70 moves;
# for the other ways half of the files and moves in hops_before.json.
LIMITS = {
    "step": {"functions": 110, "files": 19, "moves": 58},
    "start": {"functions": 525, "files": 80, "moves": 1_450},
    "draw": {"functions": 246, "files": 46, "moves": 570},
    "painter": {"functions": 90, "files": 18, "moves": 335},
    "cell": {"functions": 400, "files": 50, "moves": 3_700},  # a page shows times, so calls vary
}
WAYS = ("step", "start", "draw", "painter", "cell")
PAGES = ("report.html", "report.json")
PROMPT = "a large red circle at the top left."
PLAN = """
title = "Two arms, two seeds"
baseline = "spark"
arms = ["muon"]
seeds = [0, 1]
images = 320
samples = 64
threads = 1
compile = false
settings = ["data.source.count=2048"]
"""
PARTS_OF_A_FILE = ("<genexpr>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>")


class Event(NamedTuple):
    """A call of a package function, or the return from it."""

    is_call: bool
    depth: int
    file: str
    function: str

    @property
    def is_function(self) -> bool:
        return self.function.rpartition(".")[2] not in PARTS_OF_A_FILE


class Recorder:
    """Record the calls into the package, and where in the trail files are opened and replaced."""

    def __init__(self, root: Path) -> None:
        self.root = str(root) + os.sep
        self.trail: list[Event] = []
        self.opened: list[tuple[int, str]] = []  # position in the trail, path
        self.replaced: list[tuple[int, str]] = []
        self.depth = 0
        self.is_on = False
        sys.addaudithook(self._audit)  # cannot be removed: `is_on` turns it off

    def run(self, words: Sequence[str]) -> list[Event]:
        """Run a command of the package and return its trail."""
        from fulcrum.cli import app

        self.trail = []
        self.opened = []
        self.replaced = []
        self.depth = 0
        with self._recording():
            app(args=list(words), standalone_mode=False)
        return self.trail

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            self.is_on = True
            sys.setprofile(self._profile)
            try:
                yield
            finally:
                sys.setprofile(None)
                self.is_on = False

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        code: CodeType = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(self.root):
            return
        if not code.co_flags & 1:  # CO_OPTIMIZED: bodies of modules and classes are not functions
            return
        if event == "call":
            self.depth += 1
        file = code.co_filename.removeprefix(self.root)
        self.trail.append(Event(event == "call", self.depth, file, code.co_qualname))
        if event == "return":
            self.depth -= 1

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            self.opened.append((len(self.trail), os.fspath(arguments[0])))
        elif event == "os.rename":
            self.replaced.append((len(self.trail), os.fsdecode(arguments[1])))


def measure(trail: Sequence[Event]) -> dict[str, int]:
    """Count what a reader of this trail has to visit."""
    calls = [event for event in trail if event.is_call]
    depths = [event.depth for event in calls]
    return {
        "functions": len({(event.file, event.function) for event in calls if event.is_function}),
        "files": len({event.file for event in calls}),
        "moves": changes([event.file for event in calls]),
        "returns": changes(executing(trail)),
        "calls": len(calls),
        "depth": max(depths) - min(depths) + 1,
    }


def changes(files: Sequence[str]) -> int:
    return sum(before != after for before, after in zip(files, files[1:], strict=False))


def executing(trail: Sequence[Event]) -> list[str]:
    """Return the file that executes after each call and each return."""
    stack: list[str] = []
    files = []
    for event in trail:
        if event.is_call:
            stack.append(event.file)
        elif stack:
            stack.pop()
        if stack:
            files.append(stack[-1])
    return files


def show(trail: Sequence[Event]) -> None:
    """Print each function at its first call, indented by depth, and its file if that changes."""
    calls = [event for event in trail if event.is_call and event.is_function]
    shallowest = min(event.depth for event in calls)
    seen: set[tuple[str, str]] = set()
    last = ""
    for event in calls:
        if (event.file, event.function) in seen:
            continue
        seen.add((event.file, event.function))
        file = event.file if event.file != last else ""
        print(f"{'  ' * (event.depth - shallowest)}{event.function:<40} {file}".rstrip())
        last = event.file


def calls_of(trail: Sequence[Event], function: str) -> list[int]:
    """Return the positions of the calls of a function."""
    calls = [at for at, event in enumerate(trail) if event.is_call and event.function == function]
    if not calls:
        raise SystemExit(f"'{function}' was never called: name another with --mark or --painter")
    return calls


def training_trails(recorder: Recorder, out: Path, mark: str) -> dict[str, list[Event]]:
    """Train, and return the trails of the start and of the median step."""
    options = ["--images", "3200", "--no-compile", "--threads", "1", "--out", str(out)]
    trail = recorder.run(["train", "spark", *options])
    marks = calls_of(trail, mark)
    steps = [trail[begin:end] for begin, end in zip(marks, marks[1:], strict=False)]
    steps.sort(key=lambda step: sum(event.is_call for event in step))
    return {"step": steps[len(steps) // 2], "start": trail[: marks[0]]}


def drawing_trails(recorder: Recorder, out: Path, painter: str) -> dict[str, list[Event]]:
    """Draw a picture with the run in `out`. Return the trails of the command and its painter."""
    key = next(out.glob("*/result.json")).parent.name
    trail = recorder.run(["sample", key, PROMPT, "--out", str(out)])
    visits = calls_of(trail, painter)
    return {"draw": trail, "painter": trail[visits[0] : visits[-1] + 1]}


def cell_trail(recorder: Recorder, out: Path) -> list[Event]:
    """Finish a small study in another process, then run it here and return its cells' way."""
    out.mkdir()
    plan = out / "plan.toml"
    plan.write_text(PLAN)
    words = ["study", "run", str(plan), "--out", str(out), "--lanes", "1", "--quiet"]
    subprocess.run([sys.executable, "-m", "fulcrum", *words], check=True, stdout=subprocess.DEVNULL)
    cells = {path.parent.name for path in out.glob("*/result.json")}
    trail = recorder.run(words)
    begin = next(at for at, path in recorder.opened if Path(path).parent.name in cells)
    ends = [next(at for at, path in recorder.replaced if Path(path).name == page) for page in PAGES]
    return trail[begin : max(ends)]


def above_limits(numbers: dict[str, dict[str, int]]) -> list[str]:
    """Return a line for each number that is above its limit."""
    return [
        f"{way}: {numbers[way][name]} {name}, at most {limit}"
        for way, limits in LIMITS.items()
        if way in numbers
        for name, limit in limits.items()
        if numbers[way][name] > limit
    ]


def main() -> int:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    add = parser.add_argument
    add("--trail", choices=WAYS, help="print the functions of this way in order")
    add("--json", type=Path, metavar="FILE", help="write the numbers")
    add("--limits", action="store_true", help="exit with 1 if a number is above its limit")
    add("--skip-cell", action="store_true", help="leave out the study, which takes longest")
    add("--mark", default="StopAsked.agree", help="what the loop calls first in every step")
    add("--painter", default="Painter.pictures", help="what draws batches of pictures")
    asked = parser.parse_args()
    if asked.trail == "cell" and asked.skip_cell:
        parser.error("--trail cell needs the cell: leave out --skip-cell")
    import fulcrum

    recorder = Recorder(Path(fulcrum.__file__).parent)
    with tempfile.TemporaryDirectory() as folder:
        trails = training_trails(recorder, Path(folder, "runs"), asked.mark)
        trails |= drawing_trails(recorder, Path(folder, "runs"), asked.painter)
        if not asked.skip_cell:
            trails["cell"] = cell_trail(recorder, Path(folder, "study"))
    numbers = {way: measure(trail) for way, trail in trails.items()}
    heads = list(numbers["step"])
    print(" " * 8 + "".join(f"{head:>10}" for head in heads))
    for way, row in numbers.items():
        print(f"{way:8}" + "".join(f"{row[head]:>10,}" for head in heads))
    if asked.trail:
        show(trails[asked.trail])
    if asked.json:
        asked.json.write_text(json.dumps(numbers, indent=2) + "\n")
    faults = above_limits(numbers) if asked.limits else []
    for fault in faults:
        print(f"above the limit: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
