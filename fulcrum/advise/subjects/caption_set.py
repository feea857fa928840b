"""A data set by its captions and pictures' bytes: an image folder, shards, a table, an imported store."""

import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fulcrum.data.readers.pictures import BadSample, decode
from fulcrum.data.readers.reader import open_given
from fulcrum.data.stores.picture_store import ABOUT, SPLITS, PictureStore
from fulcrum.spec.errors import BadInput, FulcrumError, first_line
from fulcrum.spec.progress import Tally

MOST = 200_000  # samples that are looked at; captions of a larger set are like those of its beginning
SHOWN = 5
DECODED = 1024  # pictures that are decoded one by one; of twice as many every second, of four times every fourth


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
            text for one in self.samples for kind, texts in one.captions.items() if name in ("", kind) for text in texts
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
        return f"{len(self.samples):,} samples{whole}, {pictures} pictures decoded, captions: {names}"

    def import_command(self, *options: str) -> str:
        """Reads it again, with these options, to a store of its own; what is a store already is filtered instead."""
        return data_command("import", self.path, "store", *options)


def read_captions(path: str, limit: int = 77, most: int = MOST, say: Callable[[str], None] | None = None) -> CaptionSet:
    samples, broken = list[LookedAt](), list[tuple[str, str]]()
    given: Iterable[LookedAt | tuple[str, str]] = _stored(Path(path)) if (Path(path) / ABOUT).is_file() else _given(path)
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
            yield LookedAt(store.name(row), store.captions(row), split, store.rows[row]["sha"].tobytes().hex(), wanted)
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
    """Of a large set some are enough, and they lie all over it: 5,000 of the 200,000 that are looked at."""
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


def commonest(texts: Iterable[str]) -> list[tuple[str, int]]:
    return Counter(texts).most_common(SHOWN)
