"""Evaluate: an extractor's rows, a metric over them, a number with its interval."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.judge.card import Measured, MetricCard, Sampling
from fulcrum.measure.features.extractor import Extractor, full_name, to_uint8
from fulcrum.measure.features.kept import Ids, Rows, Scores
from fulcrum.measure.metrics.base import Distance, answered
from fulcrum.spec.errors import BadInput

# --------------------------------------------------------------------------------------------------
# The one evaluation path: an extractor's rows, a metric over them, a number with its interval and
# its card.
#
# Runs, studies, judges that a plan names and folders of pictures all come through here; they differ
# in where pictures and their reference come from, and in what else is known of a picture (a
# caption, a scene).
#
# B pictures of a batch, n of all, d feature width


class Comparison(NamedTuple):
    """A network, and the metrics over what it sees."""

    extractor: Extractor
    metrics: Sequence[Distance]


class FeatureSet:
    """What every comparison gathers of one set of pictures. Batches may come in any order and any
    split."""

    def __init__(
        self, comparisons: Sequence[Comparison], reference: bool = False, keep_rows: bool = False
    ) -> None:
        self.extractors = {  # those whose features are asked for, not only scores
            part.name: part
            for part, metrics in comparisons
            if any(not _of_scores(metric) for metric in metrics)
        }
        self.gathered: dict[str, dict[type, Any]] = {
            part.name: {metric.gathers: metric.gather(part.width, reference) for metric in metrics}
            for part, metrics in comparisons
        }
        # (extractor, scores or features): pictures
        self.seen: Counter[tuple[str, bool]] = Counter()
        if keep_rows:
            for part, _ in comparisons:
                self.gathered[part.name].setdefault(Rows, Rows(part.width))

    def look(self, images: Tensor, ids: Ids) -> None:
        """Every extractor sees uint8 pictures (B, 3, H, W) while they are in memory; ids (B,)
        number them."""
        images = to_uint8(images)
        if ids.shape != (len(images),):
            raise ValueError(
                f"expected an image index for each of {len(images)} rows, found shape {ids.shape}"
            )
        for name, part in self.extractors.items():
            self.update(name, part.rows(images), ids)

    def update(self, name: str, rows: Tensor, ids: Ids) -> None:
        """Takes in features of one extractor.  rows (B, d)"""
        self._take(name, rows, ids, scores=False)

    def score(self, name: str, rows: Tensor, ids: Ids) -> None:
        """Takes in what was found of each picture beside its features.  rows (B, k)"""
        self._take(name, rows, ids, scores=True)

    def of(self, name: str, metric: Distance) -> Any:
        """What this metric gathered."""
        return self.gathered[name][metric.gathers]

    def count(self, name: str, metric: Distance) -> int:
        """Pictures that this metric has seen."""
        return self.seen[name, _of_scores(metric)]

    def _take(self, name: str, rows: Tensor, ids: Ids, scores: bool) -> None:
        self.seen[name, scores] += len(ids)
        for kind, gathering in self.gathered[name].items():
            if issubclass(kind, Scores) == scores:
                gathering.update(rows, ids)


def compare(
    comparisons: Sequence[Comparison],
    pictures: FeatureSet,
    reference: FeatureSet,
    n: int,
    reference_keys: Mapping[str, str],
    sampling: Sampling | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Measured]:
    """Every metric of n pictures under its full name; refuses any other number of pictures than n.

    reference_keys  what the cards call the reference, by extractor
    """
    measured: dict[str, Measured] = {}
    for part, metrics in comparisons:
        for metric in metrics:
            name = full_name(part, metric.name)
            if progress:
                progress(name)
            count = pictures.count(part.name, metric)
            if count != n:
                raise ValueError(
                    f"expected {n} images, {name} saw {count}: N is part of the card and never"
                    " bends"
                )
            if n < metric.minimum:
                raise BadInput(
                    f"{name} needs at least {metric.minimum} pictures, found {n}",
                    "draw or take more of them",
                )
            held, key = (
                (reference.of(part.name, metric), reference_keys[part.name])
                if metric.referenced
                else (None, None)
            )
            value, low, high = answered(metric, name, pictures.of(part.name, metric), held)
            card = card_of(
                metric,
                part,
                n,
                key,
                sampling or Sampling(),
                metric.caution(pictures.of(part.name, metric)),
            )
            measured[name] = Measured(value=value, low=low, high=high, card=card)
    return measured


def _of_scores(metric: Distance) -> bool:
    return issubclass(metric.gathers, Scores)


def card_of(
    metric: Distance,
    part: Extractor,
    n: int,
    reference: str | None,
    sampling: Sampling,
    caution: str | None = None,
) -> MetricCard:
    estimator, interval = metric.described(part.width)
    return MetricCard(
        metric=full_name(part, metric.name),
        better=metric.better,
        estimator=estimator,
        interval=interval,
        extractor=part.hash,
        resize=part.resize,
        value_range="uint8",
        n=n,
        reference=reference,
        caution=caution,
        code=metric.code,
        **sampling.model_dump(),
    )


# --------------------------------------------------------------------------------------------------
# Sample-size curves: a metric at N/8, N/4, N/2 and N of the same pictures, so that its bias can be
# seen.
#
# n rows, d feature width


class Point(NamedTuple):
    n: int
    value: float
    low: float
    high: float


def sizes(n: int, smallest: int) -> list[int]:
    """n, n/2, n/4, n/8, as far as the metric can go."""
    return sorted({n // share for share in (1, 2, 4, 8) if n // share >= smallest})


def curve(metric: Distance, pictures: Rows, reference: Any) -> list[Point]:
    """Nested subsets in a fixed random order: names often sort pictures by subject."""
    order = torch.randperm(pictures.n, generator=torch.Generator().manual_seed(0))
    points = []
    for size in sizes(pictures.n, metric.minimum):
        part = metric.gather(pictures.width, False)
        part.update(pictures.rows[order[:size]], np.arange(size))
        points.append(
            Point(size, *answered(metric, f"{metric.name} of {size} pictures", part, reference))
        )
    return points
