"""The array store: written once, found again, shared among processes, whatever stops a writer."""

import errno
import hashlib
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fulcrum.files import array_store as stored_array
from fulcrum.files import array_store as unfinished_entry
from fulcrum.files.array_store import Arrays, ArrayStore
from fulcrum.files.paths import Damaged
from fulcrum.spec.errors import RunFailed
from tests.files.small_arrays import arrays_of, assert_whole, entry, get


def test_arrays_come_back_and_are_made_once(tmp_path: Path) -> None:
    made: list[int] = []
    assert_whole(get(tmp_path, made))
    assert_whole(get(tmp_path, made))
    assert made == [0, 1, 2, 3]
    assert sorted(path.name for path in entry(tmp_path).iterdir()) == [
        "chunks.bin",
        "header.json",
        "lengths.00000.bin",
        "once.00000.bin",
        "packed.00000.bin",
        "rows.00000.bin",
    ]


def test_rows_that_are_not_there_are_an_index_error(tmp_path: Path) -> None:
    ArrayStore(tmp_path).share("thing", {"a": 1}, [1, 3], arrays_of)
    for _ in range(2):  # before and after all is verified
        rows = get(tmp_path)["rows"]
        for bad in (37, -38):
            with pytest.raises(IndexError):
                rows[np.array([0, bad])]
        np.asarray(rows)


def test_one_flipped_bit_is_found_by_the_read_that_touches_it(tmp_path: Path) -> None:
    get(tmp_path)
    path = entry(tmp_path) / "rows.00000.bin"
    data = bytearray(path.read_bytes())
    data[25 * 8] ^= 1
    path.write_bytes(data)
    rows = get(tmp_path)["rows"]
    rows[np.array([0, 19, 30])]
    for _ in range(2):
        with pytest.raises(
            Damaged, match=r"rows 20 to 29 of .*rows\.00000\.bin .*a bit has changed(.|\n)*delete"
        ):
            rows[np.array([1, 21])]


def test_chunks_that_disagree_are_an_error(tmp_path: Path) -> None:
    def chunk(number: int) -> Arrays:
        return {"rows": np.zeros((2, 3 + number), np.float32)}

    with pytest.raises(ValueError, match=r"holds <f4 rows of shape \(3,\), found <f4 of \(4,\)"):
        ArrayStore(tmp_path).get("thing", {"a": 1}, range(2), chunk)


def test_an_interrupted_chunk_leaves_nothing(tmp_path: Path) -> None:
    def stops(number: int) -> Arrays:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ArrayStore(tmp_path).get("thing", {"a": 1}, range(2), stops)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.suffix != ".making"]


def test_a_full_disk_says_what_to_do(tmp_path: Path) -> None:
    def full(number: int) -> Arrays:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(RunFailed, match="No space left(.|\n)*another cache directory"):
        ArrayStore(tmp_path).get("thing", {"a": 1}, range(2), full)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """What a write beyond says is what a full quota says."""
    before, handler = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_disk_that_fills_up_keeps_finished_chunks_and_nothing_half_written(
    tmp_path: Path,
) -> None:
    rows = np.arange(3 * 1024, dtype=np.float64).reshape(3, 1024)  # 8 KB each

    def chunk(number: int) -> Arrays:
        return {"few": np.full(10, number), "rows": rows[number : number + 1]}

    store = ArrayStore(tmp_path)
    with (
        files_of_at_most(20_000),
        pytest.raises(RunFailed, match="cannot write the cache entry .*: File too large") as error,
    ):
        store.get("thing", {"a": 1}, range(3), chunk)
    assert "nothing half-written was kept" in error.value.hint
    making = entry(tmp_path, ".making")
    assert (making / "rows.00000.bin").stat().st_size == 2 * 8192 and (
        making / "few.00000.bin"
    ).stat().st_size == 160
    made: list[int] = []
    arrays = store.get(
        "thing", {"a": 1}, range(3), lambda number: made.append(number) or chunk(number)
    )  # type: ignore[func-returns-value]
    assert made == [2] and np.array_equal(np.asarray(arrays["rows"]), rows)


