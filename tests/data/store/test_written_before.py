"""Stores and unfinished imports whose bytes an older version wrote (before the room for files):
they open and go on."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fulcrum.data.buckets import open_pictures
from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.importing import Options
from fulcrum.data.stores.picture_store import read_about
from fulcrum.data.stores.verify import check
from fulcrum.files.sealed import sha256_bytes

HERE = Path(__file__).parent / "written_before"
OPTIONS = Options(
    size=16, buckets=True, bad="quarantine", encoding="raw", hold_out=0.2, shard=2, enlarge=True
)  # as it was made


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_an_old_store_opens_and_keeps_its_names():
    report = check(HERE / "store")
    assert report["sound"] and report["samples"] == 5
    assert report["content"] == "84cf58c65ce129d5558d2164f095589ea851a16326018cc014743c2cdffcd802"
    source = open_pictures(str(HERE / "store"), "train", 16, None, 2, 8)
    assert (
        source.fingerprint() == "599ca59c334298eb77452778cf6dba5c0f69c76596f0c6c474edfe3af79b7baf"
    )
    images = source.read(np.arange(len(source))).images
    assert (
        sha256_bytes(images.tobytes())
        == "824836b1265b57925cfd70506f9d42d66bbab3073f9158ea2fca7350ef48d086"
    )


@pytest.mark.parametrize("begun", [False, True])
def test_the_same_pictures_are_imported_to_the_same_bytes(tmp_path, begun):
    """Anew, and from where an older version was stopped after two shards."""
    if begun:
        shutil.copytree(HERE / "unfinished", tmp_path / "store.partial")
        (tmp_path / "store.partial" / "shards").mkdir()
        for shard in sorted((HERE / "store" / "shards").iterdir())[:2]:
            shutil.copy(shard, tmp_path / "store.partial" / "shards")
    messages = []
    run_import(open_given(str(HERE / "given")), tmp_path / "store", OPTIONS, messages.append)
    assert any("going on after 4 samples" in message for message in messages) == begun
    assert tree(tmp_path / "store") == tree(HERE / "store")
    assert read_about(tmp_path / "store") == read_about(HERE / "store")
