"""A seeded sample of all mutants of the rooms on which everything rests, each against the tests
that execute it.

Outcomes are lines of one file; a run that was stopped goes on where it stood.
"""

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mutants.forked_tests import Ending, Swap, run_tests, warm_package
from mutants.operators import TextChange, changes_of
from mutants.reach import Reach
from mutants.tree_copy import ROOT, TreeCopy

ROOMS = {  # folders and files, by name, wherever they are in the package
    "maths": ("flow", "loss", "optim", "model"),
    "statistics": ("judge", "power.py"),
    "files": ("files",),
    "checkpoints": ("checkpoint.py", "saver.py", "kept_weights.py"),
}
QUICKEST = ("files", "maths", "statistics", "checkpoints")  # by what their tests take
# seconds of tests, unmutated, that a mutant must pass to survive: at first, and when run `again`
FIRST, TESTS = 6.0, 15.0


def files_of(room: str, root: Path = ROOT) -> list[Path]:
    """Return the files that a group of rooms consists of: all below a folder, or a file of that
    name."""
    found: dict[str, list[Path]] = {name: [] for name in ROOMS[room]}
    for path in sorted((root / "fulcrum").rglob("*.py")):
        for name in found.keys() & path.relative_to(root / "fulcrum").parts:
            found[name].append(path)
    if missing := [name for name, files in found.items() if not files]:
        raise LookupError(
            f"the package has no folder or file named {', '.join(missing)}: mend ROOMS"
        )
    return sorted({path for files in found.values() for path in files})


class SampledMutant(NamedTuple):
    room: str
    file: str
    change: TextChange

    @property
    def identity(self) -> str:
        one = self.change
        return f"{self.file}:{one.line}:{one.column} {one.before!r} -> {one.after!r}"


def sample(each: int, seed: int) -> list[SampledMutant]:
    """As many of every room, in an order that is mixed."""
    chosen: list[SampledMutant] = []
    for room in ROOMS:
        every = [
            SampledMutant(room, str(path.relative_to(ROOT)), change)
            for path in files_of(room)
            for change in changes_of(path.read_text())
        ]
        dice = random.Random(f"{seed} {room}")
        chosen += dice.sample(every, min(each, len(every)))
    random.Random(seed).shuffle(chosen)
    return chosen


def outcomes(path: Path) -> dict[str, dict[str, Any]]:
    """What is known of mutants, by identity; of one that was run twice the last."""
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {line["mutant"]: line for line in lines}


def go_on(
    folder: Path,
    place: Path,
    chosen: Sequence[SampledMutant],
    seconds: float,
    again: bool,
    say: Callable[[str], None],
) -> None:
    """Run mutants that have no outcome yet, for some seconds; `again`: those that survived."""
    results, deadline = folder / "outcomes.jsonl", time.monotonic() + seconds
    tree = TreeCopy(place)
    warm_package(tree.path)
    reach, known = Reach(tree.path, folder / "reach", again, say), outcomes(results)
    survived = [name for name, one in known.items() if one["end"] in ("survived", "not reached")]
    left = [
        one for one in chosen if (one.identity in survived if again else one.identity not in known)
    ]
    left.sort(key=lambda one: (QUICKEST.index(one.room), reach.unknown_for(one.file)))
    say(f"{len(known)} known, {len(left)} left")
    for mutant in left:
        if time.monotonic() > deadline:
            return
        outcome = _tried(tree, reach, mutant)
        with results.open("a") as stream:
            stream.write(json.dumps(outcome) + "\n")
        say(f"{outcome['end']:<12} {mutant.identity}")


def _tried(tree: TreeCopy, reach: Reach, mutant: SampledMutant) -> dict[str, Any]:
    """Round after round of tests, until one fails."""
    about: dict[str, Any] = {"mutant": mutant.identity, "room": mutant.room}
    asked = dict[str, float]()
    rounds, executed = (
        reach.rounds(mutant.file, mutant.change, TESTS if reach.wide else FIRST),
        False,
    )
    for tests in rounds:
        executed = True
        asked |= tests
        if (ending := _run(tree, mutant, tests)).failed:
            break
    else:
        ending = Ending({}, "", "", {})
        # a compiler reads a line and does not execute it; other processes are not watched
        if not executed and reach.wide:
            asked = reach.tests_for(mutant.file, mutant.change._replace(inside=False), TESTS)
            ending = _run(tree, mutant, asked) if asked else ending
    end = "killed" if ending.failed else "survived" if executed else "not reached"
    about |= {"tests": len(asked), "seconds": round(sum(asked.values()), 1)}
    return {**about, "end": end, "by": ending.failed, "fault": ending.fault}


def _run(tree: TreeCopy, mutant: SampledMutant, tests: dict[str, float]) -> Ending:
    files = sorted(
        {test.partition("::")[0] for test in tests}, key=lambda file: _quickest(file, tests)
    )
    before = (tree.path / mutant.file).read_text()
    text = mutant.change.applied(before)
    inside = mutant.change.inside
    with tree.replaced(mutant.file, text):  # on disk too: tests start processes of their own
        return run_tests(
            tree.path,
            files,
            only=tests,
            seconds=10.0 + 3.0 * sum(tests.values()),
            swapped=Swap(mutant.file, before, text) if inside else None,
            anew=not inside,
        )


def _quickest(file: str, tests: dict[str, float]) -> float:
    return min(seconds for test, seconds in tests.items() if test.startswith(f"{file}::"))


def summary(folder: Path, each: int, seed: int) -> Iterator[str]:
    """A table of the rooms, then every mutant of the sample that was not killed."""
    known = outcomes(folder / "outcomes.jsonl")
    mine = [(one, known[one.identity]) for one in sample(each, seed) if one.identity in known]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, outcome in mine:
        for room in (mutant.room, "all"):
            counts[room][outcome["end"]] += 1
    yield "| rooms | mutants | killed | survived | not reached | share killed |"
    yield "|---|---|---|---|---|---|"
    for room in (*ROOMS, "all"):
        of, number = counts[room], sum(counts[room].values())
        share = f"{of['killed'] / number:.0%}" if number else ""
        yield (
            f"| {room} | {number} | {of['killed']} | {of['survived']} | {of['not reached']} |"
            f" {share} |"
        )
    for mutant, outcome in sorted(mine, key=lambda one: one[0].identity):
        if outcome["end"] != "killed":
            yield f"{outcome['end']} ({outcome['tests']} tests): {mutant.identity}"
