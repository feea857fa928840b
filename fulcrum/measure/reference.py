"""Reference pictures as comparisons see them: features computed once and kept, with what metrics derive from them alone.

m reference rows, d feature width
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fulcrum.files.array_store import Arrays, ArrayStore
from fulcrum.measure.card import MEASURE_VERSION
from fulcrum.measure.evaluate import Comparison, FeatureSet
from fulcrum.measure.features.extractor import Extractor, digest_of
from fulcrum.measure.features.gathered import Rows
from fulcrum.measure.floors import PICTURES, Limits, limit_counts, limits_of
from fulcrum.measure.metrics.attributes import SHARES
from fulcrum.measure.metrics.distances import KernelDistance

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
        return torch.from_numpy(np.array(self.store.get("features", facts, range(-(-count // CHUNK)), chunk)["rows"]))

    def features(self, source: Any, comparisons: Sequence[Comparison], most: int) -> FeatureSet:
        """What every comparison needs of the reference. Sums over pairs of it are read, not made again."""
        gathered = FeatureSet(comparisons, reference=True)
        for part, metrics in comparisons:
            rows = self.rows(source, part, most)
            gathered.update(part.name, rows, np.arange(len(rows)))
            for metric in metrics:
                if isinstance(metric, KernelDistance):
                    self._recall(metric, gathered.of(part.name, metric), _facts(source, part))
        return gathered

    def limits(self, source: Any, judge: Extractor) -> dict[str, Limits]:
        """Floors and ceiling of every share by this judge, for scenes like those of the reference."""
        count = min(len(source), PICTURES)

        def chunk(number: int) -> Arrays:
            index = np.arange(number * CHUNK, min((number + 1) * CHUNK, count))
            return {"counts": limit_counts(source, judge, index, count)}

        facts = _facts(source, judge) | {"shares": SHARES, "count": count, "code": MEASURE_VERSION}
        return limits_of(np.array(self.store.get("floors", facts, range(-(-count // CHUNK)), chunk)["counts"]))

    def _recall(self, metric: KernelDistance, reference: Rows, facts: dict[str, Any]) -> None:
        def chunk(number: int) -> Arrays:
            return {"constants": np.array([metric.constants(reference)])}

        facts |= {"metric": metric.name, "code": metric.code, "count": reference.n}
        bandwidth, own = np.array(self.store.get("constants", facts, range(1), chunk)["constants"])[0].tolist()
        metric.remember(reference, bandwidth, own)


def reference_key(source: Any, part: Extractor, most: int) -> str:
    """Names a reference on a card: the pictures and the network that looks at them, the same on every machine.

    Two forms, one for each kind of network, since cards of finished cells hold them.
    """
    if part.name == "embedded":
        count = min(len(source), most)
        return digest_of("reference", source.fingerprint(), part.hash, count, MEASURE_VERSION)[:32]
    return digest_of("judged", source.fingerprint(), part.hash)[:32]


def _facts(source: Any, part: Extractor) -> dict[str, Any]:
    return {"source": source.fingerprint(), "extractor": part.hash}
