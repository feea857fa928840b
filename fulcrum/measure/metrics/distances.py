"""The metrics over features that come with Fulcrum, generic over extractors, each declaring what it sees.

n generated rows, m reference rows, d feature width
"""

from typing import Any

from fulcrum.measure.card import METRICS
from fulcrum.measure.features.gathered import GroupedMoments, Rows
from fulcrum.measure.features.moments import Moments
from fulcrum.measure.metrics import neighbours
from fulcrum.measure.metrics.base import Distance, Interval
from fulcrum.measure.metrics.frechet import FrechetDistance
from fulcrum.measure.metrics.frechet_subsets import GROUPS as FEW_GROUPS
from fulcrum.measure.metrics.frechet_subsets import LIMIT, Distances, distances
from fulcrum.measure.metrics.interval import GROUPS, jackknife
from fulcrum.measure.metrics.kernel import Gaussian, Kernel, Polynomial
from fulcrum.measure.metrics.mmd import (
    PUBLISHED_SIGMA,
    KernelSums,
    kernel_sums,
    median_bandwidth,
    published,
    self_sum,
    unbiased,
    unit_norm,
)
from fulcrum.measure.probe_expectations import SEES


class Frechet(Distance):
    """In Inception's space this is FID; in DINO's, FD-DINO."""

    name = "frechet"
    label, explain = METRICS["frechet"].label, METRICS["frechet"].explain
    estimator = "Gaussian fit, symmetric eigenvalues, fp64"
    interval = f"95 %, jackknife over {FEW_GROUPS} groups of pictures, reference held fixed"
    gathers = GroupedMoments
    sees = SEES["frechet"]

    def gather(self, width: int, reference: bool) -> GroupedMoments:
        return GroupedMoments(width, 1 if reference else FEW_GROUPS)

    def compute(self, pictures: GroupedMoments, reference: GroupedMoments) -> Interval:
        return self._distances(pictures, reference, halves=False).interval()

    def _distances(self, pictures: GroupedMoments, reference: GroupedMoments, halves: bool) -> Distances:
        """One computation serves the value and its limit, whichever is asked for first."""
        key = (reference.n, pictures.n)  # either grows with every update
        kept = pictures.made.get("distances")
        if kept is None or kept[0] is not reference or kept[1] != key or (halves and not kept[2].halves):
            kept = (reference, key, distances(pictures, _around(reference), halves))
            pictures.made["distances"] = kept
        found: Distances = kept[2]
        return found


class FrechetLimit(Frechet):
    name = "frechet_limit"
    label, explain = METRICS["frechet_limit"].label, METRICS["frechet_limit"].explain
    estimator = LIMIT
    sees = SEES["frechet_limit"]

    def compute(self, pictures: GroupedMoments, reference: GroupedMoments) -> Interval:
        return self._distances(pictures, reference, halves=True).limit()


class KernelDistance(Distance):
    """Any MMD: the kernel is chosen by the reference, sums are made once per set."""

    def kernel(self, reference: Rows) -> Kernel:
        raise NotImplementedError

    def prepare(self, rows: Any) -> Any:
        return rows

    def finish(self, sums: KernelSums, leave: int | None = None) -> float:
        return unbiased(sums, leave)

    def compute(self, pictures: Rows, reference: Rows) -> Interval:
        kernel = reference.once((self.name, "kernel"), lambda _: self.kernel(reference))
        around = reference.once((self.name, "rows"), self.prepare)
        own = reference.once((self.name, "sum"), lambda _: self_sum(around, kernel, fast=True))
        sums = kernel_sums(self.prepare(pictures.rows), around, own, kernel, GROUPS, fast=True)
        value = self.finish(sums)
        return (value, *jackknife(value, [self.finish(sums, group) for group in range(GROUPS)]))


class MMD(KernelDistance):
    name = "mmd"
    label, explain = METRICS["mmd"].label, METRICS["mmd"].explain
    estimator = "unbiased, Gaussian kernel, sigma = median distance of the reference, fp32 products"
    sees = SEES["mmd"]

    def kernel(self, reference: Rows) -> Kernel:
        return Gaussian(median_bandwidth(reference.rows))


class MMDPublished(KernelDistance):
    """In CLIP's space this is CMMD, in DINO's DINO-MMD, both as published."""

    name = "mmd_published"
    label, unit, explain = METRICS["mmd_published"].label, METRICS["mmd_published"].unit, METRICS["mmd_published"].explain
    estimator = f"biased, Gaussian kernel, sigma = {PUBLISHED_SIGMA:g} on unit-norm features, x1000, fp32 products"
    sees = SEES["mmd_published"]

    def kernel(self, reference: Rows) -> Kernel:
        return Gaussian(PUBLISHED_SIGMA, flat=True)

    def prepare(self, rows: Any) -> Any:
        return unit_norm(rows).float()

    def finish(self, sums: KernelSums, leave: int | None = None) -> float:
        return published(sums, leave)


class KID(KernelDistance):
    """Not the mean over random subsets of the original: all pairs at once, the same estimate with less noise."""

    name = "kid"
    label = "KID"
    explain = "Kernel distance with the polynomial kernel (x y / d + 1)^3, unbiased: it may fall below zero."
    estimator = "unbiased, polynomial kernel of degree 3, all pairs, fp32 products"
    sees = SEES["kid"]

    def kernel(self, reference: Rows) -> Kernel:
        return Polynomial()


class Neighbours(Distance):
    better = "higher"

    def compute(self, pictures: Rows, reference: Rows) -> Interval:
        around = reference.once("balls", neighbours.balls)
        counts = pictures.once(("balls", id(around)), lambda rows: (around, neighbours.count(rows, around, GROUPS)))[1]
        value = self.finish(counts)
        return (value, *jackknife(value, [self.finish(counts, group) for group in range(GROUPS)]))

    def finish(self, counts: neighbours.Counts, leave: int | None = None) -> float:
        raise NotImplementedError


class Density(Neighbours):
    name = "density"
    label = "Density"
    explain = "In how many reference pictures' balls (to their 5th neighbour) a picture lies, over 5: about 1 is natural."
    estimator = f"k = {neighbours.K}, Euclidean"
    sees = SEES["density"]

    def finish(self, counts: neighbours.Counts, leave: int | None = None) -> float:
        return counts.density(leave)


class Coverage(Neighbours):
    name = "coverage"
    label = "Coverage"
    unit = "share"
    explain = "Share of reference pictures with a picture nearer than their 5th neighbour: diversity. Grows with N."
    estimator = f"k = {neighbours.K}, Euclidean"
    sees = SEES["coverage"]

    def finish(self, counts: neighbours.Counts, leave: int | None = None) -> float:
        return counts.coverage(leave)


DISTANCES: tuple[Distance, ...] = (Frechet(), FrechetLimit(), MMD(), MMDPublished(), KID(), Density(), Coverage())


def _around(reference: GroupedMoments) -> FrechetDistance:
    """The reference's factor, made once."""
    kept = reference.made.get("around")
    if kept is None or kept[0] != reference.n:
        whole = Moments(reference.width)
        for part in reference.moments():
            whole.merge(part)
        kept = (reference.n, FrechetDistance(whole.compute()))
        reference.made["around"] = kept
    found: FrechetDistance = kept[1]
    return found
