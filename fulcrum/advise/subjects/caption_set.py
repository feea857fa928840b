"""A data set by its captions and pictures' bytes: an image folder, shards, a table, an imported store."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from fulcrum.data.readers.reader import open_given
from fulcrum.data.store.picture_store import ABOUT, SPLITS, PictureStore
from fulcrum.spec.errors import BadInput, FulcrumError

MOST = 200_000  # samples that are looked at; captions of a larger set are like those of its beginning
SHOWN = 5


class LookedAt(NamedTuple):
    """One sample, as far as the rules need it."""

    name: str
    captions: dict[str, list[str]]
    split: str
    sha: str  # of the picture's bytes


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


def read_captions(path: str, limit: int = 77, most: int = MOST) -> CaptionSet:
    samples, broken = list[LookedAt](), list[tuple[str, str]]()
    given: Iterable[LookedAt | tuple[str, str]] = _stored(Path(path)) if (Path(path) / ABOUT).is_file() else _given(path)
    whole = True
    for one in given:
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
            split = SPLITS[int(store.rows[row]["split"])]
            yield LookedAt(store.name(row), store.captions(row), split, store.rows[row]["sha"].tobytes().hex())
        except (FulcrumError, ValueError, IndexError, RecursionError) as error:
            yield f"sample {row}", str(error)


def _given(path: str) -> Iterator[LookedAt | tuple[str, str]]:
    for sample in open_given(path):
        if sample.fault:
            yield sample.name, sample.fault
        elif not sample.left:
            fault = _picture_fault(sample.data)
            if fault:
                yield sample.name, fault
            yield LookedAt(sample.name, sample.captions, sample.split, hashlib.sha256(sample.data).hexdigest())


def _picture_fault(data: bytes) -> str:
    """Can its header be read? The pixels are not decoded: `fulcrum data import` does that."""
    from io import BytesIO

    from PIL import Image

    try:
        with Image.open(BytesIO(data)) as picture:
            return "" if min(picture.size) else "a picture without pixels"
    except Exception as error:  # Pillow raises many kinds on a broken file
        return f"the picture cannot be opened: {type(error).__name__}"


def commonest(texts: Iterable[str]) -> list[tuple[str, int]]:
    return Counter(texts).most_common(SHOWN)
