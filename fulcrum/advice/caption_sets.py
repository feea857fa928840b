"""Data sets by their captions, and pairs of pictures and captions, as an audit reads them."""

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.readers.pictures import BadSample, decode, fit
from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.picture_store import ABOUT, SPLITS, PictureStore
from fulcrum.measure.store_scores import open_scorer
from fulcrum.networks.captioning.captioners import BATCH, WORLD
from fulcrum.networks.captioning.recaption import foreign
from fulcrum.spec.errors import BadInput, FulcrumError, first_line, nearest
from fulcrum.spec.progress import Tally

# --------------------------------------------------------------------------------------------------
# A data set by its captions and pictures' bytes: an image folder, shards, a table, an imported
# store.


# samples that are looked at; captions of a larger set are like those of its beginning
MOST = 200_000
SHOWN = 5
# pictures that are decoded one by one; of twice as many every second, of four times every fourth
DECODED = 1024


class LookedAt(NamedTuple):
    """One sample, as far as the rules need it."""

    name: str
    captions: dict[str, list[str]]
    split: str
    sha: str  # of the picture's bytes
    decoded: bool = False  # was every pixel of it read?


class CaptionSet(NamedTuple):
    path: str
    samples: list[LookedAt]
    broken: list[tuple[str, str]]  # sample, what is wrong with it
    whole: bool  # was all of it looked at?
    limit: int = 77  # tokens that the text encoder reads

    def texts(self, name: str = "") -> list[str]:
        """All captions; of one name where it is given."""
        return [
            text
            for one in self.samples
            for kind, texts in one.captions.items()
            if name in ("", kind)
            for text in texts
        ]

    @property
    def names(self) -> list[str]:
        return sorted({kind for one in self.samples for kind in one.captions})

    @property
    def stored(self) -> bool:
        """Is it a store of ours, which commands can be told to filter?"""
        return (Path(self.path) / ABOUT).is_file()

    @property
    def words(self) -> str:
        decoded = sum(one.decoded for one in self.samples)
        whole = "" if self.whole else ", the first of them"
        pictures = "all" if decoded == len(self.samples) else f"{decoded:,}"
        names = ", ".join(self.names) or "none"
        return (
            f"{len(self.samples):,} samples{whole}, {pictures} pictures decoded, captions: {names}"
        )

    def import_command(self, *options: str) -> str:
        """Reads it again, with these options, to a store of its own; what is a store already is
        filtered instead."""
        return data_command("import", self.path, "store", *options)


def read_captions(
    path: str, limit: int = 77, most: int = MOST, say: Callable[[str], None] | None = None
) -> CaptionSet:
    samples, broken = list[LookedAt](), list[tuple[str, str]]()
    given: Iterable[LookedAt | tuple[str, str]] = (
        _stored(Path(path)) if (Path(path) / ABOUT).is_file() else _given(path)
    )
    whole, tally = True, Tally("", most, say)
    for one in given:
        tally.tell(len(samples), f"{len(samples):,} samples looked at")
        if len(samples) + len(broken) >= most:
            whole = False
            break
        if isinstance(one, LookedAt):
            samples.append(one)
        else:
            broken.append(one)
    if not samples and not broken:
        raise BadInput(f"{path} holds no pictures with captions", "see docs/your-data.md")
    return CaptionSet(path, samples, broken, whole, limit)


def _stored(folder: Path) -> Iterator[LookedAt | tuple[str, str]]:
    store = PictureStore(folder, verify=False)
    for row in range(len(store)):
        try:
            split, wanted = SPLITS[int(store.rows[row]["split"])], is_decoded(row)
            if wanted and (fault := picture_fault(store.data(row), whole=True)):
                yield store.name(row), fault
            yield LookedAt(
                store.name(row),
                store.captions(row),
                split,
                store.rows[row]["sha"].tobytes().hex(),
                wanted,
            )
        except (FulcrumError, ValueError, IndexError, RecursionError) as error:
            yield f"sample {row}", first_line(error)


def _given(path: str) -> Iterator[LookedAt | tuple[str, str]]:
    for number, sample in enumerate(open_given(path)):
        if sample.fault:
            yield sample.name, sample.fault
        elif not sample.left:
            wanted = is_decoded(number)
            if fault := picture_fault(sample.data, wanted):
                yield sample.name, fault
            sha = hashlib.sha256(sample.data).hexdigest()
            yield LookedAt(sample.name, sample.captions, sample.split, sha, wanted)


