"""Reference pictures with cached features, and the floors of the metrics."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.files.array_store import Arrays, ArrayStore
from fulcrum.judge.card import MEASURE_VERSION
from fulcrum.measure.evaluate import Comparison, FeatureSet
from fulcrum.measure.features.extractor import Extractor, digest_of
from fulcrum.measure.features.kept import Rows
from fulcrum.measure.metrics.distances import KernelDistance
from fulcrum.measure.metrics.means import SHARES, count_rows, pooled, score
from fulcrum.spec.keyed import key, uniform

# --------------------------------------------------------------------------------------------------
# What a share is worth: its values on pictures that show nothing of what was asked for, and on real
# ones.
#
# A judge gives points to anything. Uniform noise, a grey picture and the picture of another scene
# say where a share begins, real pictures where it ends; a model between noise and the picture of
# another scene has not learned it.
#
# B pictures of a chunk, n of all, 2k counts of a picture


PICTURES = 1024  # reference pictures that are looked at
FLOORS = ("noise", "grey", "another scene")


# A floor lies below the ceiling. Noise has every object that was asked for and grey has none too
# many: neither is a floor of those two shares, which mean little alone.
DISTINCT = 0.05


class Limits(NamedTuple):
    """The ends of one share's scale."""

    floors: dict[str, float]
    ceiling: float


def limit_counts(
    source: Any, judge: Extractor, index: NDArray[np.int64], count: int
) -> NDArray[np.int64]:
    """What is right in some of the first `count` reference pictures, and in what stands in for
    them.  (B, 4, 2k)"""
    images = torch.from_numpy(source.read(index).images)  # (B, 3, S, S) uint8
    truth, other = source.scenes(index).grid(), source.scenes((index + 1) % count).grid()
    real = _judged(judge, images)
    noise, grey = (
        _judged(judge, noise_pictures(index, images.shape[2])),
        _judged(judge, torch.full_like(images, 128)),
    )
    # FLOORS, then the ceiling
    pairs = ((noise, truth), (grey, truth), (real, other), (real, truth))
    return np.stack([count_rows(score(*pair)).numpy().astype(np.int64) for pair in pairs], axis=1)


def limits_of(counts: NDArray[np.int64]) -> dict[str, Limits]:
    """The limits of every share, from the counts of all pictures.  (n, 4, 2k)"""
    *floors, real = (pooled(counts[:, k]) for k in range(counts.shape[1]))
    limits = {}
    for share in SHARES:
        worth = {name: round(values[share], 4) for name, values in zip(FLOORS, floors, strict=True)}
        apart = {
            name: value for name, value in worth.items() if abs(value - real[share]) > DISTINCT
        }
        limits[share] = Limits(apart, round(real[share], 4))
    return limits


def noise_pictures(index: NDArray[np.int64], side: int) -> Tensor:
    """Every number uniform and on its own, keyed by the picture's number.  (B, 3, S, S) uint8"""
    numbers = uniform(key("noise floor", index), 3 * side * side)
    return torch.from_numpy((256 * numbers).astype(np.uint8)).reshape(-1, 3, side, side)


def _judged(judge: Extractor, images: Tensor) -> Mapping[str, Tensor]:
    network: Any = judge.network
    answers: Mapping[str, Tensor] = network.judge(images)
    return answers


# --------------------------------------------------------------------------------------------------
# Reference pictures as comparisons see them: features computed once and kept, with what metrics
# derive from them alone.
#
# m reference rows, d feature width


CHUNK = 256  # pictures read at a time


class References:
    """Features of real pictures in a cache."""

    def __init__(self, cache: Path) -> None:
        self.store = ArrayStore(cache / "judges")

    def rows(self, source: Any, part: Extractor, most: int | None = None) -> Tensor:
        """Features of a source's pictures, or of its first `most`.  (m, d)"""
        count = min(len(source), most or len(source))

        def chunk(number: int) -> Arrays:
            index = np.arange(number * CHUNK, min((number + 1) * CHUNK, count))
            return {"rows": part.rows(torch.from_numpy(source.read(index).images)).numpy()}

        facts = _facts(source, part) | ({"count": count} if count < len(source) else {})
        return torch.from_numpy(
            np.array(self.store.get("features", facts, range(-(-count // CHUNK)), chunk)["rows"])
        )

    def features(self, source: Any, comparisons: Sequence[Comparison], most: int) -> FeatureSet:
        """What every comparison needs of the reference. Sums over pairs of it are read, not made
        again."""
        gathered = FeatureSet(comparisons, reference=True)
        for part, metrics in comparisons:
            rows = self.rows(source, part, most)
            gathered.update(part.name, rows, np.arange(len(rows)))
            for metric in metrics:
                if isinstance(metric, KernelDistance):
                    self._recall(metric, gathered.of(part.name, metric), _facts(source, part))
        return gathered

    def limits(self, source: Any, judge: Extractor) -> dict[str, Limits]:
        """Floors and ceiling of every share by this judge, for scenes like those of the
        reference."""
        count = min(len(source), PICTURES)

        def chunk(number: int) -> Arrays:
            index = np.arange(number * CHUNK, min((number + 1) * CHUNK, count))
            return {"counts": limit_counts(source, judge, index, count)}

        facts = _facts(source, judge) | {"shares": SHARES, "count": count, "code": MEASURE_VERSION}
        return limits_of(
            np.array(self.store.get("floors", facts, range(-(-count // CHUNK)), chunk)["counts"])
        )

    def _recall(self, metric: KernelDistance, reference: Rows, facts: dict[str, Any]) -> None:
        def chunk(number: int) -> Arrays:
            return {"constants": np.array([metric.constants(reference)])}

        facts |= {"metric": metric.name, "code": metric.code, "count": reference.n}
        bandwidth, own = np.array(self.store.get("constants", facts, range(1), chunk)["constants"])[
            0
        ].tolist()
        metric.remember(reference, bandwidth, own)


def reference_key(source: Any, part: Extractor, most: int) -> str:
    """Names a reference on a card: the pictures and the network that looks at them, the same on
    every machine.

    Two forms, one for each kind of network, since cards of finished cells hold them.
    """
    if part.name == "embedded":
        count = min(len(source), most)
        return digest_of("reference", source.fingerprint(), part.hash, count, MEASURE_VERSION)[:32]
    return digest_of("judged", source.fingerprint(), part.hash)[:32]


def _facts(source: Any, part: Extractor) -> dict[str, Any]:
    return {"source": source.fingerprint(), "extractor": part.hash}
