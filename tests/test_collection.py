"""The whole suite runs every test file, and child processes import this tree."""

import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def test_every_test_file_is_collected(request: pytest.FixtureRequest) -> None:
    """Ask pytest's own ignore rules about every test file and about the folders above it."""
    session = request.session
    assert session.config.getini("testpaths") == ["tests"]

    def is_ignored(path: Path) -> bool:
        hooks = session.gethookproxy(path.parent)
        return bool(hooks.pytest_ignore_collect(collection_path=path, config=session.config))

    assert any("dist" in file.parts for file in FILES)
    folders = {
        folder for file in FILES for folder in file.parents if folder.is_relative_to(ROOT / "tests")
    }
    ignored = [path for path in [*sorted(folders), *FILES] if is_ignored(path)]
    patterns = session.config.getini("python_files")
    ignored += [
        file for file in FILES if not any(fnmatch(file.name, pattern) for pattern in patterns)
    ]
    assert not [str(path.relative_to(ROOT)) for path in ignored]


def test_a_script_that_a_test_starts_imports_this_tree(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import fulcrum\nprint(fulcrum.__file__)\n")
    told = subprocess.run(
        [sys.executable, script], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert Path(told.stdout.strip()).parent == ROOT / "fulcrum"
