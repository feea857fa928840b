"""Files and folders appear whole or not at all, and what a killed writer left can be told from what
is being written."""

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fulcrum.files import atomic
from fulcrum.files.atomic import (
    atomic_file,
    atomic_path,
    folder_atomic,
    is_aside,
    remove_at_once,
    sweep,
    write_atomic,
    write_json,
    write_new,
)


def test_bytes_and_text_arrive_as_they_are(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"\x00\xff")
    write_atomic(tmp_path / "b", "zwölf\r\n", flush=False)
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
    assert (tmp_path / "b").read_bytes() == "zwölf\r\n".encode()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_json_is_spelt_as_it_always_was(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"b": [1.5, None], "a": "ö"})
    assert (tmp_path / "x.json").read_text() == json.dumps(
        {"b": [1.5, None], "a": "ö"}, indent=1, sort_keys=True
    )


def test_what_is_no_json_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1} and os.listdir(tmp_path) == [
        "x.json"
    ]


def test_a_link_is_replaced_and_what_it_names_is_kept(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("precious")
    (tmp_path / "x").symlink_to(tmp_path / "theirs")
    write_atomic(tmp_path / "x", "new")
    assert (tmp_path / "theirs").read_text() == "precious"
    assert not (tmp_path / "x").is_symlink() and (tmp_path / "x").read_text() == "new"


def test_a_link_where_something_is_written_aside_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name cannot be guessed; here it is known."""
    (tmp_path / "theirs").write_text("precious")
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda size: "0" * 8)
    aside = tmp_path / f".x.{os.getpid()}-00000000.writing"
    for stands in (
        lambda: aside.symlink_to(tmp_path / "theirs"),
        lambda: aside.write_text("another's"),
    ):
        stands()
        with pytest.raises(FileExistsError):
            write_atomic(tmp_path / "x", "new")
        assert (
            (tmp_path / "theirs").read_text() == "precious"
            and os.path.lexists(aside)
            and not (tmp_path / "x").exists()
        )
        aside.unlink()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(error), atomic_file(tmp_path / "x") as stream:
        stream.write(b"half")
        raise error
    assert (tmp_path / "x").read_text() == "old" and os.listdir(tmp_path) == ["x"]


def test_a_disk_that_fails_after_the_rename_is_told_and_the_new_file_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(handle)

    (tmp_path / "x").write_text("old")
    monkeypatch.setattr(atomic.os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error") as error:
        write_atomic(tmp_path / "x", "new")
    assert error.value.filename == str(tmp_path / "x") and (tmp_path / "x").read_text() == "new"


def test_a_folder_in_the_files_place_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "x" / "inside").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / "x", "new")
    assert os.listdir(tmp_path) == ["x"] and (tmp_path / "x" / "inside").is_dir()


def test_what_a_library_wrote_for_itself_alone_gets_the_usual_mode(tmp_path: Path) -> None:
    """safetensors 0.8 puts a file of its own there, with mode 600."""
    (tmp_path / "usual").write_bytes(b"")
    usual = stat.S_IMODE((tmp_path / "usual").stat().st_mode)
    with atomic_path(tmp_path / "x") as aside:
        aside.unlink()
        aside.touch(0o600)
    with folder_atomic(tmp_path / "folder") as aside:
        (aside / "below").mkdir()
        (aside / "below" / "y").touch(0o600)
    for name in ("x", "folder/below/y"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == usual


def test_a_new_file_takes_no_others_place(tmp_path: Path) -> None:
    written = [write_new(tmp_path / "a.b.png", data) for data in (b"1", b"2", b"3")]
    assert [path.name for path in written] == ["a.b.png", "a.b-2.png", "a.b-3.png"]
    assert [path.read_bytes() for path in written] == [b"1", b"2", b"3"]
    (tmp_path / "link.png").symlink_to(tmp_path / "nowhere")
    assert (
        write_new(tmp_path / "link.png", b"4").name == "link-2.png"
        and not (tmp_path / "nowhere").exists()
    )


def test_the_mode_is_what_the_umask_leaves(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_atomic(tmp_path / "x", "new")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "usual").stat().st_mode
    )


def test_a_name_as_long_as_the_disk_takes_can_be_written(tmp_path: Path) -> None:
    write_atomic(tmp_path / ("ö" * 127), "new")
    assert (tmp_path / ("ö" * 127)).read_text() == "new"


def test_a_library_may_write_to_the_path(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "x.safetensors") as aside:
        assert (
            is_aside(aside)
            and aside.parent == tmp_path
            and not (tmp_path / "x.safetensors").exists()
        )
        # a listing of finished files passes over it
        assert not list(tmp_path.glob("*.safetensors"))
        aside.write_bytes(b"whole")
    assert (tmp_path / "x.safetensors").read_bytes() == b"whole" and os.listdir(tmp_path) == [
        "x.safetensors"
    ]


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    with folder_atomic(tmp_path / "deep" / "entry") as aside:
        (aside / "sub").mkdir()
        (aside / "sub" / "x").write_text("1")
        assert not (tmp_path / "deep" / "entry").exists()
    assert (tmp_path / "deep" / "entry" / "sub" / "x").read_text() == "1" and os.listdir(
        tmp_path / "deep"
    ) == ["entry"]


def test_a_folder_below_a_link_is_written_to_what_the_link_names(tmp_path: Path) -> None:
    """A cache on another disk: what stands above the target is the user's business, the target
    itself is ours."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    write_atomic(tmp_path / "link" / "file", b"1")
    with folder_atomic(tmp_path / "link" / "folder") as aside:
        (aside / "inside").write_bytes(b"2")
    assert (tmp_path / "disk/file").read_bytes() == b"1" and (
        tmp_path / "disk/folder/inside"
    ).read_bytes() == b"2"


def test_a_folder_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError), folder_atomic(tmp_path / "entry") as aside:
        (aside / "x").write_text("1")
        raise ValueError
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry" / "old").touch()
    with pytest.raises(OSError), folder_atomic(tmp_path / "entry"):
        pass
    assert os.listdir(tmp_path / "entry") == ["old"] and os.listdir(tmp_path) == ["entry"]
    with folder_atomic(tmp_path / "entry", replace=True) as aside:
        (aside / "new").touch()
    assert os.listdir(tmp_path / "entry") == ["new"] and os.listdir(tmp_path) == ["entry"]


