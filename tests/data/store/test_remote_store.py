"""Stores behind a URL: the same samples, fetched shard by shard under a limit; nothing but what was
imported is taken."""

import json
import shutil

import numpy as np
import pytest

from fulcrum.data.captions import Chooser
from fulcrum.data.fillers import Folder
from fulcrum.data.stores import picture_store as remote_store
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.files.paths import Damaged
from fulcrum.spec.errors import BadInput, RunFailed


@pytest.fixture
def far(site, store, tmp_path, monkeypatch):
    """The store on a web server, and an empty shelf."""
    monkeypatch.setenv("FULCRUM_SHELF", str(tmp_path / "shelf"))
    remote_store._copied.cache_clear()
    for path in store.rglob("*"):
        if path.is_file():
            site.files[f"/own/{path.relative_to(store).as_posix()}"] = path.read_bytes()
    yield f"{site.url}/own"
    remote_store._copied.cache_clear()


def shards(site):
    return [path for path in site.gets() if "/shards/" in path]


def test_the_same_samples_and_the_same_key(far, store, site):
    here, there = FolderSource(store), FolderSource(far)
    assert there.fingerprint() == here.fingerprint() and shards(site) == []
    assert Folder(path=far).hashes() == Folder(path=str(store)).hashes()
    ids = np.arange(len(here))
    assert np.array_equal(there.read(ids).images, here.read(ids).images)
    assert there.prompts(Chooser(), ids) == here.prompts(Chooser(), ids)
    assert len(shards(site)) == 3, "each shard once"
    remote_store._copied.cache_clear()
    assert np.array_equal(FolderSource(far).read(ids[:3]).images, here.read(ids[:3]).images)
    assert len(shards(site)) == 3 and sum("samples.bin" in path for path in site.gets()) == 1, (
        "copies are used again"
    )
    assert len(FolderSource(far, "validation")) == 4


def test_other_processes_read_it_too(far, store, elsewhere):
    for first in (0, 8, 16):
        ids = np.arange(first, first + 8)
        assert np.array_equal(
            elsewhere(FolderSource(far).read, ids).images, FolderSource(store).read(ids).images
        )


def test_the_limit_holds_while_every_picture_is_read(far, store, site, tmp_path, monkeypatch):
    largest = max(path.stat().st_size for path in (store / "shards").iterdir())
    monkeypatch.setenv("FULCRUM_SHELF_GB", str(1.5 * largest / 1e9))
    source, here = FolderSource(far), FolderSource(store)
    for one in range(len(source)):
        assert np.array_equal(
            source.read(np.array([one])).images, here.read(np.array([one])).images
        )
        assert (
            sum(path.stat().st_size for path in (tmp_path / "shelf").glob("*-*")) <= 1.5 * largest
        )
    assert len(shards(site)) == 3, "in the order of the store no shard is fetched twice"


def test_what_was_changed_over_there_is_refused(far, site, monkeypatch):
    name = next(path for path in site.files if path.endswith(".tar"))
    data = bytearray(site.files[name])
    data[700] ^= 1
    site.files[name] = bytes(data)
    source = FolderSource(far)
    with pytest.raises(RunFailed, match="checksum"):
        source.read(np.arange(len(source)))
    remote_store._copied.cache_clear()
    site.files["/own/store.json"] = site.files["/own/store.json"].replace(
        b'"count": 40', b'"count": 41'
    )
    with pytest.raises(Damaged, match="changed after"):
        FolderSource(far)
    remote_store._copied.cache_clear()
    site.files["/own/store.json"] = b"{}"
    with pytest.raises(BadInput, match="not what an import writes"):
        FolderSource(far)


def test_a_damaged_copy_is_made_again(far, tmp_path):
    FolderSource(far)
    table = next((tmp_path / "shelf-stores").glob("*/samples.bin"))
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    remote_store._copied.cache_clear()
    assert len(FolderSource(far)) == 32


def test_a_folder_from_elsewhere_makes_nobody_ask_a_server(far, store, site, tmp_path):
    copy = shutil.copytree(store, tmp_path / "copy")
    (copy / remote_store.ORIGIN).write_text(json.dumps({"url": far}))
    shutil.rmtree(copy / "shards")
    with pytest.raises(Damaged, match="cannot be opened"):
        FolderSource(copy).read(np.arange(2))
    assert site.asked == []


def test_nothing_there(far, site):
    with pytest.raises(BadInput, match="no imported data set at .*404"):
        FolderSource(f"{site.url}/nothing")
