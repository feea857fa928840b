"""Only plain files are opened, whatever stands at a path."""

import os
from pathlib import Path

import pytest

from fulcrum.files.paths import at_home, open_regular, read_regular
from fulcrum.spec.errors import BadInput


def stand(path: Path, kind: str) -> None:
    """Put something at a path that is no plain file."""
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        os.mknod(path, 0o140644)
    else:
        (path.parent / "theirs").write_text("precious")
        path.symlink_to(path.parent / "theirs")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND])
@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link", "a socket"])
def test_what_is_no_plain_file_is_named(tmp_path: Path, kind: str, flags: int) -> None:
    stand(tmp_path / "x", kind)
    with pytest.raises(OSError) as error:
        open_regular(tmp_path / "x", flags)
    assert kind in str(error.value.strerror) or (
        kind == "a folder" and isinstance(error.value, IsADirectoryError)
    )


def test_a_device_is_named() -> None:
    with pytest.raises(OSError, match="a device"):
        open_regular(Path(os.devnull))


def test_nothing_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(ValueError):
        open_regular(tmp_path / "x", os.O_WRONLY | os.O_TRUNC)
    os.close(open_regular(tmp_path / "x", os.O_RDWR | os.O_CREAT))
    assert (tmp_path / "x").read_text() == "old"


def test_reading_follows_a_link_unless_told_not_to(tmp_path: Path) -> None:
    stand(tmp_path / "x", "a link")
    assert read_regular(tmp_path / "x") == b"precious"
    with pytest.raises(OSError, match="a link"):
        read_regular(tmp_path / "x", follow=False)


@pytest.mark.timeout(20)
def test_a_link_to_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "x").symlink_to(tmp_path / "pipe")
    with pytest.raises(OSError, match="a pipe"):
        read_regular(tmp_path / "x")


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_regular(tmp_path / "x", limit=5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(tmp_path / "x", limit=4)


def test_a_home_that_nobody_has_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert at_home("~/x") == tmp_path / "x" and at_home(Path("x~")) == Path("x~")
    with pytest.raises(BadInput, match="begins with a home that nobody here has"):
        at_home("~nobody-of-this-name/x")
