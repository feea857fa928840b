"""Remote shards: fetched whole, compared, limited in size; killed downloads leave nothing; missing
packages are named."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

import fsspec
import numpy as np
import pytest

from fulcrum.files import remote as remote_cache
from fulcrum.files.atomic import is_aside
from fulcrum.files.remote import RemoteCache, reason_of
from fulcrum.spec.errors import BadInput, RunFailed


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    yield lambda path, data: system.pipe(path, data)
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def noise(number, size=5000):
    return np.random.default_rng(number).bytes(size)


def copies(folder):
    """All that is in the folder, but for the folder of locks."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".locks")


def paths(folder):
    return [folder / name for name in copies(folder)]


def read(held, url, **known):
    with held.open(url, **known) as stream:
        return stream.read()


def test_a_copy_is_fetched_once_and_again_when_the_file_changes(site, tmp_path):
    site.files["/a.tar"] = noise(0)
    held = RemoteCache(tmp_path)
    assert (
        read(held, f"{site.url}/a.tar")
        == read(RemoteCache(tmp_path), f"{site.url}/a.tar")
        == noise(0)
    )
    assert site.gets() == ["/a.tar"], "the second time only its tag was asked for"
    site.files["/a.tar"] = noise(1)
    assert read(held, f"{site.url}/a.tar") == noise(1) and len(site.gets()) == 2
    assert all(
        name.endswith((hashlib.sha256(noise(0)).hexdigest(), hashlib.sha256(noise(1)).hexdigest()))
        for name in copies(tmp_path)
    )


def test_a_file_without_tag_or_time_is_fetched_each_time(site, tmp_path):
    """A copy of the same size could be an old one."""
    site.faults = ["no tag"]
    for number in (0, 1):
        site.files["/a.tar"] = noise(number)
        assert read(RemoteCache(tmp_path), f"{site.url}/a.tar") == noise(number)
    assert len(copies(tmp_path)) == 1


def test_a_flipped_bit_in_a_copy_is_found_and_it_is_fetched_again(site, tmp_path):
    site.files["/a.tar"], lines = noise(0), []
    held = RemoteCache(tmp_path, say=lines.append)
    read(held, f"{site.url}/a.tar")
    (path,) = paths(tmp_path)
    data = bytearray(path.read_bytes())
    data[77] ^= 4
    path.write_bytes(data)
    assert (
        read(held, f"{site.url}/a.tar") == noise(0)
        and "a bit has changed" in lines[0]
        and len(site.gets()) == 2
    )


@pytest.mark.parametrize(
    "faults, words",
    [
        (["cut", "busy"], ""),
        (["cut"] * 3, "2,500 of 5,000 bytes came"),
        (["busy"] * 3, "503"),
        (["no head"], ""),
        (["no length", "no length"], ""),
    ],
)
def test_what_is_not_whole_is_never_taken(site, tmp_path, faults, words):
    site.files["/a.tar"], lines = noise(0), []
    site.faults = list(faults)
    held = RemoteCache(tmp_path, say=lines.append)
    if not words:
        assert read(held, f"{site.url}/a.tar") == noise(0)
        assert sum("trying again" in line for line in lines) == faults.count("cut") + faults.count(
            "busy"
        )
        return
    with pytest.raises(RunFailed, match=words) as error:
        read(held, f"{site.url}/a.tar")
    assert copies(tmp_path) == [] and "goes on" in error.value.hint


def test_a_file_that_is_not_there_is_said_at_once_without_its_secrets(site, tmp_path):
    url = f"{site.url}/no.tar?token=secret"
    with pytest.raises(RunFailed, match="404") as error:
        read(RemoteCache(tmp_path), url)
    assert "goes on" in error.value.hint and "address right" in error.value.hint, (
        "again as it is would be of no use"
    )
    assert "secret" not in error.value.message and site.asked == [("HEAD", "/no.tar")]
    assert "secret" not in reason_of(url, OSError(f"cannot read {url}"))
    with pytest.raises(BadInput, match="seen by others") as error:
        read(RemoteCache(tmp_path), url.replace("http://", "http://me:word@"))
    assert "word@" not in error.value.message and "secret" not in error.value.message