def test_files_of_a_segment_do_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished_entry, "SEGMENT", 100)
    assert_whole(get(tmp_path))
    assert len(list(entry(tmp_path).glob("rows.*.bin"))) == 2
    ArrayStore(tmp_path / "shared").share("thing", {"a": 1}, [0, 1], arrays_of)
    ArrayStore(tmp_path / "shared").share("thing", {"a": 1}, [2, 3], arrays_of)
    made: list[int] = []
    assert_whole(get(tmp_path / "shared", made))
    assert not made


@pytest.mark.parametrize("kept", [0, 1 << 20])
@pytest.mark.parametrize("width", [2, unfinished_entry.CHUNK.itemsize, 2000])
def test_rows_of_any_size_come_back_from_several_files(
    width: int, kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of arrays that stay in memory and of those that do not, with fewer files open than there
    are."""
    monkeypatch.setattr(unfinished_entry, "SEGMENT", 1)  # a file for each chunk
    monkeypatch.setattr(stored_array, "KEPT", kept)
    monkeypatch.setattr(stored_array, "MOST_OPEN", 2)
    rows = np.arange(30 * width, dtype=np.float32).reshape(30, width)
    stored = ArrayStore(tmp_path).get(
        "thing", {}, range(3), lambda number: {"rows": rows[10 * number : 10 * number + 10]}
    )
    assert len(list(tmp_path.glob("thing-*/rows.*.bin"))) == 3
    for ids in (
        np.array([29, 0, -1, 10, 10]),
        np.array([[3, 25], [12, 9]]),
        np.array([], np.int64),
    ):
        assert np.array_equal(stored["rows"][ids], rows[ids])
    part = np.empty((12, width), np.float32)
    stored["rows"].fill(part, 9)  # across three files
    assert np.array_equal(part, rows[9:21])
    assert np.array_equal(np.asarray(stored["rows"]), rows)


def test_of_a_very_large_array_a_few_chunks_are_verified_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start must not read terabytes: two of its chunks, another two at every open."""
    rows = np.arange(100 * 8, dtype=np.float32).reshape(100, 8)

    def opened() -> Any:
        return ArrayStore(tmp_path).get(
            "thing", {}, range(100), lambda number: {"rows": rows[number : number + 1]}
        )["rows"]

    monkeypatch.setattr(stored_array, "KEPT", 0)
    monkeypatch.setattr(stored_array, "SPOTTED", 1000)
    read: list[int] = []
    real = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda handle, views, at: read.append(real(handle, views, at)) or read[-1]
    )
    assert np.array_equal(opened()[np.array([50, 3])], rows[[50, 3]])
    assert sum(read) <= 4 * 32, "two that are verified, two that were asked for"
    path = entry(tmp_path) / "rows.00000.bin"
    path.write_bytes(bytes(len(path.read_bytes())))
    with pytest.raises(Damaged, match="a bit has changed"):
        opened()
    # not larger: all of it is verified, as it is read
    monkeypatch.setattr(stored_array, "SPOTTED", rows.nbytes)
    stored = opened()
    for row in range(100):
        with pytest.raises(Damaged, match="a bit has changed"):
            stored[np.array([row])]


