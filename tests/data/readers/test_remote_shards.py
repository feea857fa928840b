"""Remote shards: imported as local ones are; what cannot be fetched is no bad sample."""

import json
import shutil
import sys

import fsspec
import pytest

from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.importing import Options
from fulcrum.data.stores.picture_store import LEDGER, read_about
from fulcrum.files.remote import RemoteCache
from fulcrum.spec.errors import BadInput, RunFailed


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield lambda path, data: system.pipe(path, data)
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_remote_shards_are_imported_as_local_ones_are(make, site, memory, tmp_path):
    for number in range(3):
        name = f"{number:05d}.tar"
        data = make.tar(
            tmp_path / name, make.img2dataset(range(4 * number, 4 * number + 4))
        ).read_bytes()
        site.files[f"/x/{name}"] = data
        memory(f"/bucket/x/{name}", data)
    local = read_about(make.imported(tmp_path, tmp_path / "local"))["content"]
    urls = {
        "http": site.url + "/x/{00000..00002}.tar?signed=yes",
        "folder": "memory://bucket/x",
        "pattern": "memory://bucket/x/*.tar",
        "file": tmp_path.as_uri(),
    }
    for name, url in urls.items():
        reader = open_given(url, cache=RemoteCache(tmp_path / "shelf"))
        run_import(reader, tmp_path / name, Options(size=16, hold_out=0.1), lambda text: None)
        assert read_about(tmp_path / name)["content"] == local, name
    assert len(site.gets()) == 3 and len(list((tmp_path / "shelf").glob("*-*"))) == 6
    assert {
        given.name for given in open_given(urls["http"], cache=RemoteCache(tmp_path / "shelf"))
    } == {f"{number // 4:05d}.tar:{number:09d}" for number in range(12)}, "names hold no query"


def test_a_broken_connection_is_no_broken_shard(make, site, tmp_path):
    """Quarantine is for bad samples: what cannot be fetched is not lost, it is fetched the next
    time."""
    data = make.tar(tmp_path / "a.tar", make.img2dataset(range(4))).read_bytes()
    site.files = {"/a.tar": data, "/b.tar": data[: len(data) // 2]}
    site.faults = ["cut"] * 3
    options = Options(size=16, bad="quarantine", hold_out=0.0)
    for _ in range(2):
        reader = open_given(f"{site.url}/a.tar", cache=RemoteCache(tmp_path / "shelf"))
        if site.faults:
            with pytest.raises(RunFailed, match="cannot fetch"):
                run_import(reader, tmp_path / "store", options, lambda text: None)
    run_import(reader, tmp_path / "store", options, lambda text: None)
    assert json.loads((tmp_path / "store" / LEDGER).read_text())["quarantined"] == 0
    cut = list(open_given(f"{site.url}/b.tar", cache=RemoteCache(tmp_path / "shelf")))
    assert cut[-1].fault.startswith("the shard is broken: damaged or cut off"), (
        "what is cut over there is"
    )


@pytest.mark.parametrize(
    "place", ["a folder as copy", "a folder as lock", "no folder", "a copy cannot be opened"]
)
def test_a_fault_of_the_folder_of_copies_is_no_broken_shard(
    make, site, tmp_path, monkeypatch, place
):
    """Whatever the policy for bad samples: the shard is good."""
    site.files["/a.tar"] = make.tar(tmp_path / "a.tar", make.img2dataset(range(4))).read_bytes()
    url, folder = f"{site.url}/a.tar", tmp_path / "shelf"
    RemoteCache(folder).open(url).close()
    (copy,), opened = folder.glob("*-*"), type(folder).open
    # rights do not stop every user: the refusal is made here
    if place == "a copy cannot be opened":

        def refuse(path, *more, **named):
            if path == copy:
                raise PermissionError(13, "Permission denied", str(path))
            return opened(path, *more, **named)

        monkeypatch.setattr(type(folder), "open", refuse)
    else:
        copy.unlink()
    if place == "a folder as copy":
        copy.mkdir()
    elif place == "a folder as lock":
        (folder / ".locks" / copy.name[:2]).unlink()
        (folder / ".locks" / copy.name[:2]).mkdir()
    elif place == "no folder":
        shutil.rmtree(folder)
        folder.write_text("a file")
    options = Options(size=16, bad="quarantine", hold_out=0.0)
    with pytest.raises(RunFailed, match="cannot be used"):
        run_import(
            open_given(url, cache=RemoteCache(folder)),
            tmp_path / "store",
            options,
            lambda text: None,
        )
    run_import(
        open_given(url, cache=RemoteCache(tmp_path / "other")),
        tmp_path / "store",
        options,
        lambda text: None,
    )
    assert json.loads((tmp_path / "store" / LEDGER).read_text())["quarantined"] == 0


@pytest.mark.parametrize(
    "url, words, hint",
    [
        ("s3://bucket/x.tar", "s3:// needs a package", "pip install s3fs"),
        ("s0me://x.tar", "cannot look at s0me", "fsspec knows"),
        ("http://127.0.0.1/folder/", "cannot be asked what lies in", "{00000..00127}"),
        ("http://[::1/x.tar", "begins with http:// cannot be read", "IPv6"),
        ("file://[::1/x.tar", "cannot be read", "IPv6"),
        ("http://me:word@[::1/x.tar", "begins with http:// cannot be read", "IPv6"),
        ("github://x/y.tar", "cannot look at github://x/y.tar", "fsspec knows"),
        ("memory://nothing/", "no tar at", "folder of shards"),
        ("memory://x/{9..3}.tar", "names 0 files", "{00000..00127}"),
    ],
)
def test_urls_that_cannot_be_read(url, words, hint, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(BadInput, match=words) as error:
        open_given(url)
    assert hint in error.value.hint and "word@" not in error.value.message


def test_the_secret_of_a_signed_address_is_nowhere_told_or_written(
    make, site, tmp_path, capsys, monkeypatch
):
    from fulcrum.cli import main

    monkeypatch.setenv("FULCRUM_SHELF", str(tmp_path / "shelf"))
    good = make.tar(tmp_path / "a.tar", make.img2dataset(range(8))).read_bytes()
    site.files = {"/a.tar": good, "/cut.tar": good[: len(good) // 2]}
    secret = "s3cr3t" * 40
    for name in ("a.tar", "none.tar", "cut.tar", "{0..1}.tar"):
        with pytest.raises(SystemExit):
            main(
                [
                    "data",
                    "import",
                    f"{site.url}/{name}?sig={secret}&x=1",
                    str(tmp_path / f"of_{name}"),
                    "--size",
                    "16",
                ]
            )
    heard = capsys.readouterr()
    assert "s3cr3t" not in heard.out + heard.err and "kept 8" in heard.out
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (tmp_path / "of_a.tar" / "card.json") in written
    assert not [path for path in written if b"s3cr3t" in path.read_bytes() or "s3cr3t" in path.name]
