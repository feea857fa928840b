"""Sources made from other sources: mixed by weight, filtered, or with other captions."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.captions import Chooser, wordings
from fulcrum.data.source import Ids, Samples, order_of, require_inside
from fulcrum.data.world.scene import Scenes
from fulcrum.data.world.words import STYLES
from fulcrum.files.sealed import sha256_text
from fulcrum.spec.errors import BadInput
from fulcrum.spec.keyed import key

# --------------------------------------------------------------------------------------------------
# Several sources mixed by weight: which one stands at a position, and which of its samples, is a
# function of the position.
#
# Where pictures have several shapes, sources are dealt whole batches instead of single positions:
# see `buckets`.
#
# Legend: n samples of all sources together, B rows.


Words = TypeVar("Words")  # a text, or several
BLOCK = 1024  # positions that are shuffled among each other
FEWEST = 16  # batches that are, where whole batches are dealt


def shares(weights: Sequence[float]) -> tuple[Fraction, ...]:
    """Weights as exact shares: 0.1 is a tenth, not the nearest binary number."""
    exact = [Fraction(str(weight)) for weight in weights]
    return tuple(one / sum(exact) for one in exact)


def dealt(slot: int, weights: Sequence[Fraction]) -> tuple[int, int]:
    """(source, how many slots it had before) of a slot. The first source takes its share of the
    slots evenly, the second its share of those that are left, and so on: after any number of slots
    each has its share, to within one for each."""
    left = Fraction(1)
    for number, weight in enumerate(weights):
        ratio = weight / left if left else Fraction(1)
        before = slot * ratio.numerator // ratio.denominator
        if (slot + 1) * ratio.numerator // ratio.denominator > before:
            return number, before
        slot, left = slot - before, left - weight
    raise AssertionError("shares that sum to one leave no slot over")


@lru_cache(maxsize=32)
def _block(weights: tuple[Fraction, ...], seed: int, block: int, slots: int) -> NDArray[np.int64]:
    """(slots, 2) source and place within its own order, of each slot of a block."""
    shuffled = np.argsort(key("mix", seed, block, np.arange(slots, dtype=np.int64)), kind="stable")
    slots_of = np.array(
        [dealt(block * slots + int(slot), weights) for slot in shuffled], dtype=np.int64
    )
    # shuffled is whose turn it is; each source goes on in its own order
    for number in range(len(weights)):
        mine = slots_of[:, 0] == number
        slots_of[mine, 1] = np.sort(slots_of[mine, 1])
    slots_of.flags.writeable = False
    return slots_of


def one_shaped(source: Any) -> list[Any]:
    """The sources whose pictures have one shape each, in the order in which their samples are
    numbered; mostly just one."""
    if getattr(source, "unit", 1) == 1:
        return [source]
    return [part for one in source.sources for part in one_shaped(one)]


class MixSource:
    """Sources one after the other, numbered through; `order` deals slots of `unit` positions by
    weight, each source in its own shuffle."""

    has_scenes = False

    def __init__(self, sources: Sequence[Any], weights: Sequence[float], unit: int = 1) -> None:
        if len(sources) != len(weights) or not sources:
            raise ValueError(
                f"one weight per source: found {len(sources)} sources and {len(weights)} weights"
            )
        if not all(np.isfinite(w) and w > 0 for w in weights):
            raise ValueError(f"weights are above zero; found {list(weights)}")
        self.sources, self.weights, self.unit = tuple(sources), shares(weights), unit
        self.starts = np.concatenate([[0], np.cumsum([len(one) for one in sources])]).astype(
            np.int64
        )

    def __len__(self) -> int:
        return int(self.starts[-1])

    def fingerprint(self) -> str:
        """Of the samples: weights decide their order only, so other weights read the same cache."""
        return sha256_text(repr(["mix", *(one.fingerprint() for one in self.sources)]))

    def order(self, seed: int, position: int, rows: int) -> NDArray[np.int64]:
        """(B,) sample numbers at positions position, ..., position + rows - 1."""
        slots = max(BLOCK // self.unit, FEWEST)
        own = [
            int(one)
            for one in key("mixed source", seed, np.arange(len(self.sources))) >> np.uint64(1)
        ]
        numbers, done = np.zeros(rows, np.int64), 0
        while done < rows:
            slot, first = divmod(position + done, self.unit)
            block, place = divmod(slot, slots)
            number, before = map(int, _block(self.weights, seed, block, slots)[place])
            rows_here = min(self.unit - first, rows - done)
            inside = order_of(
                self.sources[number], own[number], before * self.unit + first, rows_here
            )
            numbers[done : done + rows_here] = self.starts[number] + inside
            done += rows_here
        return numbers

    def read(self, index: Ids) -> Samples:
        ids = np.asarray(index, dtype=np.int64)
        pictures: Any = None
        for number, mine in self._mine(ids):
            images = self.sources[number].read(ids[mine] - self.starts[number]).images
            pictures = (
                np.empty((len(ids), *images.shape[1:]), np.uint8) if pictures is None else pictures
            )
            if pictures.shape[1:] != images.shape[1:]:
                raise ValueError(
                    f"two shapes cannot stand in one batch: {pictures.shape[2:]} and"
                    f" {images.shape[2:]}"
                )
            pictures[mine] = images
        return Samples(pictures, None, ids)

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        return self._told(index, lambda source, ids: source.prompts(chooser, ids))

    def wordings(self, chooser: Chooser, index: Ids) -> list[list[str]]:
        return self._told(index, lambda source, ids: wordings(source, chooser, ids))

    def _told(
        self, index: Ids, ask: Callable[[Any, NDArray[np.int64]], list[Words]]
    ) -> list[Words]:
        """What each sample's own source says of it."""
        ids = np.asarray(index, dtype=np.int64)
        answers: dict[int, Words] = {}
        for number, mine in self._mine(ids):
            answers |= zip(
                mine.tolist(),
                ask(self.sources[number], ids[mine] - self.starts[number]),
                strict=True,
            )
        return [answers[place] for place in range(len(ids))]

    def geometry(self, index: Ids) -> NDArray[np.float32]:
        """(B, 4), as each sample's own source tells it."""
        ids = np.asarray(index, dtype=np.int64)
        numbers = np.empty((len(ids), 4), np.float32)
        for number, mine in self._mine(ids):
            numbers[mine] = self.sources[number].geometry(ids[mine] - self.starts[number])
        return numbers

    def scenes(self, index: Ids) -> Any:
        return self.sources[0].scenes(index)  # says why there are none

    def styles(self) -> tuple[str, ...]:
        """Names of the captions that every source has."""
        return tuple(
            name
            for name in self.sources[0].styles()
            if all(name in one.styles() for one in self.sources)
        )

    def _mine(self, index: NDArray[np.int64]) -> list[tuple[int, NDArray[np.intp]]]:
        require_inside(index, len(self), "mix")
        owner = np.searchsorted(self.starts, index, side="right") - 1
        return [(int(number), np.flatnonzero(owner == number)) for number in np.unique(owner)]


