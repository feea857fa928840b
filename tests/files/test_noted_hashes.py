"""Hashes of large files are noted, and a note is believed only of a file that has not changed."""

import os
from pathlib import Path

import pytest

from fulcrum.files import noted_hashes
from fulcrum.files.noted_hashes import RACY, file_hash
from fulcrum.files.sealed import sha256_file


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read, with a limit of ten bytes and a cache of their own."""
    seen: list[Path] = []

    def hashed(path: Path) -> str:
        seen.append(path)
        return sha256_file(path)

    monkeypatch.setattr(noted_hashes, "sha256_file", hashed)
    monkeypatch.setattr(noted_hashes, "SMALL", 10)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return seen


def written(path: Path, data: bytes, age: float = 100.0) -> Path:
    path.write_bytes(data)
    os.utime(path, (1e9, 1e9 - age))
    return path


@pytest.mark.parametrize(
    ("size", "age", "noted"),
    [(10, 100.0, True), (9, 100.0, False), (10, RACY, False), (10, 2.5, True)],
)
def test_only_a_large_file_that_is_not_young_is_noted(
    tmp_path: Path,
    read: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    age: float,
    noted: bool,
) -> None:
    monkeypatch.setattr(noted_hashes.time, "time", lambda: 1e9)
    path = written(tmp_path / "weights", b"x" * size, age)
    assert file_hash(path) == file_hash(path) == sha256_file(path)
    assert len(read) == (1 if noted else 2)


def test_another_time_size_or_place_is_another_file(tmp_path: Path, read: list[Path]) -> None:
    path = written(tmp_path / "weights", b"x" * 20)
    first = file_hash(path)
    assert file_hash(written(path, b"y" * 20, age=200.0)) != first
    assert file_hash(written(path, b"x" * 21)) != first
    assert file_hash(written(tmp_path / "other", b"x" * 20)) == first
    assert len(read) == 4


def test_a_change_whose_time_was_put_back_is_found(tmp_path: Path, read: list[Path]) -> None:
    path = written(tmp_path / "weights", b"x" * 20)
    first = file_hash(path)
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:  # many kernels count in steps of 1 to 10 ms
        written(path, b"y" * 20)
    assert file_hash(path) == sha256_file(path) != first


def test_a_damaged_note_or_a_home_that_cannot_be_written_costs_time_alone(
    tmp_path: Path, read: list[Path]
) -> None:
    path = written(tmp_path / "weights", b"x" * 20)
    first = file_hash(path)
    (note,) = (tmp_path / "cache" / "fulcrum" / "hashes").iterdir()
    for text in ("[", '{"sha256": "0"}', '{"file": 1, "sha256": "0"}'):
        note.write_text(text)
        assert file_hash(path) == first
    note.unlink()
    note.parent.rmdir()
    note.parent.write_text("a file in the folder's place")
    assert file_hash(path) == file_hash(path) == first and len(read) == 6
