"""Which tests reach which lines: each test file is run once, unmutated and watched, and what it said is kept.

So a mutant meets only tests that execute its statement, the quickest first, and one that no test executes is known at once.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mutants.forked_tests import Ending, run_tests, tests_in
from mutants.operators import TextChange

PATIENCE = 280.0  # seconds for a file of tests, watched


class Reach:
    """What is known of the tests of a tree; `folder` keeps it from one start to the next."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree, self.folder = tree, folder
        folder.mkdir(parents=True, exist_ok=True)
        package = sorted((tree / "fulcrum").rglob("*.py"))
        self.package = hashlib.sha256(b"".join(path.read_bytes() for path in package)).hexdigest()
        self.texts = {name: (tree / name).read_text() for name in tests_in(tree)}
        self.known: dict[str, dict[str, Any]] = {}

    def files_for(self, module: str) -> list[str]:
        """Files of tests that may tell of a module: those that import it, and those of its room."""
        dotted = module.removesuffix(".py").replace("/", ".")
        parent, _, name = dotted.rpartition(".")
        imports = re.compile(rf"{re.escape(dotted)}\b|from {re.escape(parent)} import [^\n]*\b{name}\b")
        room = f"tests/{module.split('/')[1]}/"
        return [file for file, text in self.texts.items() if file.startswith(room) or imports.search(text)]

    def is_known(self, file: str) -> bool:
        return file in self.known or self._kept(file).exists()

    def of(self, file: str) -> dict[str, Any]:
        """What a file's tests reach and how long they take."""
        if file not in self.known:
            kept = self._kept(file)
            if not kept.exists():
                ending = run_tests(self.tree, [file], seconds=PATIENCE, go_on=True, lines=True)
                kept.write_text(json.dumps(_told(ending)))
            self.known[file] = json.loads(kept.read_text())
        return self.known[file]

    def tests_for(self, module: str, change: TextChange, most: float) -> dict[str, float]:
        """Tests that execute a change, with their seconds: the quickest that together take `most`."""
        seconds = {}
        for file in self.files_for(module):
            told = self.of(file)
            for test, files in told["reached"].items():
                lines = files.get(module, ())
                hit = any(change.lines[0] <= line <= change.lines[1] for line in lines) if change.inside else bool(lines)
                if hit and test in told["passed"]:
                    seconds[test] = told["passed"][test]
        return dict(_within(sorted(seconds.items(), key=lambda one: one[1]), most))

    def _kept(self, file: str) -> Path:
        name = hashlib.sha256((self.package + self.texts[file]).encode()).hexdigest()[:24]
        return self.folder / f"{name}.json"


def _within(tests: Iterable[tuple[str, float]], most: float) -> Iterable[tuple[str, float]]:
    spent = 0.0
    for test, seconds in tests:
        spent += seconds
        if spent > most:
            return
        yield test, seconds


def _told(ending: Ending) -> dict[str, Any]:
    return {"passed": ending.passed, "reached": ending.reached, "failed": ending.failed, "fault": ending.fault}
