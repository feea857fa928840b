"""Marks prove that a folder is one folder, and are gone when they are removed."""

import os
import threading
from pathlib import Path

import pytest

from fulcrum.files.folders import Mark, leave_mark, unseen
from fulcrum.spec.errors import BadInput


def test_a_mark_stands_where_it_was_left_and_nowhere_else(tmp_path: Path) -> None:
    # new, there already, and above
    for folder in (tmp_path / "deep" / "new", tmp_path / "deep" / "new", tmp_path):
        mark = leave_mark(folder)
        assert mark.stands_in(folder) and not mark.stands_in(tmp_path / "deep")
        assert not mark._replace(word=mark.word[:-1]).stands_in(folder) and not Mark(
            ".none", "x"
        ).stands_in(folder)
        mark.remove(folder)
        assert not mark.stands_in(folder)
        mark.remove(folder)  # another may have done it
    assert os.listdir(tmp_path / "deep" / "new") == []


def test_a_file_in_the_folders_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(BadInput, match="cannot write to .*file: ") as error:
        leave_mark(tmp_path / "file")
    assert (
        error.value.hint == "choose another place with --out"
        and (tmp_path / "file").read_text() == "precious"
    )


def test_marks_that_come_late_are_waited_for(tmp_path: Path) -> None:
    marks = [leave_mark(tmp_path), Mark(".late", "word"), Mark(".never", "word")]
    assert (
        unseen(tmp_path, marks, patience=0.0) == [1, 2]
        and unseen(tmp_path, marks[:1], patience=0.0) == []
    )
    late = threading.Timer(0.2, lambda: (tmp_path / ".late").write_text("word"))
    late.start()
    assert unseen(tmp_path, marks[:2], patience=30.0) == []
    late.join()
    assert unseen(tmp_path, marks, patience=0.2) == [2]
