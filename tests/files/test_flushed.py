"""What is renamed into place is on the disk before: files, then their folder, then the name, then
the folder above it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fulcrum.files.atomic import atomic_file, folder_atomic, rename_folder, write_atomic, write_json

Events = list[tuple[str, str, int]]  # what was done, with what path, and its size then


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    """Every flush and rename of this process, in their order, with the path that the flushed file
    had then."""
    events: Events = []

    def watching(name: str) -> Callable[..., None]:
        real = getattr(os, name)

        def call(*given: object, **options: object) -> None:
            first = given[0]
            path = (
                os.readlink(f"/proc/self/fd/{first}")
                if isinstance(first, int)
                else os.fspath(first)
            )  # type: ignore[call-overload]
            events.append((name, str(path), os.stat(path).st_size))
            real(*given, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("fsync", "fdatasync", "rename", "replace"):
            patch.setattr(os, name, watching(name))
        yield events


def flushed(events: Events) -> list[tuple[str, int]]:
    return [(path, size) for name, path, size in events if name in ("fsync", "fdatasync")]


def moved(events: Events) -> list[str]:
    return [path for name, path, _ in events if name in ("rename", "replace")]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_atomic(path, b"x" * 5000),
        lambda path: write_atomic(path, "x" * 5000),
        lambda path: write_json(path, "x" * 4998),
    ],
)
def test_a_file_is_flushed_whole_before_it_gets_its_name_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    with recorded(monkeypatch) as events:
        write(tmp_path / "mine")
    (aside,) = moved(events)
    assert [name for name, _, _ in events] == ["fsync", "replace", "fsync"]
    assert flushed(events) == [(aside, 5000), (str(tmp_path), os.stat(tmp_path).st_size)]


def test_what_a_block_has_written_is_in_the_file_when_it_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded(monkeypatch) as events, atomic_file(tmp_path / "mine") as stream:
        stream.write(b"a" * 10)  # far below what a stream keeps for itself
    assert flushed(events)[0][1] == 10


def test_a_folder_is_flushed_with_all_that_it_holds_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recorded(monkeypatch) as events, folder_atomic(tmp_path / "final") as aside:
        (aside / "inner").mkdir()
        for name in ("a", "inner/b"):
            (aside / name).write_bytes(b"x" * 100)
    order = [(name, os.path.relpath(path, aside)) for name, path, _ in events]
    assert order[-2:] == [("rename", "."), ("fsync", "..")]
    before = [path for name, path in order[:-2] if name == "fsync"]
    assert set(before) == {"a", "inner/b", "inner", "."} and before.index("inner/b") < before.index(
        "inner"
    )
    assert before[-1] == "."


def test_a_folder_that_was_filled_before_is_flushed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "a").write_bytes(b"x")
    with recorded(monkeypatch) as events:
        rename_folder(tmp_path / "made", tmp_path / "final")
    order = [(name, os.path.relpath(path, tmp_path)) for name, path, _ in events]
    assert order == [("fsync", "made/a"), ("fsync", "made"), ("rename", "made"), ("fsync", ".")]
