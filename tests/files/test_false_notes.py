"""Notes of hashes that are false: gone when they are found, and never believed where a hash is
pinned."""

import json
import os

import pytest

from fulcrum.files import noted_hashes
from fulcrum.files.noted_hashes import file_hash
from fulcrum.files.sealed import sha256_file
from fulcrum.networks.pretrained.folder import check
from fulcrum.spec.errors import BadInput, RunFailed


@pytest.fixture
def notes(tmp_path, monkeypatch):
    monkeypatch.setattr(noted_hashes, "SMALL", 10)
    monkeypatch.setattr(noted_hashes, "_read_here", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fulcrum" / "hashes"


def write(path, data, time):
    """As a bit that turns on a disk does: size and time stay."""
    path.write_bytes(data)
    os.utime(path, (time, time))
    return path


def plant(notes, path, content="0" * 64):
    """A false note in the place of the true one."""
    os.utime(path, (1e9, 1e9))
    file_hash(path)
    (note,) = notes.iterdir()
    note.write_text(json.dumps({**json.loads(note.read_text()), "sha256": content}))
    return note


def test_a_changed_file_does_not_pass_its_pinned_hash(tmp_path, notes):
    path = write(tmp_path / "weights.pth", b"x" * 20, 1e9)
    pinned = sha256_file(path)
    check(path, pinned, "stlpips-pytorch")
    file_hash(path)  # noted by whoever asked
    write(path, b"x" * 19 + b"y", 1e9)
    with pytest.raises(BadInput, match="not the file that is known"):
        check(path, pinned, "stlpips-pytorch")


def test_a_pinned_file_is_read_once_by_a_process(tmp_path, notes, monkeypatch):
    path, read = write(tmp_path / "weights.pth", b"x" * 20, 1e9), []
    monkeypatch.setattr(
        noted_hashes, "sha256_file", lambda path: read.append(path) or sha256_file(path)
    )
    now = noted_hashes.time.time()
    monkeypatch.setattr(noted_hashes.time, "time", lambda: now + 100)
    for _ in range(3):
        check(path, sha256_file(path), "stlpips-pytorch")
    assert len(read) == 1


def test_a_false_note_stops_one_start_and_no_more_also_where_the_files_time_lies_ahead(
    tmp_path, notes, monkeypatch
):
    path = write(tmp_path / "weights", b"x" * 20, 1e9)
    plant(notes, path)
    # nothing is noted of a file from the future
    monkeypatch.setattr(noted_hashes.time, "time", lambda: 1e9 - 1000)
    assert file_hash(path) == "0" * 64
    with pytest.raises(RunFailed, match="has changed") as told:
        file_hash(path, fresh=True)
    assert "start the same command again" in told.value.hint and not list(notes.iterdir())
    assert file_hash(path, fresh=True) == file_hash(path) == sha256_file(path)


def test_a_false_note_that_cannot_be_removed_is_named(tmp_path, notes, monkeypatch):
    path = write(tmp_path / "weights", b"x" * 20, 1e9)
    note = plant(notes, path)

    def refuse(*_, **__):
        raise PermissionError("read only")

    monkeypatch.setattr(type(note), "unlink", refuse)
    monkeypatch.setattr(noted_hashes, "write_json", refuse)
    with pytest.raises(RunFailed) as told:
        file_hash(path, fresh=True)
    assert f"remove {note}" in told.value.hint