# --------------------------------------------------------------------------------------------------
# A source without its worst pairs: the samples whose picture and caption fit least by a given score
# are left out.
#
# Legend: n samples of the inner source, B samples asked for.


def keep_best(scores: NDArray[np.floating[Any]], drop: float) -> NDArray[np.int64]:
    """Numbers of the samples that stay, in their old order; `drop` is the share that goes, equal
    scores by number."""
    scores = np.asarray(scores)
    if scores.ndim != 1 or not np.isfinite(scores).all():
        raise ValueError(
            f"expected one finite score per sample, found {scores.dtype} of shape {scores.shape}"
        )
    if not 0 <= drop < 1:
        raise ValueError(f"the share to drop must be at least 0 and below 1; found {drop}")
    gone = int(round(drop * len(scores)))
    if gone == len(scores):
        raise ValueError(
            f"dropping {drop:g} of {len(scores)} samples leaves none; give the source more, or drop"
            " less"
        )
    return np.sort(np.argsort(scores, kind="stable")[gone:]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class FilteredSource:
    """The kept samples of another source, numbered 0 to n - 1."""

    inner: Any  # a source whose pictures have one shape
    kept: NDArray[np.int64]  # (kept,) numbers within the inner source, ascending

    @property
    def has_scenes(self) -> bool:
        return getattr(self.inner, "has_scenes", True)

    def styles(self) -> tuple[str, ...]:
        """Names of the captions that every sample has."""
        return tuple(self.inner.styles()) if hasattr(self.inner, "styles") else STYLES

    def __len__(self) -> int:
        return len(self.kept)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"filtered {self.inner.fingerprint()}".encode())
        digest.update(self.kept.astype("<i8").tobytes())
        return digest.hexdigest()

    def read(self, index: Ids) -> Samples:
        samples: Samples = self.inner.read(self.kept[index])
        return Samples(samples.images, samples.scenes, np.asarray(index, dtype=np.int64))

    def scenes(self, index: Ids) -> Scenes:
        scenes: Scenes = self.inner.scenes(self.kept[index])
        return scenes

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        """By the inner number: a mix of styles tells a sample the same way before and after the
        filter."""
        prompts: list[str] = self.inner.prompts(chooser, self.kept[index])
        return prompts

    def geometry(self, index: Ids) -> NDArray[np.float32]:
        geometry: NDArray[np.float32] = self.inner.geometry(self.kept[index])
        return geometry

    def wordings(self, chooser: Chooser, index: Ids) -> list[list[str]]:
        return wordings(self.inner, chooser, self.kept[index])

    def planted(self, index: Ids) -> NDArray[np.bool_]:
        """(B,) which of the kept samples carry a wrong caption."""
        planted: NDArray[np.bool_] = self.inner.planted(self.kept[index])
        return planted