def is_decoded(number: int) -> bool:
    """Of a large set some are enough, and they lie all over it: 5,000 of the 200,000 that are
    looked at."""
    return number % (1 << (number // DECODED).bit_length()) == 0


def picture_fault(data: bytes, whole: bool) -> str:
    """Why it cannot be used; by its header alone a picture that was cut off half-way is sound."""
    from io import BytesIO

    from PIL import Image

    if whole:
        try:
            decode(data)
        except (BadSample, OSError) as error:
            return str(error)
        return ""
    try:
        with Image.open(BytesIO(data)) as picture:
            return "" if min(picture.size) else "a picture without pixels"
    except Exception as error:  # Pillow raises many kinds on a broken file
        return f"the picture cannot be opened: {type(error).__name__}"


def data_command(what: str, path: str, to: str, *options: str) -> str:
    """`fulcrum data filter my_data my_data_clean --language en`, as a shell takes it."""
    whole = path.rstrip("/") or path
    return shlex.join(["fulcrum", "data", what, whole, f"{whole}_{to}", *options])


# --------------------------------------------------------------------------------------------------
# Some pictures of a data set with their captions, scored: does a caption fit its own picture better
# than another's?


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
        return sorted(
            (one for one in self.pairs if one.own <= one.other), key=lambda one: one.own - one.other
        )

    @property
    def stored(self) -> bool:
        return (Path(self.data) / ABOUT).is_file()

    @property
    def words(self) -> str:
        fit_well = len(self.pairs) - len(self.misfits)
        unread = f", {self.unread} captions could not be read" if self.unread else ""
        return (
            f"{len(self.pairs)} pairs scored by {self.scorer}: {fit_well} fit better than with"
            f" another's caption{unread}" + (f"; {self.warning}" if self.warning else "")
        )


def try_pairs(data: str, scorer: str, caption: str = "", most: int = PAIRS) -> PairTrial:
    """Score some pairs as they are, and with the captions of pictures half the sample away. A
    threshold on a score would be another for every network and every length of caption; which of
    two fits better is not."""
    score = open_scorer(scorer)
    assert score is not None, "nobody asks without a name"
    given = list(islice(_pairs(data, SIDES.get(scorer, SIDE), caption), most))
    if len(given) < FEWEST:
        raise BadInput(
            f"{data} holds {len(given)} pictures that can be scored",
            f"give {FEWEST} or more, or leave --score out",
        )
    readable = _legible(scorer, [text for _, _, text in given])
    legible = [one for one, can in zip(given, readable, strict=True) if can]
    unread = [text for (_, _, text), can in zip(given, readable, strict=True) if not can]
    if len(unread) > len(given) / 2 or len(legible) < FEWEST:
        raise BadInput(
            f"'{scorer}' cannot read {len(unread)} of {len(given)} captions, such as"
            f" {unread[0][:60]!r}",
            "the world's scorer knows the words of the embedded world; for others: --score"
            " clip=FOLDER",
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
    pairs = [
        ScoredPair(name, text, fits, less)
        for (name, _, text), fits, less, wrong in rows
        if text != wrong
    ]
    return PairTrial(scorer, pairs, len(unread), foreign(pictures) if scorer == WORLD else "", data)


def _legible(scorer: str, texts: Sequence[str]) -> list[bool]:
    """Of which captions can the scorer read most? The world's knows few words, others are taken to
    know all."""
    if scorer != WORLD:
        return [True] * len(texts)
    from fulcrum.data.world.scene import tokenize
    from fulcrum.networks.text import LONGEST, MOST_UNKNOWN, load_text

    known, words = load_text().tokenizer.index, [tokenize(text) for text in texts]
    return [
        0 < len(some) < LONGEST
        and sum(one not in known for one in some) <= MOST_UNKNOWN * len(some)
        for some in words
    ]


def _pairs(data: str, side: int, caption: str) -> Iterator[tuple[str, NDArray[np.uint8], str]]:
    """Name, picture (3, side, side), caption; of a store from all over it, of other data from its
    beginning. What cannot be opened, or has no caption, is passed over: another rule names it."""
    names = set[str]()
    for name, content, captions in samples_of(data, PAIRS):
        names |= set(captions)
        texts = captions.get(caption or "long") or (
            [] if caption else next(iter(captions.values()), [])
        )
        if not texts or not texts[0].strip():
            continue
        if (picture := square(content, side)) is not None:
            yield name, picture, texts[0]
    if caption and caption not in names:
        raise BadInput(f"no picture of {data} has a caption '{caption}'", nearest(caption, names))


def square(content: bytes, side: int, enlarge: bool = True) -> NDArray[np.uint8] | None:
    """A picture cut and resized to (3, side, side); None where it cannot be opened, or is smaller
    and must not be enlarged."""
    try:
        image = decode(content).image
    except (BadSample, OSError):
        return None
    if min(image.size) < side and not enlarge:
        return None
    return np.asarray(fit(image, (side, side)).image, np.uint8).transpose(2, 0, 1).copy()


def samples_of(
    data: str, count: int | None = None
) -> Iterator[tuple[str, bytes, dict[str, list[str]]]]:
    """Name, picture and captions; of a store some `count` from all over it."""
    if (Path(data) / ABOUT).is_file():
        store = PictureStore(Path(data), verify=False)
        for row in range(0, len(store), max(1, len(store) // (count or len(store) or 1))):
            yield store.name(row), store.data(row), store.captions(row)
    else:
        for sample in open_given(data):
            if not sample.fault and not sample.left:
                yield sample.name, sample.data, sample.captions