def test_a_folder_that_cannot_be_replaced_comes_back(tmp_path: Path) -> None:
    (tmp_path / "entry").mkdir()
    (tmp_path / "entry" / "old").touch()
    with pytest.raises(FileNotFoundError), folder_atomic(tmp_path / "entry", replace=True) as aside:
        aside.rmdir()
    assert os.listdir(tmp_path / "entry") == ["old"] and os.listdir(tmp_path) == ["entry"]


def test_a_link_in_the_folders_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "precious").touch()
    (tmp_path / "entry").symlink_to(tmp_path / "theirs")
    with folder_atomic(tmp_path / "entry", replace=True) as aside:
        (aside / "new").touch()
    assert os.listdir(tmp_path / "theirs") == ["precious"]
    assert not (tmp_path / "entry").is_symlink() and os.listdir(tmp_path / "entry") == ["new"]


_KILLED = """
import os, sys
from pathlib import Path
from fulcrum.files.atomic import atomic_file, folder_atomic
there = Path(sys.argv[1])
with folder_atomic(there / "entry") as aside, atomic_file(there / "x") as stream:
    (aside / "half").touch()
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_writer_left_is_swept_and_what_is_being_written_is_not(
    tmp_path: Path,
) -> None:
    subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    left = sorted(tmp_path.iterdir())
    assert len(left) == 2 and all(map(is_aside, left))
    (tmp_path / ".hidden.writing").touch()
    with folder_atomic(tmp_path / "mine") as aside, pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "remove", lambda path: None)
        # for whoever holds the folder
        assert sorted(sweep(tmp_path, fresh=0.0)) == left and aside.is_dir()
    assert sweep(tmp_path) == []  # too fresh: another process may just have begun it
    past = time.time() - 2 * atomic.FRESH
    with folder_atomic(tmp_path / "other") as aside, atomic_file(tmp_path / "y"):
        for path in tmp_path.iterdir():
            os.utime(path, (past, past))
        assert sorted(sweep(tmp_path)) == left
        assert aside.is_dir()
    assert sorted(os.listdir(tmp_path)) == [".hidden.writing", "mine", "other", "y"]


def test_what_is_called_as_if_it_was_being_written_and_cannot_be_opened_stays(
    tmp_path: Path,
) -> None:
    """A link, and a socket, which nobody can lock."""
    (tmp_path / "theirs").touch()
    (tmp_path / ".x.1-0123abcd.writing").symlink_to(tmp_path / "theirs")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / ".y.1-0123abcd.writing"))
        assert sweep(tmp_path, fresh=0.0) == []
    assert len(os.listdir(tmp_path)) == 3


def test_a_folder_goes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed on the way, nothing of it stands under its name."""
    (tmp_path / "run" / "deep").mkdir(parents=True)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(atomic, "remove", killed)
        remove_at_once(tmp_path / "run")
    (left,) = tmp_path.iterdir()
    assert is_aside(left) and sweep(tmp_path, fresh=0.0) == [left] and not list(tmp_path.iterdir())
