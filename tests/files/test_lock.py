"""One process at a time, whatever stands where the lock belongs."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fulcrum.files import lock
from fulcrum.files.lock import holder_of, is_held, locked
from fulcrum.spec.errors import BadInput, RunFailed

_HOLD = """
import sys
from pathlib import Path
from fulcrum.files.lock import locked
with locked(Path(sys.argv[1]), patience=0, holder="somebody"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Holds the lock until its input ends."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_is_refused_in_the_callers_words_and_let_in_when_the_first_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    with another_process(path) as process:
        assert is_held(path) and holder_of(path) == "somebody"
        with (
            pytest.raises(RunFailed) as error,
            locked(path, patience=0.2, busy="it is training", busy_hint="wait"),
        ):
            raise AssertionError
        assert (error.value.message, error.value.hint) == ("it is training", "wait")
        process.kill()
        process.wait()
        assert not is_held(path)
        with locked(path, patience=0):
            assert is_held(path)
    assert not is_held(path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("patience", [None, 30.0])
def test_who_waits_gets_it(tmp_path: Path, patience: float | None) -> None:
    path = tmp_path / "lock"
    with another_process(path) as process:
        assert process.stdin is not None
        letting_go = threading.Timer(0.3, process.stdin.close)
        letting_go.start()
        with locked(path, patience=patience):
            assert process.wait(10) == 0
        letting_go.join()


def test_nothing_in_the_lock_is_emptied_unless_a_holder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("what stood here before")
    with locked(path):
        assert path.read_text() == "what stood here before"
    with locked(path, holder="me"):
        assert path.read_text() == "me"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_plain_file_is_refused(tmp_path: Path, kind: str) -> None:
    path, theirs = tmp_path / "lock", tmp_path / "theirs"
    theirs.write_text("precious")
    {
        "link": lambda: path.symlink_to(theirs),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }[kind]()
    with (
        pytest.raises(BadInput, match="lock cannot be opened") as error,
        locked(path, kind=BadInput, holder="me"),
    ):
        raise AssertionError
    assert "remove it" in error.value.hint and theirs.read_text() == "precious"
    assert not is_held(path) and holder_of(path) is None
    with (
        pytest.raises(RunFailed, match="^cannot write the entry: ") as other,
        locked(path, unfit="cannot write the entry", unfit_hint="so"),
    ):
        raise AssertionError
    assert other.value.hint == "so"


def test_a_lock_that_is_not_to_be_made_is_not_made(tmp_path: Path) -> None:
    with (
        pytest.raises(RunFailed, match="cannot be opened"),
        locked(tmp_path / "lock", create=False),
    ):
        raise AssertionError
    assert os.listdir(tmp_path) == []


def test_a_lock_that_was_removed_while_we_waited_guards_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with another_process(path) as process:
        assert process.stdin is not None
        removal = threading.Timer(0.3, lambda: (path.unlink(), process.kill()))
        removal.start()
        with locked(path, patience=30.0):
            removal.join()
            assert is_held(path)  # of the file that stands there now


def no_locks(handle: int, operation: int) -> None:
    raise OSError(95, "Operation not supported")


def test_a_file_system_without_locks_is_tolerated_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    with (
        pytest.raises(RunFailed, match="cannot be locked: Operation not supported"),
        locked(tmp_path / "lock"),
    ):
        raise AssertionError
    with locked(tmp_path / "lock", need_locks=False, holder="me", patience=0):
        assert holder_of(tmp_path / "lock") == "me" and not is_held(tmp_path / "lock")


def test_a_lock_that_is_not_taken_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that asks again and again must not run out of them."""
    path = tmp_path / "lock"
    opened = set(os.listdir("/proc/self/fd"))
    with locked(path):
        held = set(os.listdir("/proc/self/fd"))
        with pytest.raises(RunFailed, match="another process holds"), locked(path, patience=0):
            raise AssertionError
        assert set(os.listdir("/proc/self/fd")) == held
    monkeypatch.setattr(lock.fcntl, "flock", no_locks)
    with pytest.raises(RunFailed, match="cannot be locked"), locked(path):
        raise AssertionError
    assert set(os.listdir("/proc/self/fd")) == opened


def test_an_error_inside_is_not_taken_for_one_of_the_lock_and_lets_go(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), locked(tmp_path / "lock"):
        (tmp_path / "missing").read_text()
    assert not is_held(tmp_path / "lock")


def test_no_patience_is_no_wait(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        began = time.monotonic()
        with (
            pytest.raises(RunFailed, match="another process holds"),
            locked(tmp_path / "lock", patience=0),
        ):
            raise AssertionError
        assert time.monotonic() - began < 5
