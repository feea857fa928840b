"""Jobs of the cache: what a killed process left is used, damage is not, and any split gives the
same."""

import json
from pathlib import Path

import numpy as np
import pytest

from fulcrum.files.paths import Damaged
from fulcrum.networks.rows import CHUNK, Cache, Job

COUNT = 3 * CHUNK + 7


def job(made: list[int], count: int = COUNT, stop: int | None = None) -> Job:
    def encode(ids):
        made.append(int(ids[0]) // CHUNK)
        if stop is not None and len(made) > stop:
            raise KeyboardInterrupt
        rows = np.stack([ids, ids**2], axis=1).astype(np.float32)
        return {"rows": rows} if ids[0] else {"rows": rows, "head": np.ones((1, 2), np.float32)}

    return Job("thing", {"a": 1}, count, "things", encode)


def rows(arrays) -> bytes:
    assert np.array_equal(arrays["head"], np.ones((1, 2)))
    return np.ascontiguousarray(arrays["rows"]).tobytes()


def files(root: Path) -> list[Path]:
    return sorted(root.glob("thing*/rows.*.bin"))


def test_a_killed_encoding_goes_on_where_it_stood(tmp_path: Path) -> None:
    made: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        Cache(tmp_path).finished(job(made, stop=2))
    assert made == [0, 1, 2]
    made.clear()
    arrays = Cache(tmp_path).finished(job(made))
    assert made == [2, 3] and arrays["rows"].shape == (COUNT, 2)
    assert rows(arrays) == rows(Cache(tmp_path / "whole").finished(job([])))
    assert [path.name for path in tmp_path.glob("thing*.making")] == []  # it has become the entry
    assert len(files(tmp_path)) == 1  # the killed one's file was gone on with


@pytest.mark.parametrize("of", [2, 3, 7])
def test_any_number_of_processes_gives_the_same_bytes(of: int, tmp_path: Path) -> None:
    made: list[int] = []
    for part in range(of):
        Cache(tmp_path / "shared").share(job(made), part, of)
    assert sorted(made) == [0, 1, 2, 3]
    arrays = Cache(tmp_path / "shared").finished(job(made))
    assert len(made) == 4  # nothing is made twice
    alone = Cache(tmp_path / "alone").finished(job([]))
    assert rows(arrays) == rows(alone)
    ids = np.array([[COUNT - 1, 0, 300], [-1, 256, 255]])
    assert np.array_equal(arrays["rows"][ids], alone["rows"][ids])
    Cache(tmp_path / "shared").share(job(made), 0, of)
    assert len(made) == 4  # whole already


def test_a_damaged_chunk_is_made_again(tmp_path: Path) -> None:
    Cache(tmp_path).share(job([]), 0, 1)
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[300 * 8] ^= 1  # a bit of chunk 1
    path.write_bytes(data[:-5])  # and an end that was never written
    made: list[int] = []
    arrays = Cache(tmp_path).finished(job(made))
    assert made == [1, 3] and rows(arrays) == rows(Cache(tmp_path / "alone").finished(job([])))


def test_one_flipped_bit_of_the_entry_is_found(tmp_path: Path) -> None:
    Cache(tmp_path).finished(job([]))
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.write_bytes(data)
    arrays = Cache(tmp_path).finished(job([]))
    with pytest.raises(Damaged, match="a bit has changed"):
        np.asarray(arrays["rows"])


def test_progress_counts_what_is_done(tmp_path: Path) -> None:
    lines: list[str] = []
    Cache(tmp_path).finished(job([]), lines.append)
    assert lines[-1] == f"encoding things: {COUNT:,} of {COUNT:,}, 0 s left"
    header = json.loads(next(tmp_path.glob("thing*/header.json")).read_text())
    assert header["arrays"]["rows"]["shape"] == [COUNT, 2]
