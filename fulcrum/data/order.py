"""The global order of samples: a pure function of (count, seed, position), whatever processes read it."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.spec.keyed import key


@lru_cache(maxsize=128)  # orders at a time: validation's, and that of every source of a mix and every bucket
def _epochs(count: int, seed: int) -> dict[int, NDArray[np.int64]]:
    return {}


def _permutation(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Only the last two that were asked for are held: a batch may span epochs, and memory must not grow with them."""
    held = _epochs(count, seed)
    shuffled = held.get(epoch)
    if shuffled is None:
        shuffled = np.argsort(key("order", seed, epoch, np.arange(count, dtype=np.int64)), kind="stable").astype(np.int64)
        shuffled.flags.writeable = False  # shared by all callers
        held[epoch] = shuffled
        for other in list(held)[:-2]:
            held.pop(other, None)  # another thread may have been first
    return shuffled


def order(count: int, seed: int, position: int, rows: int) -> NDArray[np.int64]:
    """Sample numbers at positions position, ..., position + rows - 1.

    Each epoch visits all `count` samples once, in a permutation keyed by (seed, epoch); a batch may span epochs.
    """
    if count < 1 or position < 0 or rows < 0:
        raise ValueError(f"expected count >= 1, position >= 0, rows >= 0; found {count}, {position}, {rows}")
    parts, end = [np.zeros(0, np.int64)], position + rows
    while position < end:
        epoch, start = divmod(position, count)
        stop = min(count, start + end - position)
        parts.append(_permutation(count, seed, epoch)[start:stop])
        position += stop - start
    return np.concatenate(parts)


def order_of(source: Any, seed: int, position: int, rows: int) -> NDArray[np.int64]:
    """The global order of a source: its own, where it deals positions itself as a mix does, else all samples in turn."""
    own = getattr(source, "order", None)
    return own(seed, position, rows) if own is not None else order(len(source), seed, position, rows)
