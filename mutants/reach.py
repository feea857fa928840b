"""Which tests reach which lines: each test file is run once, unmutated and watched, and what it
said is kept.

So a mutant meets only tests that execute its statement, the quickest first, and one that no test
executes is known at once.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mutants.forked_tests import run_tests, tests_in
from mutants.operators import TextChange

# seconds of computing for a file of tests, watched: those that come later in it are not asked
PATIENCE = 20.0
LEAST = 0.5  # seconds of tests for which no further file is watched
# folders of which all tests are quick enough to be asked
WHOLE = {"files", "flow", "loss", "model", "optim"}


class Reach:
    """What is known of the tests of a tree; `folder` keeps it from one start to the next."""

    def __init__(
        self,
        tree: Path,
        folder: Path,
        wide: bool = False,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.tree, self.folder, self.wide, self.say = tree, folder, wide, say
        folder.mkdir(parents=True, exist_ok=True)
        self.texts = {name: (tree / name).read_text() for name in tests_in(tree)}
        self.known: dict[str, dict[str, Any]] = {}

    def files_for(self, module: str) -> list[str]:
        """Files of tests that may tell of a module: of a small room all, of another those that
        import it; `wide`: both."""
        folders = Path(module).parent.parts[1:]
        whole = not WHOLE.isdisjoint(folders)
        direct = [file for file, text in self.texts.items() if _imports(module).search(text)]
        own = [file for file in self.texts if not set(folders).isdisjoint(Path(file).parent.parts)]
        own = own if whole or not direct else []
        return sorted({*own, *(direct if self.wide or not whole else [])})

    def is_known(self, file: str, module: str) -> bool:
        """Was this file of tests watched since the module was changed?"""
        if file not in self.known and self._kept(file).exists():
            self.known[file] = json.loads(self._kept(file).read_text())
        return file in self.known and self.known[file]["texts"].get(module) in (
            None,
            self._text(module),
        )

    def unknown_for(self, module: str) -> int:
        """How many files that may tell of a module are still to be watched."""
        return sum(not self.is_known(file, module) for file in self.files_for(module))

    def of(self, file: str, module: str) -> dict[str, Any]:
        """What a file's tests reach and how long they take."""
        if not self.is_known(file, module):
            begun = time.monotonic()
            ending = run_tests(self.tree, [file], seconds=PATIENCE, watched=True)
            self.say(
                f"{file}: {len(ending.passed)} tests in {time.monotonic() - begun:.1f} s"
                f" {ending.failed}"
            )
            reached = {one for files in ending.reached.values() for one in files}
            told = {**ending._asdict(), "texts": {one: self._text(one) for one in sorted(reached)}}
            self._kept(file).write_text(json.dumps(told))
            self.known[file] = told
        return self.known[file]

    def rounds(self, module: str, change: TextChange, most: float) -> Iterator[dict[str, float]]:
        """Tests that execute a change, which together take `most` seconds: first those of files
        that are known, then file by file of those that must be watched, the one that is called as
        the module is first. Few mutants need them all."""
        files = sorted(
            self.files_for(module),
            key=lambda file: (Path(module).stem not in file, len(self.texts[file])),
        )
        known = [file for file in files if self.is_known(file, module)]
        for group in (known, *([file] for file in files if file not in known)):
            if tests := self.tests_for(module, change, most, group):
                yield tests
                most -= sum(tests.values())
            if most < LEAST:
                return

    def tests_for(
        self, module: str, change: TextChange, most: float, files: Sequence[str] | None = None
    ) -> dict[str, float]:
        """Tests of some files that execute a change, with their seconds: the quickest that together
        take `most`. What acts at import is executed by all that use the module, or one that imports
        it: a record may have no function at all."""
        seconds, users = dict[str, float](), [module] if change.inside else self._users(module)
        for file in self.files_for(module) if files is None else files:
            told = self.of(file, module)
            for test, reached in told["reached"].items():
                lines = [line for user in users for line in reached.get(user, ())]
                hit = (
                    any(change.lines[0] <= line <= change.lines[1] for line in lines)
                    if change.inside
                    else bool(lines)
                )
                if hit and test in told["passed"]:
                    seconds[test] = told["passed"][test]
        return dict(_within(sorted(seconds.items(), key=lambda one: one[1]), most))

    def _users(self, module: str) -> list[str]:
        paths = sorted((self.tree / "fulcrum").rglob("*.py"))
        return [
            module,
            *(
                str(path.relative_to(self.tree))
                for path in paths
                if _imports(module).search(path.read_text())
            ),
        ]

    def _kept(self, file: str) -> Path:
        return self.folder / f"{hashlib.sha256(self.texts[file].encode()).hexdigest()[:24]}.json"

    def _text(self, module: str) -> str:
        return hashlib.sha256((self.tree / module).read_bytes()).hexdigest()[:24]


def _imports(module: str) -> re.Pattern[str]:
    """What a text that imports a module holds."""
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    parent, _, name = dotted.rpartition(".")
    return re.compile(rf"{re.escape(dotted)}\b|from {re.escape(parent)} import [^\n]*\b{name}\b")


def _within(tests: Iterable[tuple[str, float]], most: float) -> Iterable[tuple[str, float]]:
    spent = 0.0
    for test, seconds in tests:
        spent += seconds
        if spent > most:
            return
        yield test, seconds
