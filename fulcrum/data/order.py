"""The global order of samples: a pure function of (count, seed, position), whatever processes read it.

Each epoch is a keyed permutation that is computed where it is asked for (a Feistel network with cycle walking): no index of
the samples is in memory, and a hundred million samples cost what a thousand do.

B places.
"""

from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.spec.keyed import Keys, bits, key, scramble

ROUNDS = 14  # 6 shuffle a thousand samples well; from 14 on all orders of six samples are equally likely
BLOCK = 1024  # places that are computed together: 32 of them would take half as long, by numpy's calls alone


def _rounds(numbers: Keys, rows: int, columns: int, keys: Keys) -> Keys:
    """(B,) a permutation of 0 ... rows * columns - 1: a number is a cell of a grid, and in turns its row is moved by an
    amount that its column and a key decide, and its column by one of its row. Each move can be undone: a bijection."""
    row, column = np.divmod(numbers, np.uint64(columns))
    for by_column, by_row in keys.reshape(-1, 2):
        row = (row + (scramble(column + by_column) >> np.uint64(1))) % np.uint64(rows)  # 63 bits: the sum must not wrap
        column = (column + (scramble(row + by_row) >> np.uint64(1))) % np.uint64(columns)
    return row * np.uint64(columns) + column


def permuted(count: int, keys: Keys, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """(B,) what stands at these places of a permutation of 0 ... count - 1.

    The grid is as square as it can be and has fewer than one row of cells too many. A number that lands on one of those
    goes through the rounds again until it does not (cycle walking), which keeps the bijection."""
    rows = isqrt(count - 1) + 1
    columns = -(-count // rows)
    numbers = _rounds(places.astype(np.uint64), rows, columns, keys)
    while (outside := np.flatnonzero(numbers >= count)).size:
        numbers[outside] = _rounds(numbers[outside], rows, columns, keys)
    return numbers.astype(np.int64)


@lru_cache(maxsize=128)  # 8 kB each: that of validation, and of every source of a mix and every bucket
def _block(count: int, seed: int, epoch: int, block: int) -> NDArray[np.int64]:
    """The samples at places block * BLOCK ... of an epoch."""
    places = np.arange(block * BLOCK, min((block + 1) * BLOCK, count), dtype=np.int64)
    numbers = permuted(count, bits(key("order", seed, epoch), ROUNDS)[0], places)
    numbers.flags.writeable = False  # shared by all callers
    return numbers


def order(count: int, seed: int, position: int, rows: int) -> NDArray[np.int64]:
    """Sample numbers at positions position, ..., position + rows - 1.

    Each epoch visits all `count` samples once, in a permutation keyed by (seed, epoch); a batch may span epochs.
    """
    if count < 1 or position < 0 or rows < 0:
        raise ValueError(f"expected count >= 1, position >= 0, rows >= 0; found {count}, {position}, {rows}")
    parts, end = [np.zeros(0, np.int64)], position + rows
    while position < end:
        epoch, place = divmod(position, count)
        block, first = divmod(place, BLOCK)
        parts.append(_block(count, seed, epoch, block)[first : first + end - position])
        position += len(parts[-1])
    return np.concatenate(parts)


def order_of(source: Any, seed: int, position: int, rows: int) -> NDArray[np.int64]:
    """The global order of a source: its own, where it deals positions itself as a mix does, else all samples in turn."""
    own = getattr(source, "order", None)
    return own(seed, position, rows) if own is not None else order(len(source), seed, position, rows)
