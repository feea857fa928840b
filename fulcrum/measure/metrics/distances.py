"""The metrics over features that come with Fulcrum, generic over extractors, each declaring what it sees.

n generated rows, m reference rows, d feature width
"""

import torch
from torch import Tensor

from fulcrum.measure.card import METRICS
from fulcrum.measure.features.gathered import GroupedMoments, Rows, merged
from fulcrum.measure.features.moments import Moments
from fulcrum.measure.metrics import neighbours
from fulcrum.measure.metrics.base import WIDE, Distance
from fulcrum.measure.metrics.frechet import FrechetDistance
from fulcrum.measure.metrics.frechet_subsets import GROUPS as FEW_GROUPS
from fulcrum.measure.metrics.frechet_subsets import LIMIT, Distances, distances
from fulcrum.measure.metrics.interval import GROUPS, JACKKNIFE, Interval, jackknife
from fulcrum.measure.metrics.kernel import GaussianKernel, Kernel, PolynomialKernel
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

BLOCK = 512  # reference rows that enter the moments at once
# The square of the farthest row's distance from the mean, over the average one. 512 normal rows in 32 dimensions have 2,
# rows of Student's t with 9 degrees 6, with 5 degrees 14: there the jackknife's 95 % covers .84, and .31 with 3 degrees.
HEAVY = 8.0
ROWS_PER_FEATURE = 4  # from here on a Fréchet distance is linear in 1/N, whatever the spectrum of the features


class Frechet(Distance):
    """In Inception's space this is FID; in DINO's, FD-DINO."""

    name = "frechet"
    label, explain = METRICS["frechet"].label, METRICS["frechet"].explain
    estimator = "Gaussian fit, symmetric eigenvalues, fp64"
    interval = f"95 %, jackknife over {FEW_GROUPS} groups of pictures, reference held fixed"
    gathers = GroupedMoments
    sees = SEES["frechet"]

    def described(self, width: int) -> tuple[str, str]:
        return self.estimator, self.interval if width >= WIDE else JACKKNIFE

    def gather(self, width: int, reference: bool) -> GroupedMoments:
        return GroupedMoments(width, 1 if reference else FEW_GROUPS if width >= WIDE else GROUPS)

    def compute(self, pictures: GroupedMoments, reference: GroupedMoments) -> Interval:
        if pictures.groups == FEW_GROUPS:
            return self._distances(pictures, reference, halves=False).interval()
        around, rows = _around(reference), pictures.rows
        if rows is not None and len(rows) <= pictures.width:  # the Gram side is smaller than any covariance
            group = torch.from_numpy(pictures.held.ids % GROUPS)
            value = around.to_rows(rows)
            left = [around.to_rows(rows[group != number]) for number in range(GROUPS)]
        else:
            parts = pictures.moments()
            whole = merged(parts) if rows is None else Moments.of(rows)
            value = around.to(whole.compute())
            left = [around.to(whole.without(part).compute()) for part in parts]
        return (value, *jackknife(value, left))

    def caution(self, pictures: GroupedMoments) -> str | None:
        """Heavy tails, where the rows are still there to be looked at."""
        if pictures.rows is None:
            return None
        away = (pictures.rows.double() - pictures.rows.double().mean(dim=0)).square().sum(dim=1)
        farthest = float(away.max() / away.mean().clamp_min(1e-300))
        if farthest <= HEAVY:
            return None
        return (
            f"heavy tails: one picture lies {farthest:.0f} times as far from the mean (squared) as the average one; "
            "the interval covers less than 95 %"
        )

    def _distances(self, pictures: GroupedMoments, reference: GroupedMoments, halves: bool) -> Distances:
        """One computation serves the value and its limit, whichever is asked for first."""
        around = _around(reference)
        kept: tuple[FrechetDistance, Distances] | None = pictures.made.get("distances")
        if kept is None or kept[0] is not around or (halves and not kept[1].halves):
            kept = (around, distances(pictures, around, halves))
            pictures.made["distances"] = kept
        return kept[1]


class FrechetLimit(Frechet):
    name = "frechet_limit"
    label, explain = METRICS["frechet_limit"].label, METRICS["frechet_limit"].explain
    estimator = LIMIT
    sees = SEES["frechet_limit"]

    def described(self, width: int) -> tuple[str, str]:
        return self.estimator, self.interval

    def caution(self, pictures: GroupedMoments) -> str | None:
        few = pictures.n < ROWS_PER_FEATURE * pictures.width
        reasons = [
            f"{pictures.n} pictures of {pictures.width} features: the line over 1/N holds from about "
            f"{ROWS_PER_FEATURE * pictures.width} on; with fewer the limit lies too low, and may be negative"
            if few
            else None,
            super().caution(pictures),
        ]
        return "; ".join(reason for reason in reasons if reason) or None

    def compute(self, pictures: GroupedMoments, reference: GroupedMoments) -> Interval:
        return self._distances(pictures, reference, halves=True).limit()


