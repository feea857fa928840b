"""Standard output that is closed, full or no longer read: no traceback, and an exit code that
tells."""

import os
import subprocess
import sys

import pytest

from fulcrum.cli import _flushed

pytestmark = pytest.mark.long

FULCRUM = f"{sys.executable} -m fulcrum"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("words", ["levers", "levers --json"])
def test_a_reader_that_goes_away_ends_the_command_quietly(words: str) -> None:
    done = shell(f"{FULCRUM} {words} | :; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == "141\n" and done.stderr == ""


@pytest.mark.parametrize("words", ["levers", "levers --json", "levers show muon"])
def test_a_full_disk_behind_standard_output_is_said_on_the_other(words: str) -> None:
    done = shell(f"{FULCRUM} {words} > /dev/full")
    assert done.returncode == 1 and "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_an_error_that_cannot_be_told_as_json_is_told_as_text() -> None:
    done = shell(f"{FULCRUM} levers show nobody --json > /dev/full")
    assert (
        done.returncode == 2
        and "no lever is called 'nobody'" in done.stderr
        and "Traceback" not in done.stderr
    )


@pytest.mark.parametrize(
    "line, code",
    [
        ("levers >&-", 0),
        ("levers show nobody 2>&-", 2),
        ("levers show nobody 2>/dev/full", 2),
        ("levers show nobody >&- 2>&-", 2),
    ],
)
def test_a_closed_stream_changes_no_exit_code(line: str, code: int) -> None:
    done = shell(f"{FULCRUM} {line}")
    assert done.returncode == code and "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize("before, unread, full", [(0, 141, 1), (2, 2, 2)])
def test_output_that_is_only_written_at_the_end_tells_too(
    before: int, unread: int, full: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for stream, code in (
        (os.fdopen(writer, "w"), unread),
        (os.fdopen(os.open("/dev/full", os.O_WRONLY), "w"), full),
    ):
        stream.write("waits in a buffer")
        monkeypatch.setattr(sys, "stdout", stream)
        assert _flushed(before) == code
        stream.close()  # Python does so once more, and must not fail
