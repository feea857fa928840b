"""A folder is the beginning of a command by its mark, or because nothing but a beginning is in
it."""

import json
import os
from pathlib import Path

import pytest

from fulcrum.files.folders import BeginMark, require_begun
from fulcrum.spec.errors import BadInput

MARK = BeginMark("import.json", "width", "import")


def is_begun(folder: Path, mark: BeginMark = MARK) -> bool:
    before = (
        sorted(path.relative_to(folder) for path in folder.rglob("*")) if folder.is_dir() else []
    )
    try:
        require_begun(folder, mark)
    except BadInput as error:
        assert (
            "is not the beginning of this import" in error.message
            and "nothing in it was touched" in error.hint
        )
        return False
    finally:
        assert (
            sorted(path.relative_to(folder) for path in folder.rglob("*"))
            if folder.is_dir()
            else []
        ) == before
    return True


@pytest.mark.parametrize(
    ("content", "begun"),
    [
        ('{"width": 3}', True),
        ('{"width": null, "more": 1}', True),
        ('{"height": 3}', False),
        ('["width"]', False),
        ('"width"', False),
        ("{", False),
        ("[" * 100_000, False),
        ("", False),
    ],
)
def test_the_mark_must_state_its_field(tmp_path: Path, content: str, begun: bool) -> None:
    (tmp_path / "notes.txt").write_text("precious")
    assert not is_begun(tmp_path)
    (tmp_path / "import.json").write_text(content)
    assert is_begun(tmp_path) is begun


def test_a_mark_that_is_a_link_is_none(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text(json.dumps({"width": 3}))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "import.json").symlink_to(tmp_path / "elsewhere.json")
    assert not is_begun(tmp_path / "x")


def test_nothing_an_empty_lock_empty_folders_and_what_is_being_written_are_a_beginning(
    tmp_path: Path,
) -> None:
    assert is_begun(tmp_path / "nowhere") and is_begun(tmp_path)
    (tmp_path / "lock").touch()
    (tmp_path / "shards").mkdir()
    (tmp_path / ".import.json.12-0123abcd.writing").write_text("half")
    assert is_begun(tmp_path)
    (tmp_path / "lock").write_text("the combination of my bicycle")
    assert not is_begun(tmp_path)
    (tmp_path / "lock").unlink()
    os.symlink("nowhere", tmp_path / "lock")  # is refused as it is locked
    assert is_begun(tmp_path)
    (tmp_path / "shards" / "mine.tar").touch()
    assert not is_begun(tmp_path)
