"""Sample-size curves: a metric at N/8, N/4, N/2 and N of the same pictures, so that its bias can be seen.

n rows, d feature width
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from fulcrum.measure.features.gathered import Rows
from fulcrum.measure.metrics.base import Distance
from fulcrum.measure.metrics.checked_answer import answered


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
        points.append(Point(size, *answered(metric, f"{metric.name} of {size} pictures", part, reference)))
    return points
