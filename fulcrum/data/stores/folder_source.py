"""A source of the user's own pictures: one split of an imported store, of one shape, at the run's
size.

Legend: B samples, H W pixels.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.captions import Chooser, drawn_prompts
from fulcrum.data.readers.pictures import CHANGES, Size, centre
from fulcrum.data.source import Ids, Samples, require_inside
from fulcrum.data.stores.picture_store import SPLITS, PictureStore, caption_names, local_folder
from fulcrum.files.sealed import sha256_text
from fulcrum.spec.errors import BadInput, nearest


class FolderSource:
    """Samples 0 to n - 1 of a split; of those with a stored `shape`, else all, which must be
    square. It knows no scenes: what is to be seen in a picture stands in its captions only."""

    has_scenes = False

    def __init__(
        self,
        path: str | Path,
        split: str = "train",
        size: int | None = None,
        count: int | None = None,
        threads: int = 1,
        shape: Size | None = None,
        store: PictureStore | None = None,
    ) -> None:
        self.store = store or PictureStore(local_folder(path))
        about = self.store.about
        self.path, self.split_name, self.size, self.threads = (
            path,
            split,
            size or about["size"],
            threads,
        )
        if self.size > about["size"]:
            raise BadInput(
                f"the run asks for pictures of {self.size} pixels, {path} holds {about['size']}:"
                " they would be enlarged",
                f"import them again with --size {self.size}, or --set data.size={about['size']}",
            )
        if split not in SPLITS:
            raise BadInput(f"no split is called '{split}'", nearest(split, SPLITS))
        self._count, self.stored = count, shape
        self.numbers = self._numbers(split, count)  # (n,) rows of the store
        w, h = shape or (about["size"],) * 2
        self.shape = (w * self.size // about["size"], h * self.size // about["size"])
        if not len(self.numbers):
            raise BadInput(
                f"{path} holds no pictures of the split '{split}': "
                + ", ".join(f"{name} {n:,}" for name, n in about["splits"].items()),
                "pictures to judge by are held out at import: --hold-out 0.05, or a field 'split'"
                " of samples",
            )
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the store itself: maps and open shards cannot travel."""
        return FolderSource, (
            self.path,
            self.split_name,
            self.size,
            self._count,
            self.threads,
            self.stored,
        )

    def _numbers(self, split: str, count: int | None) -> NDArray[np.int64]:
        numbers = self.store.split(split)[:count]
        buckets, square = self.store.rows["bucket"][numbers], (self.store.about["size"],) * 2
        wanted: NDArray[np.bool_] = buckets == self.store.buckets.index(self.stored or square)
        if self.stored is None and not wanted.all():
            raise BadInput(
                f"{self.path} holds pictures of several shapes among those of the split '{split}';"
                " they are wanted square",
                "import them again: an import holds square pictures out, and with --buckets "
                "only the training pictures keep their shapes",
            )
        return numbers[wanted]

    def __len__(self) -> int:
        return len(self.numbers)

    def fingerprint(self) -> str:
        facts = ["folder", self.store.about["content"], self.split_name, len(self), self.size]
        facts += [self.stored] if self.stored else []
        return sha256_text(repr(facts))

    def read(self, index: Ids) -> Samples:
        ids = np.asarray(index, dtype=np.int64)
        images = np.empty((len(ids), 3, self.shape[1], self.shape[0]), np.uint8)  # (B, 3, H, W)
        rows = self._rows(ids)

        def one(place: int) -> None:
            images[place] = self.store.picture(int(rows[place]), self.shape)

        if self._pool is None:
            for place in range(len(rows)):
                one(place)
        else:
            list(self._pool.map(one, range(len(rows)), chunksize=16))
        return Samples(images, None, ids)

    def geometry(self, index: Ids) -> NDArray[np.float32]:
        """(B, 4) original height and width in pixels as given, then top and left of the crop in
        pixels of the picture as it is read: an import crops the centre, so the original size and
        the stored shape say where."""
        rows = self.store.rows[self._rows(np.asarray(index, dtype=np.int64))]
        numbers = np.empty((len(rows), 4), np.float32)
        for row, about in enumerate(rows):
            given = (int(about["width"]), int(about["height"]))
            left, top, width, height = centre(given, self.store.buckets[int(about["bucket"])])
            if int(about["changes"]) >> CHANGES.index("padded") & 1:
                left = top = 0  # all of it is there
            numbers[row] = (
                given[1],
                given[0],
                top * self.shape[1] / height,
                left * self.shape[0] / width,
            )
        return numbers

    def scenes(self, index: Ids) -> Any:
        raise BadInput(
            f"{self.path} has no scenes: only the embedded world knows what is drawn where"
        )

    def styles(self) -> tuple[str, ...]:
        """Names of the captions that every picture has."""
        return caption_names(self.store.about)

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        """The caption that each sample is judged by: fixed by the sample. In training it is drawn
        at each reading."""
        ids = np.asarray(index, dtype=np.int64)
        return drawn_prompts(self, chooser, ids, ids)

    def wordings(self, chooser: Chooser, index: Ids) -> list[list[str]]:
        """Every caption of each sample under the one name that is chosen."""
        (name,) = chooser.styles
        if name not in self.styles():
            having = self.store.about["captions"].get(name, 0)
            raise BadInput(
                f"not every picture of {self.path} has a caption '{name}': {having:,} of "
                f"{self.store.about['count']:,}; all have: {', '.join(self.styles()) or 'none'}",
                "choose by name: --set \"data.caption=named_captions(names=('...',))\", and so"
                " sample.prompts",
            )
        return [
            self._captions(int(row))[name] for row in self._rows(np.asarray(index, dtype=np.int64))
        ]

    def _captions(self, row: int) -> Mapping[str, list[str]]:
        return self.store.captions(row)

    def _rows(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        require_inside(index, len(self))
        return self.numbers[index]
