"""A checkpoint that has its name is on the disk with all its files: a power cut cannot leave a name
without its content."""

import os

import pytest

from fulcrum.spec.edit import key
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform


@pytest.fixture
def events(monkeypatch):
    """Flushes and renames of this process in their order: what was done, inode and size of what it
    was done to."""
    done = []

    def watch(name):
        real = getattr(os, name)

        def call(target, *given, **options):
            about = os.stat(target)
            result = real(target, *given, **options)
            done.append((name, about.st_ino, about.st_size))
            return result

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "fdatasync", "rename", "replace"):
        watch(name)
    return done


def last(events, kinds, inode, size=None):
    """Number of the last such event, -1 if there is none; inodes are given again, so earlier ones
    tell nothing."""
    return max(
        (
            n
            for n, (kind, ino, then) in enumerate(events)
            if kind in kinds and ino == inode and size in (None, then)
        ),
        default=-1,
    )


def test_files_then_folder_then_name_then_the_folder_above(events, tiny, tmp_path):
    run = tiny()
    perform(Order(run, 0, "spark", tmp_path, System(), quiet=True), lambda text: None)
    saved = checkpoint.listing(RunFolder(tmp_path / key(run, 0)).checkpoints)
    assert saved
    flushes, renames = ("fsync", "fdatasync"), ("rename", "replace")
    for folder in saved:
        named = last(events, renames, folder.stat().st_ino)
        assert named >= 0, "it gets its name by a rename"
        for path in (folder, *folder.rglob("*")):
            about = path.stat()
            flushed = last(events, flushes, about.st_ino, None if path.is_dir() else about.st_size)
            assert 0 <= flushed < named, f"{path.name} was not flushed before"
        assert last(events, flushes, folder.parent.stat().st_ino) > named, (
            "its name was not flushed"
        )
    result = (tmp_path / key(run, 0) / "result.json").stat()
    assert (
        0
        <= last(events, flushes, result.st_ino, result.st_size)
        < last(events, renames, result.st_ino)
    )
