"""Several sources mixed by weight: which one stands at a position, and which of its samples, is a function of the position.

Legend: n samples of all sources together, B rows.
"""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption import Chooser
from fulcrum.data.keyed import key
from fulcrum.data.order import order
from fulcrum.data.source import Ids, Samples

BLOCK = 1024                            # positions that are shuffled among each other


def shares(weights: Sequence[float]) -> tuple[Fraction, ...]:
    """Weights as exact shares: 0.1 is a tenth, not the nearest binary number."""
    exact = [Fraction(str(weight)) for weight in weights]
    return tuple(one / sum(exact) for one in exact)


def dealt(slot: int, weights: Sequence[Fraction]) -> tuple[int, int]:
    """(source, how many slots it had before) of a slot. The first source takes its share of the slots evenly, the second
    its share of those that are left, and so on: after any number of slots each has its share, to within one for each."""
    left = Fraction(1)
    for number, weight in enumerate(weights):
        ratio = weight / left if left else Fraction(1)
        before = slot * ratio.numerator // ratio.denominator
        if (slot + 1) * ratio.numerator // ratio.denominator > before:
            return number, before
        slot, left = slot - before, left - weight
    raise AssertionError("shares that sum to one leave no slot over")


@lru_cache(maxsize=4)
def _block(weights: tuple[Fraction, ...], seed: int, block: int) -> NDArray[np.int64]:
    """(BLOCK, 2) source and place within its own order, of each position of a block."""
    shuffled = np.argsort(key("mix", seed, block, np.arange(BLOCK, dtype=np.int64)), kind="stable")
    found = np.array([dealt(block * BLOCK + int(slot), weights) for slot in shuffled], dtype=np.int64)
    for number in range(len(weights)):                  # shuffled is whose turn it is; each source goes on in its own order
        mine = found[:, 0] == number
        found[mine, 1] = np.sort(found[mine, 1])
    found.flags.writeable = False
    return found


class MixSource:
    """Sources one after the other, numbered through; `order` deals positions by weight, each source in its own shuffle."""

    has_scenes = False

    def __init__(self, sources: Sequence[Any], weights: Sequence[float]) -> None:
        if len(sources) != len(weights) or not sources:
            raise ValueError(f"one weight per source: found {len(sources)} sources and {len(weights)} weights")
        if not all(np.isfinite(w) and w > 0 for w in weights):
            raise ValueError(f"weights are above zero; found {list(weights)}")
        self.sources, self.weights = tuple(sources), shares(weights)
        self.starts = np.concatenate([[0], np.cumsum([len(one) for one in sources])]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def fingerprint(self) -> str:
        """Of the samples: weights decide their order only, so other weights read the same cache."""
        return hashlib.sha256(repr(["mix", *(one.fingerprint() for one in self.sources)]).encode()).hexdigest()

    def order(self, seed: int, position: int, rows: int) -> NDArray[np.int64]:
        """(B,) sample numbers at positions position, ..., position + rows - 1."""
        parts, end = [np.zeros((0, 2), np.int64)], position + rows
        while position < end:
            block, first = divmod(position, BLOCK)
            last = min(BLOCK, first + end - position)
            parts.append(_block(self.weights, seed, block)[first:last])
            position += last - first
        dealt_out = np.concatenate(parts)
        found = np.zeros(rows, np.int64)
        for number, source in enumerate(self.sources):
            mine = np.flatnonzero(dealt_out[:, 0] == number)
            own = int(key("mixed source", seed, number)[0] >> np.uint64(1))      # each source in an order of its own
            for place in mine:
                found[place] = self.starts[number] + order(len(source), own, int(dealt_out[place, 1]), 1)[0]
        return found

    def read(self, index: Ids) -> Samples:
        ids = np.asarray(index, dtype=np.int64)
        pictures: Any = None
        for number, mine in self._mine(ids):
            images = self.sources[number].read(ids[mine] - self.starts[number]).images
            pictures = np.empty((len(ids), *images.shape[1:]), np.uint8) if pictures is None else pictures
            pictures[mine] = images
        return Samples(pictures, None, ids)

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        ids = np.asarray(index, dtype=np.int64)
        told = [""] * len(ids)
        for number, mine in self._mine(ids):
            texts = self.sources[number].prompts(chooser, ids[mine] - self.starts[number])
            for place, text in zip(mine, texts, strict=True):
                told[int(place)] = text
        return told

    def scenes(self, index: Ids) -> Any:
        return self.sources[0].scenes(index)             # says why there are none

    def styles(self) -> tuple[str, ...]:
        """Names of the captions that every source has."""
        return tuple(name for name in self.sources[0].styles() if all(name in one.styles() for one in self.sources))

    def _mine(self, index: NDArray[np.int64]) -> list[tuple[int, NDArray[np.intp]]]:
        if index.size and (int(index.min()) < 0 or int(index.max()) >= len(self)):
            raise IndexError(f"this mix holds samples 0 to {len(self) - 1}; asked for {int(index.min())} to "
                             f"{int(index.max())}")
        owner = np.searchsorted(self.starts, index, side="right") - 1
        return [(int(number), np.flatnonzero(owner == number)) for number in np.unique(owner)]
