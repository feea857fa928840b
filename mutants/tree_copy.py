"""A copy of the package and its tests in which a text is replaced: the tree itself is never
touched."""

import os
import py_compile
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("fulcrum", "tests")
LEFT_OUT = {".git", ".venv", "build", "runs"}


class TreeCopy:
    """`fulcrum/` and `tests/` are copied, all else that lies beside them is linked."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        for entry in sorted(ROOT.iterdir()):
            if entry.name in COPIED:
                # with the compiled files: they are of these very texts
                shutil.copytree(entry, folder / entry.name)
            elif entry.name == "pyproject.toml":
                shutil.copy2(entry, folder / entry.name)
            elif entry.name not in LEFT_OUT:
                (folder / entry.name).symlink_to(entry)

    @contextmanager
    def replaced(self, file: str, text: str) -> Iterator[None]:
        """`file` holds `text` as long as the block runs. What was compiled of it goes: it may seem
        as old."""
        path = self.path / file
        before, compiled = path.read_text(), path.parent / "__pycache__"
        for stale in compiled.glob(f"{path.stem}.*.pyc"):
            stale.unlink()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(before)
            # older than any: no compiled file of the mutant can be taken for its own
            os.utime(path, (0, 0))
            for stale in compiled.glob(f"{path.stem}.*.pyc"):
                stale.unlink()
            py_compile.compile(str(path))
