"""A small entry of the array store, to be written, harmed and read."""

from pathlib import Path
from typing import Any

import numpy as np

from fulcrum.files.array_store import Arrays, ArrayStore


def arrays_of(number: int) -> Arrays:
    """Seven rows in the last chunk, ten in the others, packed rows of any count, and an array in
    the first one only."""
    ids = np.arange(10 * number, 10 * number + (7 if number == 3 else 10))
    once = {} if number else {"once": np.array([[True, False]])}
    return {
        "rows": np.stack([ids, ids**2], axis=1).astype(np.float32),
        "packed": np.full((number * 3 % 5, 2, 2), number, np.float16),  # none in the first chunk
        "lengths": ids.astype(np.int32),
        **once,
    }


def whole() -> Arrays:
    chunks = [arrays_of(number) for number in range(4)]
    return {
        name: np.concatenate([chunk[name] for chunk in chunks if name in chunk])
        for name in chunks[0]
    }


def get(root: Path, made: list[int] | None = None) -> dict[str, Any]:
    def chunk(number: int) -> Arrays:
        if made is not None:
            made.append(number)
        return arrays_of(number)

    return ArrayStore(root).get("thing", {"a": 1}, range(4), chunk)


def entry(root: Path, suffix: str = "") -> Path:
    (folder,) = root.glob(f"thing-{'[0-9a-f]' * 32}{suffix}")
    return folder


def assert_whole(arrays: dict[str, Any]) -> None:
    for name, wanted in whole().items():
        assert (
            np.array_equal(np.asarray(arrays[name]), wanted) and arrays[name].dtype == wanted.dtype
        )
        assert arrays[name].shape == wanted.shape and arrays[name].nbytes == wanted.nbytes
        ids = np.array([[0, -1], [len(wanted) - 1, len(wanted) // 2]])
        assert np.array_equal(arrays[name][ids], wanted[ids])
