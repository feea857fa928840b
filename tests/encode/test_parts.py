"""Chunks of an entry in the making: what a killed process left is used, damage is not, and any split gives the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from fulcrum.encode.cache import CHUNK, Cache, Job
from fulcrum.encode.parts import Parts
from fulcrum.encode.store import Damaged

COUNT = 3 * CHUNK + 7


def job(made: list[int], count: int = COUNT, stop: int | None = None) -> Job:
    def chunk(ids):
        made.append(int(ids[0]) // CHUNK)
        if stop is not None and len(made) > stop:
            raise KeyboardInterrupt
        return {"rows": np.stack([ids, ids**2], axis=1).astype(np.float32)}

    return Job("thing", {"a": 1}, count, "things", chunk, lambda: {"head": np.ones((1, 2), np.float32)})


def rows(arrays) -> bytes:
    return np.ascontiguousarray(arrays["rows"]).tobytes()


def test_a_killed_encoding_goes_on_where_it_stood(tmp_path: Path) -> None:
    made: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        Cache(tmp_path).finished(job(made, stop=2))
    assert made == [0, 1, 2]
    made.clear()
    found = Cache(tmp_path).finished(job(made))
    assert made == [2, 3] and found["rows"].shape == (COUNT, 2)
    assert rows(found) == rows(Cache(tmp_path / "whole").finished(job([])))
    assert [path.name for path in tmp_path.glob("thing*.parts")] == []  # they go when the entry is whole


@pytest.mark.parametrize("of", [2, 3, 7])
def test_any_number_of_processes_gives_the_same_bytes(of: int, tmp_path: Path) -> None:
    made: list[int] = []
    for part in range(of):
        Cache(tmp_path / "shared").share(job(made), part, of)
    assert sorted(made) == [0, 1, 2, 3]
    found = Cache(tmp_path / "shared").finished(job(made))
    assert len(made) == 4  # nothing is made twice
    assert rows(found) == rows(Cache(tmp_path / "alone").finished(job([])))
    Cache(tmp_path / "shared").share(job(made), 0, of)
    assert len(made) == 4  # whole already


def test_a_damaged_chunk_is_made_again(tmp_path: Path) -> None:
    Cache(tmp_path).share(job([]), 0, 1)
    (folder,) = tmp_path.glob("thing*.parts")
    for path, change in zip(sorted(folder.iterdir()), ("flip", "cut", "empty"), strict=False):
        data = bytearray(path.read_bytes())
        if change == "flip":
            data[-3] ^= 1
        path.write_bytes({"flip": data, "cut": data[:-5], "empty": b""}[change])
    made: list[int] = []
    found = Cache(tmp_path).finished(job(made))
    assert made == [0, 1, 2] and rows(found) == rows(Cache(tmp_path / "alone").finished(job([])))


def test_one_flipped_bit_of_the_entry_is_found(tmp_path: Path) -> None:
    Cache(tmp_path).finished(job([]))
    (file,) = tmp_path.glob("thing*/rows.bin")
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 4
    file.write_bytes(data)
    with pytest.raises(Damaged, match="a bit has changed"):
        Cache(tmp_path).finished(job([]))


def test_progress_counts_what_is_done(tmp_path: Path) -> None:
    said: list[str] = []
    Cache(tmp_path).finished(job([]), said.append)
    assert said[-1] == f"encoding things: {COUNT}/{COUNT}, 0 s left"
    header = json.loads(next(tmp_path.glob("thing*/header.json")).read_text())
    assert header["arrays"]["rows"]["shape"] == [COUNT, 2]


def test_arrays_of_a_chunk_come_back(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "parts")
    arrays = {
        "half": np.arange(6, dtype=np.float16).reshape(2, 3),
        "none": np.zeros((0, 3), np.float16),
        "count": np.array([7], np.int32),
    }
    assert parts.get(0) is None and not parts.has(0)
    parts.put(0, arrays)
    found = parts.get(0)
    assert found is not None and parts.has(0)
    for name, value in arrays.items():
        assert np.array_equal(found[name], value) and found[name].dtype == value.dtype