def test_a_start_with_a_million_rows_reads_less_than_a_hundredth_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kilobytes each, in a file of holes: what is read when it is opened, and by a batch of
    rows from anywhere."""
    count, each, width = 1_000_000, 256, 2048
    path = tmp_path / "rows.00000.bin"
    with open(path, "wb") as file:
        file.truncate(count * width)
    starts = np.arange(0, count, each)
    chunks = np.zeros(len(starts), stored_array.CHUNK)
    chunks["start"], chunks["rows"] = starts, np.minimum(each, count - starts)
    for rows in np.unique(chunks["rows"]):
        digest = np.frombuffer(hashlib.sha256(bytes(int(rows) * width)).digest(), np.uint8)
        chunks["sha256"][chunks["rows"] == rows] = digest
    read: list[int] = []
    real = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda handle, views, at: read.append(real(handle, views, at)) or read[-1]
    )
    stored = stored_array.StoredArray(np.dtype(np.uint8), (width,), chunks, {0: path}, "")
    assert len(stored) == count and 0 < sum(read) < 0.001 * stored.nbytes
    assert not stored[np.random.default_rng(0).integers(0, count, 256)].any()
    assert sum(read) < 0.01 * stored.nbytes


def test_a_file_that_is_cut_while_it_is_read_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map would have ended the process."""
    monkeypatch.setattr(stored_array, "KEPT", 0)
    rows = get(tmp_path)["rows"]
    rows[np.array([0, 36])]
    path = entry(tmp_path) / "rows.00000.bin"
    os.truncate(path, 100)
    with pytest.raises(Damaged, match="has no byte 288: it was cut after it was opened"):
        rows[np.array([0, 36])]


def test_what_another_has_finished_and_still_holds_is_not_made_again(tmp_path: Path) -> None:
    made: list[int] = []

    def last(number: int) -> Arrays:
        made.append(number)
        return arrays_of(number)

    def first(number: int) -> Arrays:
        if number == 1:  # its segment is held, and 0 is finished in it
            ArrayStore(tmp_path).share("thing", {"a": 1}, [0, 2], last)
        return arrays_of(number)

    ArrayStore(tmp_path).share("thing", {"a": 1}, [0, 1], first)
    assert made == [2]
    assert_whole(get(tmp_path, made))
    assert made == [2, 3]


def test_a_chunk_whose_file_was_cut_is_made_again(tmp_path: Path) -> None:
    """By one who shares too: he does not hash what others made, but it must be there."""
    made: list[int] = []
    for _ in range(2):
        ArrayStore(tmp_path).share(
            "thing", {"a": 1}, [0, 1], lambda number: made.append(number) or arrays_of(number)
        )  # type: ignore[func-returns-value]
        path = entry(tmp_path, ".making") / "rows.00000.bin"
        assert path.stat().st_size == 20 * 8
        os.truncate(path, 20 * 8 - 1)
    assert made == [0, 1, 1]
    path.write_bytes(bytes(20 * 8))
    ArrayStore(tmp_path).share("thing", {"a": 1}, [0], arrays_of)
    assert path.read_bytes() == bytes(20 * 8)
    assert_whole(get(tmp_path, made))
    assert made == [0, 1, 1, 0, 1, 2, 3]


def _write_slowly(root: str, made: Any) -> None:
    def chunk(number: int) -> Arrays:
        made.value += 1
        time.sleep(0.1)
        return arrays_of(number)

    assert_whole(ArrayStore(Path(root)).get("thing", {"a": 1}, range(4), chunk))


def _share(root: str, part: int, made: Any) -> None:
    def chunk(number: int) -> Arrays:
        with made.get_lock():
            made.value += 1
        time.sleep(0.1)
        return arrays_of(number)

    ArrayStore(Path(root)).share("thing", {"a": 1}, range(part, 4, 2), chunk)


def _joined(*targets: tuple[Callable[..., None], tuple[Any, ...]]) -> int:
    context = multiprocessing.get_context("fork")
    made = context.Value("i", 0)
    processes = [context.Process(target=target, args=(*words, made)) for target, words in targets]
    for process in processes:
        process.start()
        time.sleep(0.05)
    for process in processes:
        process.join(20)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    return int(made.value)


def test_two_writers_do_the_work_once(tmp_path: Path) -> None:
    assert _joined((_write_slowly, (str(tmp_path),)), (_write_slowly, (str(tmp_path),))) == 4


def test_two_share_and_a_third_completes_what_they_made(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert _joined((_share, (root, 0)), (_share, (root, 1)), (_write_slowly, (root,))) == 4
    assert len(list(entry(tmp_path).glob("rows.*.bin"))) == 2
