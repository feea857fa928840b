"""Sources: numbered, fingerprinted collections of pictures, and the global order of samples."""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.captions import Chooser
from fulcrum.data.world.scene import (
    DOMAINS,
    MAX_OBJECTS,
    SMALLEST,
    SPLITS,
    WORLD_VERSION,
    Scenes,
    render,
    scenes,
)
from fulcrum.data.world.words import STYLES, captions
from fulcrum.spec.keyed import Keys, bits, key, scramble, uniform

# --------------------------------------------------------------------------------------------------
# The global order of samples, and the numbers of their readings: pure functions of (count, seed,
# position), whatever processes read them.
#
# Each epoch is a keyed permutation that is computed where it is asked for (a Feistel network with
# cycle walking): no index of the samples is in memory, and a hundred million samples cost what a
# thousand do.
#
# B places.


# 6 shuffle a thousand samples well; from 14 on all orders of six samples are equally likely
ROUNDS = 14
# places that are computed together: 32 of them would take half as long, by numpy's calls alone
BLOCK = 1024


def _rounds(numbers: Keys, rows: int, columns: int, keys: Keys) -> Keys:
    """(B,) a permutation of 0 ... rows * columns - 1: a number is a cell of a grid, and in turns
    its row is moved by an amount that its column and a key decide, and its column by one of its
    row. Each move can be undone: a bijection."""
    row, column = np.divmod(numbers, np.uint64(columns))
    for by_column, by_row in keys.reshape(-1, 2):
        # 63 bits: the sum must not wrap
        row = (row + (scramble(column + by_column) >> np.uint64(1))) % np.uint64(rows)
        column = (column + (scramble(row + by_row) >> np.uint64(1))) % np.uint64(columns)
    return row * np.uint64(columns) + column