def without_worst(source: Any, row_scores: NDArray[np.floating[Any]], drop: float) -> Any:
    """A store's pictures without the worst share by these scores, one for each row of the store. Of
    pictures of several shapes the worst of all go, whatever their shape, and a batch still has one
    shape."""
    parts = one_shaped(source)
    scores = np.concatenate([row_scores[part.numbers] for part in parts])
    kept, first, filtered = keep_best(scores, drop), 0, []
    for part in parts:
        mine = kept[(kept >= first) & (kept < first + len(part))] - first
        first += len(part)
        filtered += [FilteredSource(part, mine)] if len(mine) else []
    if len(parts) == 1:
        return filtered[0]
    return MixSource(filtered, [len(one) for one in filtered], source.unit)


# --------------------------------------------------------------------------------------------------
# The embedded world with captions that somebody else wrote: the same pictures, other words.
#
# B samples asked for.


@dataclass(frozen=True, eq=False)
class RecaptionedSource:
    """Pictures and scenes of another source; texts by style, one for each sample. What is drawn
    stays known: only the words come from whoever looked at the pictures."""

    inner: Any
    told: Mapping[str, list[str]]
    writer: str  # the hash of who wrote them, and how

    def __len__(self) -> int:
        return len(self.inner)

    def fingerprint(self) -> str:
        return hashlib.sha256(
            f"recaptioned {self.writer} {self.inner.fingerprint()}".encode()
        ).hexdigest()

    def styles(self) -> tuple[str, ...]:
        return tuple(self.told)

    def read(self, index: Ids) -> Samples:
        samples: Samples = self.inner.read(index)
        return samples

    def scenes(self, index: Ids) -> Scenes:
        scenes: Scenes = self.inner.scenes(index)
        return scenes

    def geometry(self, index: Ids) -> NDArray[np.float32]:
        geometry: NDArray[np.float32] = self.inner.geometry(index)
        return geometry

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        ids = np.asarray(index, dtype=np.int64)
        require_inside(ids, len(self))
        missing = [style for style in chooser.styles if style not in self.told]
        if missing:
            raise BadInput(
                f"no captions '{missing[0]}' were written", f"there are {', '.join(self.told)}"
            )
        picked = chooser.pick(ids)
        return [
            self.told[chooser.styles[style]][number]
            for style, number in zip(picked.tolist(), ids.tolist(), strict=True)
        ]
