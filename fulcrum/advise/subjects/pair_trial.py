"""Some pictures of a data set with their captions, scored: does a caption fit its own picture better than another's?"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.readers.pictures import BadSample, decode, fit
from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.picture_store import ABOUT, PictureStore
from fulcrum.networks.captioning.captioners import BATCH, WORLD, open_scorer
from fulcrum.networks.captioning.recaption import foreign
from fulcrum.spec.errors import BadInput, nearest

PAIRS = 512
SIDES = {WORLD: 32}  # pixels that the world's scorer looks at; others resize what they get
SIDE = 224
FEWEST = 8  # pairs, below which a share says nothing


class ScoredPair(NamedTuple):
    name: str
    caption: str
    own: float  # how well the caption fits its picture
    other: float  # how well another picture's caption does


class PairTrial(NamedTuple):
    scorer: str
    pairs: list[ScoredPair]
    unread: int  # captions that the scorer cannot read
    warning: str = ""  # why the scorer cannot be believed of these pictures
    data: str = "my_data"  # where they are from

    @property
    def misfits(self) -> list[ScoredPair]:
        """Those that another picture's caption fits as well or better, worst first."""
        return sorted((one for one in self.pairs if one.own <= one.other), key=lambda one: one.own - one.other)

    @property
    def stored(self) -> bool:
        return (Path(self.data) / ABOUT).is_file()

    @property
    def words(self) -> str:
        fit_well = len(self.pairs) - len(self.misfits)
        unread = f", {self.unread} captions could not be read" if self.unread else ""
        return (
            f"{len(self.pairs)} pairs scored by {self.scorer}: {fit_well} fit better than with another's caption{unread}"
            + (f"; {self.warning}" if self.warning else "")
        )


def try_pairs(data: str, scorer: str, caption: str = "", most: int = PAIRS) -> PairTrial:
    """Score some pairs as they are, and with the captions of pictures half the sample away. A threshold on a score would
    be another for every network and every length of caption; which of two fits better is not."""
    score = open_scorer(scorer)
    assert score is not None, "nobody asks without a name"
    given = list(islice(_pairs(data, SIDES.get(scorer, SIDE), caption), most))
    if len(given) < FEWEST:
        raise BadInput(
            f"{data} holds {len(given)} pictures that can be scored", f"give {FEWEST} or more, or leave --score out"
        )
    readable = _legible(scorer, [text for _, _, text in given])
    legible = [one for one, can in zip(given, readable, strict=True) if can]
    unread = [text for (_, _, text), can in zip(given, readable, strict=True) if not can]
    if len(unread) > len(given) / 2 or len(legible) < FEWEST:
        raise BadInput(
            f"'{scorer}' cannot read {len(unread)} of {len(given)} captions, such as {unread[0][:60]!r}",
            "the world's scorer knows the words of the embedded world; for others: --score clip=FOLDER",
        )
    pictures, texts = [picture for _, picture, _ in legible], [text for _, _, text in legible]
    others = [texts[(place + len(texts) // 2) % len(texts)] for place in range(len(texts))]
    own, other = (
        [
            one
            for start in range(0, len(texts), BATCH)
            for one in score(pictures[start : start + BATCH], some[start : start + BATCH])
        ]
        for some in (texts, others)
    )
    rows = zip(legible, own, other, others, strict=True)
    pairs = [ScoredPair(name, text, fits, less) for (name, _, text), fits, less, wrong in rows if text != wrong]
    return PairTrial(scorer, pairs, len(unread), foreign(pictures) if scorer == WORLD else "", data)


def _legible(scorer: str, texts: Sequence[str]) -> list[bool]:
    """Of which captions can the scorer read most? The world's knows few words, others are taken to know all."""
    if scorer != WORLD:
        return [True] * len(texts)
    from fulcrum.data.world.scene import tokenize
    from fulcrum.networks.text import LONGEST, MOST_UNKNOWN, load_text

    known, words = load_text().tokenizer.index, [tokenize(text) for text in texts]
    return [0 < len(some) < LONGEST and sum(one not in known for one in some) <= MOST_UNKNOWN * len(some) for some in words]


def _pairs(data: str, side: int, caption: str) -> Iterator[tuple[str, NDArray[np.uint8], str]]:
    """Name, picture (3, side, side), caption; of a store from all over it, of other data from its beginning. What cannot
    be opened, or has no caption, is passed over: another rule names it."""
    names = set[str]()
    for name, content, captions in _samples_of(data):
        names |= set(captions)
        texts = captions.get(caption or "long") or ([] if caption else next(iter(captions.values()), []))
        if not texts or not texts[0].strip():
            continue
        try:
            image = decode(content).image
        except (BadSample, OSError):
            continue
        yield name, np.asarray(fit(image, (side, side)).image, np.uint8).transpose(2, 0, 1).copy(), texts[0]
    if caption and caption not in names:
        raise BadInput(f"no picture of {data} has a caption '{caption}'", nearest(caption, names))


def _samples_of(data: str) -> Iterator[tuple[str, bytes, dict[str, list[str]]]]:
    if (Path(data) / ABOUT).is_file():
        store = PictureStore(Path(data), verify=False)
        for row in range(0, len(store), max(1, len(store) // PAIRS)):
            yield store.name(row), store.data(row), store.captions(row)
    else:
        for sample in open_given(data):
            if not sample.fault and not sample.left:
                yield sample.name, sample.data, sample.captions