def permuted(count: int, keys: Keys, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """(B,) what stands at these places of a permutation of 0 ... count - 1.

    The grid is as square as it can be and has fewer than one row of cells too many. A number that
    lands on one of those goes through the rounds again until it does not (cycle walking), which
    keeps the bijection."""
    rows = isqrt(count - 1) + 1
    columns = -(-count // rows)
    numbers = _rounds(places.astype(np.uint64), rows, columns, keys)
    while (outside := np.flatnonzero(numbers >= count)).size:
        numbers[outside] = _rounds(numbers[outside], rows, columns, keys)
    return numbers.astype(np.int64)


# 8 kB each: that of validation, and of every source of a mix and every bucket
@lru_cache(maxsize=128)
def _block(count: int, seed: int, epoch: int, block: int) -> NDArray[np.int64]:
    """The samples at places block * BLOCK ... of an epoch."""
    places = np.arange(block * BLOCK, min((block + 1) * BLOCK, count), dtype=np.int64)
    numbers = permuted(count, bits(key("order", seed, epoch), ROUNDS)[0], places)
    numbers.flags.writeable = False  # shared by all callers
    return numbers


def order(count: int, seed: int, position: int, rows: int) -> NDArray[np.int64]:
    """Sample numbers at positions position, ..., position + rows - 1.

    Each epoch visits all `count` samples once, in a permutation keyed by (seed, epoch); a batch may
    span epochs.
    """
    if count < 1 or position < 0 or rows < 0:
        raise ValueError(
            f"expected count >= 1, position >= 0, rows >= 0; found {count}, {position}, {rows}"
        )
    parts, end = [np.zeros(0, np.int64)], position + rows
    while position < end:
        epoch, place = divmod(position, count)
        block, first = divmod(place, BLOCK)
        parts.append(_block(count, seed, epoch, block)[first : first + end - position])
        position += len(parts[-1])
    return np.concatenate(parts)


def readings(seed: int, position: int, rows: int) -> NDArray[np.uint64]:
    """(B,) Return the numbers of the readings at image indices position ... position + rows - 1.

    A reading is one image of the budget: the sample at that position, and a number that decides
    its caption. Another epoch has other numbers.
    """
    return key("reading", seed, np.arange(position, position + rows, dtype=np.int64))


def order_of(source: Any, seed: int, position: int, rows: int) -> NDArray[np.int64]:
    """The global order of a source: its own, where it deals positions itself as a mix does, else
    all samples in turn."""
    own = getattr(source, "order", None)
    return (
        own(seed, position, rows) if own is not None else order(len(source), seed, position, rows)
    )


# --------------------------------------------------------------------------------------------------
# Sources: numbered, fingerprinted collections of pictures; the embedded world is one.
#
# Legend: B samples, S image side.


Ids = NDArray[np.integer[Any]]
# scene numbers beyond any source: what a wrong caption speaks of is drawn nowhere
_ELSEWHERE = 2**40


class Samples(NamedTuple):
    images: NDArray[np.uint8]  # (B, 3, S, S)
    scenes: Scenes | None  # what is drawn, where somebody knows
    ids: NDArray[np.int64]  # (B,) number of each sample within its source


def require_inside(index: Ids, count: int, what: str = "source") -> None:
    """Refuse numbers of samples that are not there."""
    if index.size and (int(index.min()) < 0 or int(index.max()) >= count):
        raise IndexError(
            f"this {what} holds samples 0 to {count - 1}; asked for {int(index.min())} to"
            f" {int(index.max())}: raise its count or wrap the index with fulcrum.data.source"
        )


class Source(Protocol):
    """Samples by number. Equal fingerprints promise equal samples: caches and run keys are built on
    it."""

    def __len__(self) -> int: ...

    def fingerprint(self) -> str: ...

    def read(self, index: Ids) -> Samples: ...

    def scenes(self, index: Ids) -> Scenes: ...

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]: ...

    # (B, 4); asked only of a source whose record tells it
    def geometry(self, index: Ids) -> NDArray[np.float32]: ...


@dataclass(frozen=True)
class WorldSource:
    """The first `count` scenes of one split of the embedded world, drawn in one domain at one size.

    A share of the pictures can be `mislabelled`: drawn as ever, captioned as another scene. The
    truth stays known. With `crop` a picture is a part of a larger one: captions and scenes still
    speak of the whole.
    """

    split: str
    domain: str
    size: int
    count: int
    max_objects: int = 3
    threads: int = 1  # speed only: the bytes and the fingerprint do not depend on it
    mislabelled: float = 0.0  # share of samples whose caption describes another scene of the split
    crop: float = 0.0  # largest share of a side that is cut away

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}; found {self.split!r}")
        if self.domain not in DOMAINS:
            raise ValueError(f"domain must be one of {', '.join(DOMAINS)}; found {self.domain!r}")
        if self.size < SMALLEST:
            raise ValueError(f"size must be at least {SMALLEST} pixels; found {self.size}")
        if self.count < 1:
            raise ValueError(f"count must be at least 1; found {self.count}")
        if not 1 <= self.max_objects <= MAX_OBJECTS:
            raise ValueError(f"max_objects must be 1 to {MAX_OBJECTS}; found {self.max_objects}")
        if not 0 <= self.mislabelled <= 1:
            raise ValueError(f"mislabelled is a share, 0 to 1; found {self.mislabelled}")
        if not 0 <= self.crop <= 0.5:
            raise ValueError(f"at most half of a side can be cut away, 0 to 0.5; found {self.crop}")

    def __len__(self) -> int:
        return self.count

    def scenes(self, index: Ids) -> Scenes:
        """What is drawn, without drawing it."""
        index = np.asarray(index)
        require_inside(index, self.count)
        return scenes(self.split, index, self.max_objects)

    def planted(self, index: Ids) -> NDArray[np.bool_]:
        """(B,) which samples carry a wrong caption: keyed by the sample, so a larger share only
        adds to a smaller."""
        keys = key("mislabelled", WORLD_VERSION, self.split, self.max_objects, np.asarray(index))
        return uniform(keys, 1)[:, 0] < self.mislabelled

    def described(self, index: Ids) -> Scenes:
        """What the captions speak of: the drawn scene, or another one where the sample is
        mislabelled."""
        drawn = self.scenes(index)
        wrong = (
            np.flatnonzero(self.planted(drawn.index)) if self.mislabelled else np.zeros(0, np.int64)
        )
        if not len(wrong):
            return drawn
        other, again = drawn.index[wrong], np.arange(len(wrong))
        while len(again):  # in a one-object world two scenes may well be the same
            other[again] += _ELSEWHERE
            spoken_of = scenes(self.split, other, self.max_objects)
            again = np.flatnonzero(spoken_of.signature() == drawn.signature()[wrong])
        return drawn.replaced(wrong, spoken_of)

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        """The caption of each sample."""
        return chooser.prompts(self.described(index), np.asarray(index))

    def geometry(self, index: Ids) -> NDArray[np.float32]:
        """(B, 4) side of the whole picture, twice, and top and left of the part that is read: keyed
        by the sample."""
        index = np.asarray(index)
        most = round(self.size / (1 - self.crop)) - self.size  # pixels that may be cut from a side
        u = uniform(key("crop", WORLD_VERSION, self.split, self.max_objects, index), 3)
        cut = np.floor(u[:, 0] * (most + 1))
        corner = np.floor(u[:, 1:] * (cut[:, None] + 1))
        return np.column_stack([self.size + cut, self.size + cut, corner]).astype(np.float32)

    def read(self, index: Ids) -> Samples:
        chosen = self.scenes(index)
        images = (
            self._cropped(chosen)
            if self.crop
            else render(chosen, self.size, self.domain, self.threads)
        )
        return Samples(images, chosen, chosen.index)

    def _cropped(self, chosen: Scenes) -> NDArray[np.uint8]:
        """Each scene drawn as large as it says, and the part of it at its corner."""
        images = np.empty((len(chosen), 3, self.size, self.size), np.uint8)
        sides, _, tops, lefts = self.geometry(chosen.index).astype(np.int64).T
        for side in np.unique(sides):
            rows = np.flatnonzero(sides == side)
            whole = render(chosen.take(rows), int(side), self.domain, self.threads)
            for row, picture in zip(rows, whole, strict=True):
                images[row] = picture[
                    :, tops[row] : tops[row] + self.size, lefts[row] : lefts[row] + self.size
                ]
        return images

    def fingerprint(self) -> str:
        """Hash of version and settings, and of some pictures and captions: a changed generator
        cannot keep it."""
        probe = np.unique(np.linspace(0, self.count - 1, 8).astype(np.int64))
        samples = self.read(probe)
        settings = {
            "world": WORLD_VERSION,
            "split": self.split,
            "domain": self.domain,
            "size": self.size,
            "count": self.count,
            "max_objects": self.max_objects,
        }
        if self.mislabelled:  # left out at zero: an honest source keeps its fingerprint
            settings["mislabelled"] = self.mislabelled
        if self.crop:
            settings["crop"] = self.crop
        texts = [captions(self.described(probe), style).texts for style in STYLES]
        digest = hashlib.sha256(json.dumps([settings, texts], sort_keys=True).encode())
        digest.update(samples.images.tobytes())
        return digest.hexdigest()
