"""What is damaged is set aside beside what was set aside before: nothing of it is ever
destroyed."""

import os
from pathlib import Path

from fulcrum.files.paths import set_aside


def test_what_is_damaged_again_gets_a_name_of_its_own(tmp_path: Path) -> None:
    for content, name in (
        ("first", "damaged-x"),
        ("second", "damaged-2-x"),
        ("third", "damaged-3-x"),
    ):
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "state.json").write_text(content)
        assert set_aside(tmp_path / "x") == tmp_path / name
    contents = [
        (tmp_path / name / "state.json").read_text()
        for name in ("damaged-x", "damaged-2-x", "damaged-3-x")
    ]
    assert contents == ["first", "second", "third"]


def test_links_and_pipes_are_moved_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "precious").touch()
    (tmp_path / "x").symlink_to(tmp_path / "theirs")
    assert set_aside(tmp_path / "x").is_symlink()
    # leads nowhere, and is there all the same
    (tmp_path / "damaged-2-x").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "x")
    assert (
        set_aside(tmp_path / "x") == tmp_path / "damaged-3-x"
        and (tmp_path / "damaged-3-x").is_fifo()
    )
    assert (tmp_path / "damaged-2-x").is_symlink() and (tmp_path / "theirs" / "precious").exists()