def test_a_known_hash_is_enough_and_nothing_else_is_accepted(site, tmp_path):
    site.files["/a.tar"] = noise(0)
    sha, held = hashlib.sha256(noise(0)).hexdigest(), RemoteCache(tmp_path)
    assert read(held, f"{site.url}/a.tar", sha256=sha, size=5000) == noise(0)
    site.files.clear()
    assert read(held, f"{site.url}/elsewhere.tar", sha256=sha, size=5000) == noise(0), (
        "nobody was asked"
    )
    site.files["/b.tar"] = noise(1)
    with pytest.raises(RunFailed, match="checksum"):
        read(held, f"{site.url}/b.tar", sha256="0" * 64, size=5000)
    with pytest.raises(RunFailed, match="more than 4,000 bytes"):
        read(held, f"{site.url}/b.tar", sha256="0" * 64, size=4000)


def test_the_longest_unused_leaves_and_the_limit_holds(memory, tmp_path):
    for number in range(6):
        memory(f"/s/{number}.tar", noise(number))
    held = RemoteCache(tmp_path, limit=16e-6)  # three of five thousand bytes
    for number in (0, 1, 2):
        read(held, f"memory://s/{number}.tar")
        for path in paths(tmp_path):
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))  # time goes by
    read(held, "memory://s/0.tar")  # used again: 1 is the oldest now
    read(held, "memory://s/3.tar")
    kept = {path.name.split("-")[1] for path in paths(tmp_path)}
    assert kept == {hashlib.sha256(noise(number)).hexdigest() for number in (0, 2, 3)}
    for number in range(6):
        read(held, f"memory://s/{number}.tar")
        assert sum(path.stat().st_size for path in paths(tmp_path)) <= 16_000
    with pytest.raises(BadInput, match="5,000 bytes, more than the limit"):
        read(RemoteCache(tmp_path / "small", limit=4e-6), "memory://s/0.tar")
    for limit in (0, -1, float("nan"), float("inf"), 1e300):
        with pytest.raises(BadInput, match=f"is {limit:g} GB".replace("+", ".")):
            RemoteCache(tmp_path, limit)


def test_a_folder_that_holds_a_persons_own_files_keeps_them(memory, tmp_path):
    for number in range(2):
        memory(f"/s/{number}.tar", noise(number))
    own = [
        "thesis.txt",
        "my.writing",
        f"{'a' * 32}-notes",
        f"{'A' * 32}-{'b' * 64}",
        f"x{'a' * 32}.writing",
    ]
    for name in own:
        (tmp_path / name).write_bytes(noise(9, 20_000))
    folders = ["pictures", f"{'c' * 32}-{'d' * 64}", f"{'c' * 32}.writing"]
    for name in folders:
        (tmp_path / name).mkdir()
    held = RemoteCache(tmp_path, limit=6e-6)  # room for one copy; the others' files do not count
    for number in (0, 1):
        assert read(held, f"memory://s/{number}.tar") == noise(number)
    copy = [name for name in copies(tmp_path) if name not in own + folders]
    assert len(copy) == 1 and copy[0].endswith(hashlib.sha256(noise(1)).hexdigest())
    assert set(own + folders) < set(copies(tmp_path))


def test_a_persons_file_that_begins_as_a_copy_does_is_not_taken_for_a_damaged_one(memory, tmp_path):
    memory("/s/0.tar", noise(0))
    read(RemoteCache(tmp_path), "memory://s/0.tar")
    (copy,) = paths(tmp_path)
    key = copy.name.split("-")[0]
    copy.unlink()
    (tmp_path / f"{key}-notes").write_text("precious")
    (tmp_path / f"{key}-{'d' * 64}").mkdir()
    assert read(RemoteCache(tmp_path), "memory://s/0.tar") == noise(0)
    assert (tmp_path / f"{key}-notes").read_text() == "precious" and (
        tmp_path / f"{key}-{'d' * 64}"
    ).is_dir()


