"""Sources: numbered, fingerprinted collections of pictures; the embedded world is one.

Legend: B samples, S image side.
"""
from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.world.render import DOMAINS, SMALLEST, render
from fulcrum.data.world.scene import SPLITS, Scenes, scenes
from fulcrum.data.world.vocabulary import MAX_OBJECTS, WORLD_VERSION
from fulcrum.data.world.words import STYLES, captions


class Samples(NamedTuple):
    images: NDArray[np.uint8]           # (B, 3, S, S)
    scenes: Scenes
    ids: NDArray[np.int64]              # (B,) number of each sample within its source


class Source(Protocol):
    """Samples by number. Equal fingerprints promise equal samples: caches and run keys are built on it."""

    def __len__(self) -> int: ...

    def fingerprint(self) -> str: ...

    def read(self, index: NDArray[np.integer[Any]]) -> Samples: ...

    def scenes(self, index: NDArray[np.integer[Any]]) -> Scenes: ...


@dataclass(frozen=True)
class WorldSource:
    """The first `count` scenes of one split of the embedded world, drawn in one domain at one size."""

    split: str
    domain: str
    size: int
    count: int
    max_objects: int = 3
    threads: int = 1                    # speed only: the bytes and the fingerprint do not depend on it

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

    def __len__(self) -> int:
        return self.count

    def scenes(self, index: NDArray[np.integer[Any]]) -> Scenes:
        """The descriptions alone, without drawing them."""
        index = np.asarray(index)
        if index.size and (int(index.min()) < 0 or int(index.max()) >= self.count):
            raise IndexError(f"this source holds samples 0 to {self.count - 1}; asked for {int(index.min())} to "
                             f"{int(index.max())}: raise its count or wrap the index with fulcrum.data.order")
        return scenes(self.split, index, self.max_objects)

    def read(self, index: NDArray[np.integer[Any]]) -> Samples:
        chosen = self.scenes(index)
        return Samples(render(chosen, self.size, self.domain, self.threads), chosen, chosen.index)

    def fingerprint(self) -> str:
        """Hash of version and settings, and of some pictures and captions: a changed generator cannot keep it."""
        probe = np.unique(np.linspace(0, self.count - 1, 8).astype(np.int64))
        samples = self.read(probe)
        settings = {"world": WORLD_VERSION, "split": self.split, "domain": self.domain, "size": self.size,
                    "count": self.count, "max_objects": self.max_objects}
        told = [captions(samples.scenes, style).texts for style in STYLES]
        digest = hashlib.sha256(json.dumps([settings, told], sort_keys=True).encode())
        digest.update(samples.images.tobytes())
        return digest.hexdigest()
