"""Does a picture show what it is called? A linear map from a vision network to a sentence encoder's vectors of names.

Fitted by ridge regression on real training pictures and their names; the strength of the penalty is chosen on pictures of
validation concepts. A picture is then given the nearest of the held-out names. Without a model that was trained on pairs of
pictures and texts (CLIP) this is what two separate networks can tell: real pictures of unseen concepts find their name far
above chance, and far from always. Compare with what real pictures reach; never read it as an accuracy.

n pictures, K names, d feature width, E text width
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.measure.card import METRICS
from fulcrum.measure.features.gathered import Rows
from fulcrum.measure.metrics.base import Distance
from fulcrum.measure.metrics.interval import Interval, student_quantile

LADDER = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # penalties, in units of a standardised feature's variance


class NamedRows(NamedTuple):
    """Pictures with the names they go by."""

    rows: Tensor  # (n, d)
    names: Sequence[str]  # n


class Namer(NamedTuple):
    mean: Tensor  # (d,) of the training features, and their deviation
    scale: Tensor
    weights: Tensor  # (d, E)
    centre: Tensor  # (E,) mean of the training names' vectors
    penalty: float

    def scores(self, rows: Tensor, vectors: Tensor) -> Tensor:
        """Cosine of what each picture says with each name's vector, both about the centre.  (n, d), (K, E) -> (n, K)"""
        directions = ((rows.double() - self.mean) / self.scale) @ self.weights
        names = vectors.double() - self.centre
        return torch.nn.functional.normalize(directions, dim=1) @ torch.nn.functional.normalize(names, dim=1).T


def fit(train: NamedRows, validation: NamedRows, vectors: dict[str, Tensor]) -> Namer:
    """The map with the penalty that ranks the names of validation pictures best; `vectors` holds each name's (E,)."""
    rows = train.rows.double()
    mean, scale = rows.mean(0), rows.std(0).clamp_min(1e-6)
    wanted = torch.stack([vectors[name] for name in train.names]).double()
    centre = wanted.mean(0)
    x = (rows - mean) / scale
    gram, cross = x.T @ x, x.T @ (wanted - centre)
    values, axes = torch.linalg.eigh(gram)
    turned = axes.T @ cross
    held = {name: vectors[name] for name in set(validation.names)}
    best: tuple[float, Namer] | None = None
    for penalty in LADDER:
        weights = axes @ (turned / (values.clamp_min(0) + penalty * len(rows))[:, None])
        namer = Namer(mean, scale, weights, centre, penalty)
        rank = float(ranks(namer, validation, held)[0].mean())
        if best is None or rank > best[0]:
            best = rank, namer
    assert best is not None
    return best[1]


def ranks(namer: Namer, pictures: NamedRows, vectors: dict[str, Tensor]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Of each picture: the share of the other names that fit worse than its own (chance: 0.5), and whether none fits
    better. The names to choose from are all of `vectors`."""
    names = sorted(vectors)
    scores = namer.scores(pictures.rows, torch.stack([vectors[name] for name in names])).numpy()  # (n, K)
    place = {name: number for number, name in enumerate(names)}
    own = scores[np.arange(len(scores)), [place[name] for name in pictures.names]][:, None]
    below, equal = (scores < own).sum(1), (scores == own).sum(1) - 1
    return (below + 0.5 * equal) / max(len(names) - 1, 1), (scores > own).sum(1) == 0


def by_concept(values: NDArray[np.float64], names: Sequence[str]) -> Interval:
    """Mean over pictures, its interval over concepts: pictures of one concept succeed and fail together."""
    groups: dict[str, list[float]] = {}
    for value, name in zip(values, names, strict=True):
        groups.setdefault(name, []).append(float(value))
    n, count, mean = len(values), len(groups), float(np.mean(values))
    if count < 2:
        raise ValueError(f"an interval over concepts needs at least 2 of them, found {count}")
    residual = [sum(scores) - mean * len(scores) for scores in groups.values()]
    error = math.sqrt(count / (count - 1) * float(np.square(residual).sum())) / n
    reach = student_quantile(count - 1, 0.975) * error
    return mean, mean - reach, mean + reach


class NameRank(Distance):
    """The mean rank of each picture's own name among the held-out ones."""

    name = "name_rank"
    label, explain = METRICS["lite0.name_rank"].label, METRICS["lite0.name_rank"].explain
    unit, better = "share", "higher"
    interval = "95 %, over concepts"

    def __init__(self, namer: Namer, vectors: dict[str, Tensor], names: Sequence[str], estimator: str) -> None:
        self.namer, self.vectors, self.names, self.estimator = namer, vectors, names, estimator

    def compute(self, pictures: Rows, reference: Any = None) -> Interval:
        return by_concept(self.scores(*ranks(self.namer, NamedRows(pictures.rows, self.names), self.vectors)), self.names)

    def scores(self, rank: NDArray[np.float64], first: NDArray[np.bool_]) -> NDArray[np.float64]:
        return rank


class NameRecall(NameRank):
    """The share of pictures whose own name comes first."""

    name = "name_recall"
    label, explain = METRICS["lite0.name_recall"].label, METRICS["lite0.name_recall"].explain

    def scores(self, rank: NDArray[np.float64], first: NDArray[np.bool_]) -> NDArray[np.float64]:
        return first.astype(np.float64)