def test_copies_that_fill_the_limit_to_the_last_byte_stay(memory, tmp_path):
    held = RemoteCache(tmp_path, limit=10e-6)
    for number in range(2):
        memory(f"/s/{number}.tar", noise(number))
        read(held, f"memory://s/{number}.tar")
    assert {path.name.split("-")[1] for path in paths(tmp_path)} == {
        hashlib.sha256(noise(number)).hexdigest() for number in range(2)
    }


def test_a_folder_of_copies_that_cannot_be_made_is_told(memory, tmp_path):
    memory("/s/0.tar", noise(0))
    (tmp_path / "file").write_text("precious")
    with pytest.raises(
        RunFailed, match="the folder of copies .*file/shelf cannot be used: Not a directory"
    ) as error:
        RemoteCache(tmp_path / "file" / "shelf").open("memory://s/0.tar")
    assert "FULCRUM_SHELF" in error.value.hint and (tmp_path / "file").read_text() == "precious"


def test_an_open_copy_can_be_read_after_it_left(memory, tmp_path):
    for number in range(3):
        memory(f"/s/{number}.tar", noise(number))
    held = RemoteCache(tmp_path, limit=6e-6)
    with held.open("memory://s/0.tar") as stream:
        read(held, "memory://s/1.tar")
        assert len(copies(tmp_path)) == 1 and stream.read() == noise(0)


def test_a_copy_that_leaves_while_it_is_looked_for_is_fetched_again(site, tmp_path, monkeypatch):
    site.files["/a.tar"] = noise(0)
    gone = tmp_path / f"{'a' * 32}-{'b' * 64}"
    monkeypatch.setattr(RemoteCache, "_copies", lambda cache, key: iter([gone]))
    assert read(RemoteCache(tmp_path), f"{site.url}/a.tar") == noise(0)


def test_a_killed_download_leaves_nothing_that_lasts(site, tmp_path):
    site.files["/a.tar"], site.slow = noise(0, 4_000_000), 0.02
    code = (
        "import sys; from pathlib import Path; from fulcrum.files.remote import RemoteCache; "
        "RemoteCache(Path(sys.argv[1])).open(sys.argv[2])"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), f"{site.url}/a.tar"])
    for _ in range(500):
        if any(path.stat().st_size for path in tmp_path.glob("*.writing")):
            break
        time.sleep(0.01)
    assert child.poll() is None, "it was killed in the middle"
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    (left,) = paths(tmp_path)
    assert is_aside(left)
    # what is younger than a minute may have a writer that has not locked it yet
    os.utime(left, (0, 0))
    site.slow, site.files["/b.tar"] = 0.0, noise(1)
    assert read(RemoteCache(tmp_path), f"{site.url}/b.tar") == noise(1)
    assert len(copies(tmp_path)) == 1, "what was left is cleared away"
    assert read(RemoteCache(tmp_path), f"{site.url}/a.tar") == noise(0, 4_000_000)


def test_two_at_a_time_fetch_once(site, tmp_path):
    site.files["/a.tar"], site.slow = noise(0, 100_000), 0.1
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(read(RemoteCache(tmp_path), f"{site.url}/a.tar"))
        )
        for _ in range(3)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (
        found == [noise(0, 100_000)] * 3
        and site.gets() == ["/a.tar"]
        and len(copies(tmp_path)) == 1
    )


def test_where_copies_lie_unless_told(monkeypatch, tmp_path):
    monkeypatch.setenv("FULCRUM_SHELF", str(tmp_path))
    monkeypatch.setenv("FULCRUM_SHELF_GB", "2.5")
    assert (remote_cache.user_cache().folder, remote_cache.user_cache().limit) == (
        tmp_path,
        2_500_000_000,
    )
    monkeypatch.delenv("FULCRUM_SHELF")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert remote_cache.user_cache().folder == tmp_path / "cache" / "fulcrum" / "shelf"
    monkeypatch.setenv("FULCRUM_SHELF_GB", "much")
    with pytest.raises(BadInput, match="'much'"):
        remote_cache.user_cache()