def _around(reference: GroupedMoments) -> FrechetDistance:
    """The reference's factor, made once."""

    def make() -> FrechetDistance:
        rows = reference.rows
        parts = reference.moments() if rows is None else [Moments.of(block) for block in torch.split(rows, BLOCK)]
        return FrechetDistance(merged(parts).compute())

    return reference.once("around", make)


class KernelDistance(Distance):
    """Any MMD: the kernel is chosen by the reference, sums are made once per set."""

    def described(self, width: int) -> tuple[str, str]:
        return self.estimator + (", fp32 products" if width >= WIDE else ""), self.interval

    def bandwidth(self, reference: Tensor) -> float:
        """What the kernel takes from the reference."""
        return 0.0

    def kernel(self, bandwidth: float, fast: bool) -> Kernel:
        raise NotImplementedError

    def prepare(self, rows: Tensor) -> Tensor:
        return rows

    def finish(self, sums: KernelSums, leave: int | None = None) -> float:
        return unbiased(sums, leave)

    def constants(self, reference: Rows) -> tuple[float, float]:
        """All that depends on the reference alone: the bandwidth, and the kernel's sum over its pairs."""

        def make() -> tuple[float, float]:
            bandwidth, fast = self.bandwidth(reference.rows), reference.width >= WIDE
            return bandwidth, self_sum(self._prepared(reference), self.kernel(bandwidth, fast), fast)

        return reference.once((self.name, "constants"), make)

    def remember(self, reference: Rows, bandwidth: float, own: float) -> None:
        """Takes constants that were kept from before."""
        reference.made[self.name, "constants"] = bandwidth, own

    def compute(self, pictures: Rows, reference: Rows) -> Interval:
        fast = reference.width >= WIDE
        bandwidth, own = self.constants(reference)
        kernel, around = self.kernel(bandwidth, fast), self._prepared(reference)
        sums = kernel_sums(self.prepare(pictures.rows), around, own, kernel, GROUPS, fast)
        value = self.finish(sums)
        return (value, *jackknife(value, [self.finish(sums, group) for group in range(GROUPS)]))

    def _prepared(self, reference: Rows) -> Tensor:
        return reference.once((self.name, "rows"), lambda: self.prepare(reference.rows))


class MMD(KernelDistance):
    name = "mmd"
    label, explain = METRICS["mmd"].label, METRICS["mmd"].explain
    estimator = "unbiased, Gaussian kernel, sigma = median distance of the reference"
    sees = SEES["mmd"]

    def bandwidth(self, reference: Tensor) -> float:
        return median_bandwidth(reference)

    def kernel(self, bandwidth: float, fast: bool) -> Kernel:
        return GaussianKernel(bandwidth)


class MMDPublished(KernelDistance):
    """In CLIP's space this is CMMD, in DINO's DINO-MMD, both as published."""

    name = "mmd_published"
    label, unit, explain = METRICS["mmd_published"].label, METRICS["mmd_published"].unit, METRICS["mmd_published"].explain
    estimator = f"biased, Gaussian kernel, sigma = {PUBLISHED_SIGMA:g} on unit-norm features, x1000"
    sees = SEES["mmd_published"]

    def kernel(self, bandwidth: float, fast: bool) -> Kernel:
        return GaussianKernel(PUBLISHED_SIGMA, flat=fast)

    def prepare(self, rows: Tensor) -> Tensor:
        return unit_norm(rows).float() if rows.shape[1] >= WIDE else unit_norm(rows)

    def finish(self, sums: KernelSums, leave: int | None = None) -> float:
        return published(sums, leave)


class KID(KernelDistance):
    """Not the mean over random subsets of the original: all pairs at once, the same estimate with less noise."""

    name = "kid"
    label = "KID"
    explain = "Kernel distance with the polynomial kernel (x y / d + 1)^3, unbiased: it may fall below zero."
    estimator = "unbiased, polynomial kernel of degree 3, all pairs"
    code = "2"  # 1 was computed about zero, and rounding spoiled it for features with a large mean
    sees = SEES["kid"]

    def kernel(self, bandwidth: float, fast: bool) -> Kernel:
        return PolynomialKernel()


class Neighbours(Distance):
    better = "higher"

    def compute(self, pictures: Rows, reference: Rows) -> Interval:
        around = reference.once("balls", lambda: neighbours.balls(reference.rows))
        counts = pictures.once(("balls", id(around)), lambda: (around, neighbours.count(pictures.rows, around, GROUPS)))[1]
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
    explain = (
        "Share of reference pictures with a picture nearer than their 5th neighbour: diversity. Grows with N. The interval "
        "is for this reference: over redrawn references of heavy-tailed features it covered .78 to .92."
    )
    estimator = f"k = {neighbours.K}, Euclidean"
    sees = SEES["coverage"]

    def finish(self, counts: neighbours.Counts, leave: int | None = None) -> float:
        return counts.coverage(leave)


DISTANCES: tuple[Distance, ...] = (Frechet(), FrechetLimit(), MMD(), MMDPublished(), KID(), Density(), Coverage())
