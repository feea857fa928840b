"""Fréchet distances of subsets of one set of pictures: they give its interval, and its limit for many pictures.

The distance of N pictures is too large by about c / N, and c depends on the model (arXiv:1911.07023), so that N reorders
models. From the same features: the distance at N, at 7/8 N (all but a group) and at N/2 (half of the groups), a line over
1/N, and its value at 0. The halves are the 14 blocks of the 3-(8, 4, 1) design: every group lies in seven of them and
every two groups together in three, so that all are used alike, and so that the seven halves without a group are halves
for the jackknife too.

n rows, d feature width, G = 8 groups
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from fulcrum.measure.features.gathered import GroupedMoments, merged
from fulcrum.measure.metrics.frechet import FrechetDistance
from fulcrum.measure.metrics.interval import Interval, jackknife

GROUPS = 8
LIMIT = "line over 1/N through the distances at N, 7/8 N and N/2 of the same features, at 1/N = 0"
# Four of eight groups whose numbers, as bits, cancel out: the affine planes of a cube.
HALVES = tuple(four for four in combinations(range(GROUPS), 4) if four[0] ^ four[1] ^ four[2] ^ four[3] == 0)


class Distances(NamedTuple):
    """The distance of the whole and of its parts, with the number of pictures in each."""

    n: int
    whole: float
    without: tuple[float, ...]  # (G,)
    halves: tuple[float, ...]  # (14,), empty unless asked for
    counts: tuple[int, ...]  # (G,) pictures of each group

    def interval(self) -> Interval:
        """The distance and its 95 % interval."""
        return (self.whole, *jackknife(self.whole, self.without))

    def limit(self) -> Interval:
        """The distance for N -> infinity and its 95 % interval."""
        sizes = [self.n, *(self.n - count for count in self.counts), *(self._size(half) for half in HALVES)]
        value = intercept(sizes, [self.whole, *self.without, *self.halves])
        replicates = []
        for group in range(GROUPS):
            kept = [k for k, half in enumerate(HALVES) if group not in half]
            parts = [self.n - self.counts[group], *(self._size(HALVES[k]) for k in kept)]
            replicates.append(intercept(parts, [self.without[group], *(self.halves[k] for k in kept)]))
        return (value, *jackknife(value, replicates))

    def _size(self, half: tuple[int, ...]) -> int:
        return sum(self.counts[group] for group in half)


def intercept(sizes: list[int], values: list[float]) -> float:
    """The value at 1/N = 0 of the line through the mean value of each size: a size counts once, however often measured."""
    nearby: dict[int, list[tuple[int, float]]] = {}
    for size, value in zip(sizes, values, strict=True):
        share = round(8 * size / max(sizes))  # groups may differ by one picture
        nearby.setdefault(share, []).append((size, value))
    inverse = [float(np.mean([1.0 / size for size, _ in part])) for part in nearby.values()]
    mean = [float(np.mean([value for _, value in part])) for part in nearby.values()]
    return float(np.polynomial.polynomial.polyfit(inverse, mean, 1)[0])


def distances(pictures: GroupedMoments, reference: FrechetDistance, halves: bool) -> Distances:
    """Everything by the smaller side: few rows share one Gram matrix, many share the groups' moments."""
    wanted = [tuple(range(GROUPS)), *(tuple(k for k in range(GROUPS) if k != group) for group in range(GROUPS))]
    wanted += list(HALVES) if halves else []
    if pictures.groups % GROUPS:
        raise ValueError(f"expected pictures gathered in {GROUPS} groups or a multiple, found {pictures.groups}")
    if pictures.n < 4 * GROUPS:
        raise ValueError(f"a Fréchet distance with its interval needs at least {4 * GROUPS} pictures, found {pictures.n}")
    rows = pictures.rows
    if rows is not None and len(rows) <= pictures.width:
        group = torch.from_numpy(pictures.held.ids % GROUPS)
        values = reference.to_parts(rows, [torch.isin(group, torch.tensor(subset)).nonzero()[:, 0] for subset in wanted])
        counts = torch.bincount(group, minlength=GROUPS).tolist()
    else:
        parts = pictures.moments(GROUPS)
        values = [reference.to(merged([parts[group] for group in subset]).compute()) for subset in wanted]
        counts = [part.n for part in parts]
    if min(counts) < 2:
        raise ValueError(f"a group holds {min(counts)} pictures: number the pictures 0 to N - 1")
    return Distances(pictures.n, values[0], tuple(values[1 : 1 + GROUPS]), tuple(values[1 + GROUPS :]), tuple(counts))
