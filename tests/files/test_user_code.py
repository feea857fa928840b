"""A person's own file runs from the bytes that were hashed, and fails in words."""

import hashlib
import importlib.util
import linecache
import os
import py_compile
import sys
import traceback
from pathlib import Path

import pytest

from fulcrum.files.user_code import load
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import failed, guide_of, home, place


def test_a_file_is_a_module_with_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from pathlib import Path\nclass Mine:\n    pass\n")
    mine = load(path, "docs/x.md")
    assert mine.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (
        mine.module.__name__ == f"fulcrum_user_mine_{mine.sha256[:12]}"
        and sys.modules[mine.module.__name__] is mine.module
    )
    assert [kind.__name__ for kind in mine.classes()] == ["Mine"]
    assert home(mine.classes()[0]()) == f" ({path})"


def test_an_edit_of_the_same_size_and_time_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("value = 1\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert load(path, "").module.value == 1
    path.write_text("value = 2\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    assert load(path, "").module.value == 2
    assert os.listdir(tmp_path) == ["mine.py"]  # nothing compiled is left for others to find


@pytest.mark.parametrize(
    "mode",
    [py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.UNCHECKED_HASH],
)
def test_a_planted_pyc_is_not_run(tmp_path: Path, mode: py_compile.PycInvalidationMode) -> None:
    path = tmp_path / "mine.py"
    path.write_text("value = 6\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    planted = importlib.util.cache_from_source(str(path))
    py_compile.compile(str(path), cfile=planted, invalidation_mode=mode)
    path.write_text("value = 1\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    spec = importlib.util.spec_from_file_location("through_the_cache", path)
    assert spec is not None and spec.loader is not None
    imported = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(imported)
    assert imported.value == 6  # the trap works: Python's own import falls into it
    assert load(path, "").module.value == 1


def test_a_traceback_shows_the_lines_that_ran(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("# zwölf\ndef fall():\n    raise ValueError('no')  # here\n")
    fall = load(path, "docs/x.md").module.fall
    path.write_text("# something else\n" * 9)
    with pytest.raises(ValueError) as error:
        fall()
    linecache.checkcache(str(path))
    assert "raise ValueError('no')  # here" in "".join(traceback.format_exception(error.value))
    assert place(error.value) == f"{path}, line 3" and guide_of(error.value) == "docs/x.md"
    assert failed(error.value, "it fell").message == f"it fell: ValueError: no ({path}, line 3)"


@pytest.mark.parametrize(
    "source, why",
    [
        (b"value = (\n", "was never closed"),
        (b"value = 1/0\n", "ZeroDivisionError: division by zero"),
        (b"\xff = 1\n", "(?i)utf-8"),
        (b"raise SystemExit(3)\n", "SystemExit: 3"),
        (b"x = 1\0\n", "null bytes"),
        (b"(" * 200_000, "nested"),
    ],
)
def test_a_file_that_fails_is_told_and_leaves_no_module(
    tmp_path: Path, source: bytes, why: str
) -> None:
    path = tmp_path / "broken.py"
    path.write_bytes(source)
    with pytest.raises(BadInput, match=why) as error:
        load(path, "docs/x.md")
    assert (
        error.value.message.startswith(f"{path} cannot be used: ")
        and "docs/x.md" in error.value.hint
    )
    assert not [name for name in sys.modules if name.startswith("fulcrum_user_broken_")]


def test_a_file_knows_where_it_lies_whatever_folder_it_was_named_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("from pathlib import Path\n\nhere = Path(__file__).parent\n")
    monkeypatch.chdir(tmp_path)
    module = load(Path("mine.py"), "").module
    assert (
        module.here == tmp_path
        and module.__spec__ is not None
        and module.__spec__.origin == str(tmp_path / "mine.py")
    )


def test_what_is_no_python_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "text.txt").touch()
    for name in ("pipe.py", "folder.py", "text.txt", "missing.py"):
        with pytest.raises(BadInput, match="there is no Python file"):
            load(tmp_path / name, "docs/x.md")
