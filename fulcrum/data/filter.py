"""A source without its worst pairs: the samples whose picture and caption fit least by a given score are left out.

Legend: n samples of the inner source, B samples asked for.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption import Chooser, wordings
from fulcrum.data.source import Ids, Samples, WorldSource
from fulcrum.data.world.scene import Scenes


def keep_best(scores: NDArray[np.floating[Any]], drop: float) -> NDArray[np.int64]:
    """Numbers of the samples that stay, in their old order; `drop` is the share that goes, equal scores by number."""
    scores = np.asarray(scores)
    if scores.ndim != 1 or not np.isfinite(scores).all():
        raise ValueError(f"expected one finite score per sample, found {scores.dtype} of shape {scores.shape}")
    if not 0 <= drop < 1:
        raise ValueError(f"the share to drop must be at least 0 and below 1; found {drop}")
    gone = int(round(drop * len(scores)))
    if gone == len(scores):
        raise ValueError(f"dropping {drop:g} of {len(scores)} samples leaves none; give the source more, or drop less")
    return np.sort(np.argsort(scores, kind="stable")[gone:]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class FilteredSource:
    """The kept samples of another source, numbered 0 to n - 1."""

    inner: WorldSource
    kept: NDArray[np.int64]  # (kept,) numbers within the inner source, ascending

    def __len__(self) -> int:
        return len(self.kept)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"filtered {self.inner.fingerprint()}".encode())
        digest.update(self.kept.astype("<i8").tobytes())
        return digest.hexdigest()

    def read(self, index: Ids) -> Samples:
        samples = self.inner.read(self.kept[index])
        return Samples(samples.images, samples.scenes, np.asarray(index, dtype=np.int64))

    def scenes(self, index: Ids) -> Scenes:
        return self.inner.scenes(self.kept[index])

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        """By the inner number: a mix of styles tells a sample the same way before and after the filter."""
        return self.inner.prompts(chooser, self.kept[index])

    def geometry(self, index: Ids) -> NDArray[np.float32]:
        return self.inner.geometry(self.kept[index])

    def wordings(self, chooser: Chooser, index: Ids) -> list[list[str]]:
        return wordings(self.inner, chooser, self.kept[index])

    def planted(self, index: Ids) -> NDArray[np.bool_]:
        """(B,) which of the kept samples carry a wrong caption."""
        return self.inner.planted(self.kept[index])
