"""A source without its worst pairs: the samples whose picture and caption fit least by a given score are left out.

Legend: n samples of the inner source, B samples asked for.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption import Chooser, wordings
from fulcrum.data.mix import MixSource, one_shaped
from fulcrum.data.source import Ids, Samples
from fulcrum.data.world.scene import Scenes
from fulcrum.data.world.words import STYLES


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
        """By the inner number: a mix of styles tells a sample the same way before and after the filter."""
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
    """A store's pictures without the worst share by these scores, one for each row of the store. Of pictures of several
    shapes the worst of all go, whatever their shape, and a batch still has one shape."""
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
