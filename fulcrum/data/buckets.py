"""Pictures of several shapes: one source for each shape, dealt whole batches, so that every batch
has one shape.

A batch's shape, and its samples, are functions of (seed, position // batch): any number of
processes, any cut of the batch into parts and any resume see the same one. Each shape has its own
endless shuffle and gets its share of the batches, to within one: nothing is dropped, and no picture
is seen more often than another.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fulcrum.data.mix import MixSource
from fulcrum.data.readers.pictures import Size
from fulcrum.data.stores.folder_source import FolderSource
from fulcrum.data.stores.picture_store import PictureStore, local_folder
from fulcrum.files.sealed import sha256_text
from fulcrum.spec.errors import BadInput


class BucketSource(MixSource):
    """One split of an imported store, its shapes side by side; samples are numbered shape by
    shape."""

    def __init__(
        self,
        path: str | Path,
        split: str,
        size: int | None,
        count: int | None,
        batch: int,
        store: PictureStore | None = None,
    ) -> None:
        store = store or PictureStore(local_folder(path))
        self.given = (path, split, size, count, batch)
        shapes = shapes_of(store, split, count)
        parts = [
            FolderSource(path, split, size, count, shape=shape, store=store) for shape in shapes
        ]
        super().__init__(parts, [len(part) for part in parts], unit=batch)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the store itself, once for all shapes."""
        return BucketSource, self.given

    def fingerprint(self) -> str:
        return sha256_text(repr(["buckets", *(one.fingerprint() for one in self.sources)]))

    def shapes_in_words(self) -> str:
        """What a batch of one shape means here, and which shapes are too rare to fill one."""
        rare = [
            f"{w} x {h} ({len(one)})"
            for one in self.sources
            for w, h in [one.shape]
            if len(one) < self.unit
        ]
        return (
            f"{len(self):,} pictures of {len(self.sources)} shapes; a batch of {self.unit} has one"
            " of them"
            + (
                "; repeated within their batches, for they are too few to fill one:"
                f" {', '.join(rare)}"
                if rare
                else ""
            )
        )


def shapes_of(store: PictureStore, split: str, count: int | None = None) -> list[Size]:
    """The shapes that pictures of a split have."""
    return [
        store.buckets[int(one)]
        for one in np.unique(store.rows["bucket"][store.split(split)[:count]])
    ]


def open_pictures(
    path: str, split: str, size: int, count: int | None, batch: int, unit: int
) -> Any:
    """The pictures of a split at the run's size: of one shape where they are square, else dealt by
    shape."""
    store = PictureStore(local_folder(path))
    square = (store.about["size"],) * 2
    if split != "train" or set(shapes_of(store, split, count)) <= {square}:
        return FolderSource(path, split, size, count, store=store)
    source = BucketSource(path, split, size, count, batch, store)
    _require_whole(path, source.sources, size, unit)
    return source


def _require_whole(path: str, parts: Sequence[FolderSource], size: int, unit: int) -> None:
    """Every shape must be a whole number of tokens."""
    odd = [part for part in parts if any(side % unit for side in part.shape)]
    if odd:
        (w, h), stored = odd[0].shape, odd[0].store.about["size"]
        raise BadInput(
            f"{path} holds pictures that are {w} x {h} at data.size {size}; this run needs sides"
            f" that are multiples of {unit}",
            f"import them again with --bucket-step {unit * stored // size}, or without --buckets",
        )
