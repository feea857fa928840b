"""A source of the user's own pictures: one split of an imported store, square, at the run's size.

Legend: B samples, S image side.
"""
from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption import Chooser
from fulcrum.data.keyed import key, uniform
from fulcrum.data.source import Ids, Samples
from fulcrum.data.store import SPLITS, PictureStore
from fulcrum.spec.errors import BadInput, nearest


class FolderSource:
    """Samples 0 to n - 1 of a split. It knows no scenes: what is to be seen in a picture stands in its captions only."""

    has_scenes = False

    def __init__(self, path: str | Path, split: str = "train", size: int | None = None, count: int | None = None,
                 threads: int = 1) -> None:
        self.store = PictureStore(Path(path).expanduser())
        about = self.store.about
        self.path, self.split_name, self.size, self.threads = Path(path), split, size or about["size"], threads
        shapes = {shape for shape in self.store.buckets if shape[0] != shape[1]}
        if shapes:
            raise BadInput(f"{path} holds pictures of {len(self.store.buckets)} shapes; training takes one square shape",
                           "import them again without --buckets: then they are cropped, and the ledger says so")
        if self.size > about["size"]:
            raise BadInput(f"the run asks for pictures of {self.size} pixels, {path} holds {about['size']}: they would be "
                           "enlarged", f"import them again with --size {self.size}, or --set data.size={about['size']}")
        if split not in SPLITS:
            raise BadInput(f"no split is called '{split}'", nearest(split, SPLITS))
        self._count = count
        self.numbers = self.store.split(split)[:count]          # (n,) rows of the store
        if not len(self.numbers):
            raise BadInput(f"{path} holds no pictures of the split '{split}': " +
                           ", ".join(f"{name} {n:,}" for name, n in about["splits"].items()),
                           "pictures to judge by are held out at import: --hold-out 0.05, or a field 'split' of samples")
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the store itself: maps and open shards cannot travel."""
        return FolderSource, (self.path, self.split_name, self.size, self._count, self.threads)

    def __len__(self) -> int:
        return len(self.numbers)

    def fingerprint(self) -> str:
        facts = ["folder", self.store.about["content"], self.split_name, len(self), self.size]
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def read(self, index: Ids) -> Samples:
        ids = np.asarray(index, dtype=np.int64)
        images = np.empty((len(ids), 3, self.size, self.size), np.uint8)         # (B, 3, S, S)
        rows = self._rows(ids)

        def one(place: int) -> None:
            images[place] = self.store.picture(int(rows[place]), self.size)

        if self._pool is None:
            for place in range(len(rows)):
                one(place)
        else:
            list(self._pool.map(one, range(len(rows)), chunksize=16))
        return Samples(images, None, ids)

    def scenes(self, index: Ids) -> Any:
        raise BadInput(f"{self.path} has no scenes: only the embedded world knows what is drawn where")

    def styles(self) -> tuple[str, ...]:
        """Names of the captions that every picture has."""
        about = self.store.about
        return tuple(name for name, count in about["captions"].items() if count == about["count"])

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        """The caption of each sample; of several with one name, one that is fixed by the sample."""
        ids = np.asarray(index, dtype=np.int64)
        unknown = [name for name, weight in zip(chooser.styles, chooser.weights, strict=True)
                   if weight and name not in self.styles()]
        if unknown:
            some = self.store.about["captions"].get(unknown[0], 0)
            raise BadInput(f"not every picture of {self.path} has a caption '{unknown[0]}': {some:,} of "
                           f"{self.store.about['count']:,}; all have: {', '.join(self.styles()) or 'none'}",
                           "choose by name: --set \"data.caption=named_captions(names=('...',))\", and so sample.prompts")
        picked = chooser.pick(ids)
        u = uniform(key("caption of several", ids), 1)[:, 0]
        told = []
        for row, style, share in zip(self._rows(ids), picked, u, strict=True):
            texts = self._captions(int(row))[chooser.styles[style]]
            told.append(texts[int(share * len(texts))])
        return told

    def _captions(self, row: int) -> Mapping[str, list[str]]:
        return self.store.captions(row)

    def _rows(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        if index.size and (int(index.min()) < 0 or int(index.max()) >= len(self)):
            raise IndexError(f"this source holds samples 0 to {len(self) - 1}; asked for {int(index.min())} to "
                             f"{int(index.max())}: wrap the index with fulcrum.data.order")
        return self.numbers[index]
