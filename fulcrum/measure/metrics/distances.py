"""Distances over feature rows: MMD and KID, density and coverage, and the metrics made of them."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fulcrum.judge.card import METRICS, SEES
from fulcrum.measure.features.extractor import Moments
from fulcrum.measure.features.kept import GroupedMoments, Rows, merged
from fulcrum.measure.metrics.base import GROUPS, JACKKNIFE, WIDE, Distance, Interval, jackknife
from fulcrum.measure.metrics.frechet import GROUPS as FEW_GROUPS
from fulcrum.measure.metrics.frechet import LIMIT, Distances, FrechetDistance, distances

# --------------------------------------------------------------------------------------------------
# The kernels that a maximum mean discrepancy may use: what they compute for a block of pairs, and
# nothing else.
#
# n rows of x, m rows of y, d feature width


class Kernel(Protocol):
    """k(x, y) for every pair of two blocks, less `offset`: what every pair shares is added exactly,
    afterwards.

    Rows come with the reference's mean taken away. A discrepancy does not change when functions of
    x alone and of y alone are added to k; a kernel may leave them out.
    """

    offset: float

    def about(self, mean: Tensor) -> "Kernel":
        """The kernel for rows from which this mean was taken away.  (d,)"""
        ...

    def norms(self, rows: Tensor) -> Tensor:
        """What a row brings to all of its pairs.  (n,)"""
        ...

    def block(self, x: Tensor, xx: Tensor, y: Tensor, yy: Tensor) -> Tensor:
        """k - offset between all rows of x and all rows of y; xx, yy are their norms.  (n, m)"""
        ...


class GaussianKernel:
    """k = exp(-|x - y|^2 / (2 sigma^2)).

    `flat`: the kernel is so wide that every k is near one, where fp32 has no digits left for the
    difference: k - 1 is computed instead. It costs a fifth more time and brings three digits.
    """

    def __init__(self, sigma: float, flat: bool = False) -> None:
        self.sigma, self.flat, self.offset = sigma, flat, 1.0 if flat else 0.0

    def about(self, mean: Tensor) -> "GaussianKernel":
        return self  # it depends on x - y only

    def norms(self, rows: Tensor) -> Tensor:
        return rows.square().sum(dim=1).mul_(-0.5 / self.sigma**2)

    def block(self, x: Tensor, xx: Tensor, y: Tensor, yy: Tensor) -> Tensor:
        exponent = torch.addmm(yy, x, y.T, alpha=1.0 / self.sigma**2)
        exponent.add_(xx[:, None]).clamp_max_(0.0)
        return exponent.expm1_() if self.flat else exponent.exp_()


class PolynomialKernel:
    """k = (x y / d + 1)^3, the kernel of KID (arXiv:1801.01401), without what x or y alone bring.

    Features far from zero make every k huge and nearly alike, and their differences drown in
    rounding: with means of 3,000 in 512 dimensions, fp32 was a third off. So it is computed about
    the reference's mean M. With x = M + a, y = M + b,
    c = |M|^2 / d + 1, p = a M / d, q = b M / d, g = a b / d and t = c + p + q,

        k(x, y) - k(x, M) - k(M, y) + k(M, M) = g (3 t^2 + 3 t g + g^2) + 3 p q (t + c)

    in which every term is as small as the rows' distances from M.
    """

    offset = 0.0

    def __init__(self, mean: Tensor | None = None) -> None:
        self.mean = mean

    def about(self, mean: Tensor) -> "PolynomialKernel":
        return PolynomialKernel(mean)

    def norms(self, rows: Tensor) -> Tensor:
        return rows @ self._mean.to(rows.dtype) / rows.shape[1]

    def block(self, x: Tensor, xx: Tensor, y: Tensor, yy: Tensor) -> Tensor:
        centre = float(self._mean.double().square().mean()) + 1.0
        g = (x @ y.T).div_(x.shape[1])
        t = xx[:, None] + yy
        t += centre
        aside = (t + centre).mul_(yy).mul_(3.0 * xx[:, None])  # 3 p q (t + c)
        inner = (t * 3.0).add_(g).mul_(g)  # 3 t g + g^2
        return inner.addcmul_(t, t, value=3.0).mul_(g).add_(aside)

    @property
    def _mean(self) -> Tensor:
        if self.mean is None:
            raise ValueError(
                "a polynomial kernel is computed about a mean: take kernel.about(mean)"
            )
        return self.mean


# --------------------------------------------------------------------------------------------------
# Squared maximum mean discrepancy, blockwise: unbiased, and in the published form; with any kernel
# above.
#
# Sums are kept per group of rows, so that one pass gives the value and every delete-a-group
# replicate of the jackknife. Memory is a block of pairs, never all of them. Products are taken in
# fp64, or in fp32 (`fast`) with fp64 sums.
#
# n generated rows, m reference rows, d feature width, G groups


PUBLISHED_SIGMA = 10.0  # CMMD (arXiv:2401.09603), and DINO-MMD in the PRX study
PUBLISHED_SCALE = 1000.0
_MEDIAN_ROWS = 2000  # rows that the median looks at: two million pairs are plenty
_BLOCK_ROWS = 256
# columns of a block in fp32: 256 x 2048 numbers stay in the cache between their operations
_TILE = 2048


def median_bandwidth(reference: Tensor) -> float:
    """The median distance of pairs of reference rows: fixed by the reference alone, the same for
    every arm.

    A bandwidth taken from both sets would move with the generated pictures, so that arms were
    judged by unlike kernels.
    """
    m = reference.shape[0]
    if m < 2:
        raise ValueError(f"a bandwidth needs at least 2 reference rows, found {m}")
    # evenly spaced, no randomness
    take = torch.linspace(0, m - 1, min(m, _MEDIAN_ROWS)).round().long()
    rows = reference[take].double()
    median = float(torch.pdist(rows).median())
    if median <= 0.0:
        raise ValueError(
            "half of the reference rows are identical: no bandwidth can be taken from them"
        )
    return median


def unit_norm(rows: Tensor) -> Tensor:
    """Rows divided by their length.  (n, d)"""
    length: Tensor = torch.linalg.vector_norm(rows.double(), dim=1, keepdim=True)
    if not bool((length > 0).all()):
        raise ValueError(
            "a feature row is exactly zero and has no direction: look at the feature network"
        )
    return rows.double() / length


def self_sum(rows: Tensor, kernel: float | Kernel, fast: bool = False) -> float:
    """Sum of k over ordered pairs of different rows. A number stands for a Gaussian kernel of that
    sigma."""
    mean, total = _mean(rows, fast), 0.0
    kernel, rows = _kernel(kernel).about(mean), _ready(rows, mean, fast)
    norms = kernel.norms(rows)
    for start in range(0, rows.shape[0], _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, rows.shape[0])
        for left, right in _tiles(start, rows.shape[0], fast):
            block = kernel.block(
                rows[start:stop], norms[start:stop], rows[left:right], norms[left:right]
            )
            square = stop - start if left == start else 0  # of columns that are the rows themselves
            here = block[:, :square]
            total += float(here.sum() - here.diagonal().sum()) + 2.0 * float(
                block[:, square:].sum()
            )
    return total + kernel.offset * rows.shape[0] * (rows.shape[0] - 1)


class KernelSums(NamedTuple):
    """Kernel sums of generated rows, per group, against themselves and against the reference."""

    counts: Tensor  # (G,) rows of each group
    own: Tensor  # (G, G) sum over pairs of different rows, one of group g and one of group h
    cross: Tensor  # (G,) sum over rows of group g and all reference rows
    m: int
    reference: float  # self_sum of the reference


def kernel_sums(
    rows: Tensor,
    reference: Tensor,
    reference_sum: float,
    kernel: float | Kernel,
    groups: int = 1,
    fast: bool = False,
) -> KernelSums:
    """One pass over the generated rows; row i belongs to group i mod G."""
    n, m, mean = rows.shape[0], reference.shape[0], _mean(reference, fast)
    kernel = _kernel(kernel).about(mean)
    if n < 2 * groups:
        raise ValueError(f"{groups} groups need at least {2 * groups} generated rows, found {n}")
    group = torch.arange(n) % groups
    by_group = torch.argsort(group, stable=True)
    group = group[by_group]
    x, y = _ready(rows, mean, fast)[by_group], _ready(reference, mean, fast)
    xx, yy = kernel.norms(x), kernel.norms(y)
    counts = torch.bincount(group, minlength=groups)
    own, cross = (
        torch.zeros(groups, groups, dtype=torch.float64),
        torch.zeros(groups, dtype=torch.float64),
    )
    start = 0
    for g in range(groups):
        size = int(counts[g])
        for first in range(start, start + size, _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, start + size)
            for left, right in _tiles(first, n, fast):  # later rows only: k is symmetric
                block = kernel.block(x[first:last], xx[first:last], x[left:right], xx[left:right])
                square = last - first if left == first else 0
                if square:
                    block.diagonal().zero_()
                block[:, square:] *= 2.0  # a pair of rows counts in both orders
                own[g].index_add_(0, group[left:right], block.sum(dim=0).double())
            for left, right in _tiles(0, m, fast):
                cross[g] += (
                    kernel.block(x[first:last], xx[first:last], y[left:right], yy[left:right])
                    .sum()
                    .double()
                )
        start += size
    pairs = torch.outer(counts, counts).double() - torch.diag(counts).double()
    own = (own + own.T) / 2 + kernel.offset * pairs
    return KernelSums(counts, own, cross + kernel.offset * m * counts, m, reference_sum)


def unbiased(sums: KernelSums, leave: int | None = None) -> float:
    """The unbiased estimate of MMD^2 (Gretton et al. 2012, equation 3), without group `leave`."""
    n, own, cross = _totals(sums, leave)
    m = sums.m
    return own / (n * (n - 1)) + sums.reference / (m * (m - 1)) - 2.0 * cross / (n * m)


def published(sums: KernelSums, leave: int | None = None) -> float:
    """The published form: the biased estimate (each row against itself included), x1000."""
    n, own, cross = _totals(sums, leave)
    m = sums.m
    return PUBLISHED_SCALE * (
        (own + n) / n**2 + (sums.reference + m) / m**2 - 2.0 * cross / (n * m)
    )


def _totals(sums: KernelSums, leave: int | None) -> tuple[int, float, float]:
    n, own, cross = int(sums.counts.sum()), float(sums.own.sum()), float(sums.cross.sum())
    if leave is None:
        return n, own, cross
    gone = float(2.0 * sums.own[leave].sum() - sums.own[leave, leave])
    return n - int(sums.counts[leave]), own - gone, cross - float(sums.cross[leave])


def _kernel(kernel: float | Kernel) -> Kernel:
    return GaussianKernel(kernel) if isinstance(kernel, int | float) else kernel


def _tiles(first: int, last: int, fast: bool) -> list[tuple[int, int]]:
    step = _TILE if fast else max(last - first, 1)
    return [(left, min(left + step, last)) for left in range(first, last, step)]


def _mean(reference: Tensor, fast: bool) -> Tensor:
    """The reference's mean as rows are moved by it: in fp32 where they are.  (d,)"""
    return reference.mean(dim=0, dtype=torch.float64).to(torch.float32 if fast else torch.float64)


def _ready(rows: Tensor, mean: Tensor, fast: bool) -> Tensor:
    """Rows moved to the reference's mean: |x|^2 + |y|^2 - 2xy cancels less, and so does a
    polynomial."""
    if rows.shape[1] != len(mean):
        raise ValueError(f"expected features of width {len(mean)}, found width {rows.shape[1]}")
    return (
        rows - mean
        if fast and rows.dtype == mean.dtype
        else (rows.double() - mean.double()).to(mean.dtype)
    )


# --------------------------------------------------------------------------------------------------
# Density and coverage (arXiv:2002.09797), blockwise: are the pictures where the reference is, and
# everywhere it is.
#
# Every reference row has a ball that reaches to its k-th nearest fellow. Density counts the balls
# that a picture lies in (over k, so that about 1 is natural); coverage is the share of balls that
# hold any picture. Chosen over precision and recall, which one outlier's huge ball can satisfy.
#
# n generated rows, m reference rows, d feature width, G groups


K = 5
_NEIGHBOUR_BLOCK_ROWS = 256


class Balls(NamedTuple):
    """The reference as density and coverage see it."""

    rows: Tensor  # (m, d) fp32, about their mean
    mean: Tensor  # (d,) fp32
    radii: Tensor  # (m,) squared


class Counts(NamedTuple):
    """What was found in the balls, by group of pictures."""

    pictures: Tensor  # (G,) pictures of each group
    inside: Tensor  # (G,) pairs of a picture and a ball that holds it
    hit: Tensor  # (m, G) balls that hold a picture of the group

    def density(self, leave: int | None = None) -> float:
        """Balls per picture, over k."""
        kept = _kept(len(self.pictures), leave)
        return float(self.inside[kept].sum()) / (K * float(self.pictures[kept].sum()))

    def coverage(self, leave: int | None = None) -> float:
        """Share of balls that hold a picture."""
        return float(self.hit[:, _kept(len(self.pictures), leave)].any(dim=1).double().mean())


def balls(reference: Tensor) -> Balls:
    """The ball of every reference row."""
    m = len(reference)
    if m <= K:
        raise ValueError(f"density and coverage need more than {K} reference rows, found {m}")
    mean = reference.float().mean(dim=0)
    rows = reference.float() - mean
    norms, radii = rows.square().sum(dim=1), []
    for start in range(0, m, _NEIGHBOUR_BLOCK_ROWS):
        block = _squared(
            rows[start : start + _NEIGHBOUR_BLOCK_ROWS],
            norms[start : start + _NEIGHBOUR_BLOCK_ROWS],
            rows,
            norms,
        )
        # not its own neighbour
        block[torch.arange(len(block)), torch.arange(start, start + len(block))] = torch.inf
        radii.append(block.topk(K, dim=1, largest=False).values[:, -1])
    return Balls(rows, mean, torch.cat(radii))


def count(rows: Tensor, reference: Balls, groups: int) -> Counts:
    """One pass over the generated rows; row i belongs to group i mod G."""
    if len(rows) < 2 * groups:
        raise ValueError(
            f"density and coverage in {groups} groups need at least {2 * groups} generated rows,"
            f" found {len(rows)}"
        )
    rows = rows.float() - reference.mean
    norms, reference_norms = rows.square().sum(dim=1), reference.rows.square().sum(dim=1)
    group = torch.arange(len(rows)) % groups
    inside, hit = (
        torch.zeros(groups, dtype=torch.long),
        torch.zeros(len(reference.rows), groups, dtype=torch.bool),
    )
    for start in range(0, len(rows), _NEIGHBOUR_BLOCK_ROWS):
        part = slice(start, start + _NEIGHBOUR_BLOCK_ROWS)
        # (b, m)
        held = _squared(rows[part], norms[part], reference.rows, reference_norms) <= reference.radii
        inside.index_add_(0, group[part], held.sum(dim=1))
        in_balls = torch.zeros(groups, held.shape[1], dtype=torch.int32).index_add_(
            0, group[part], held.int()
        )
        hit |= in_balls.T > 0
    return Counts(torch.bincount(group, minlength=groups), inside, hit)


def _squared(x: Tensor, xx: Tensor, y: Tensor, yy: Tensor) -> Tensor:
    return torch.addmm(yy, x, y.T, alpha=-2.0).add_(xx[:, None]).clamp_min_(0.0)


def _kept(groups: int, leave: int | None) -> Tensor:
    return torch.tensor([group for group in range(groups) if group != leave])


# --------------------------------------------------------------------------------------------------
# The metrics over features that come with Fulcrum, generic over extractors, each declaring what it
# sees.
#
# n generated rows, m reference rows, d feature width


BLOCK = 512  # reference rows that enter the moments at once
# The square of the farthest row's distance from the mean, over the average one. 512 normal rows in
# 32 dimensions have 2, rows of Student's t with 9 degrees 6, with 5 degrees 14: there the
# jackknife's 95 % covers .84, and .31 with 3 degrees.
HEAVY = 8.0
# from here on a Fréchet distance is linear in 1/N, whatever the spectrum of the features
ROWS_PER_FEATURE = 4


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
        # the Gram side is smaller than any covariance
        if rows is not None and len(rows) <= pictures.width:
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
            f"heavy tails: one picture lies {farthest:.0f} times as far from the mean (squared) as"
            " the average one; the interval covers less than 95 %"
        )

    def _distances(
        self, pictures: GroupedMoments, reference: GroupedMoments, halves: bool
    ) -> Distances:
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
            (
                f"{pictures.n} pictures of {pictures.width} features: the line over 1/N holds from"
                f" about {ROWS_PER_FEATURE * pictures.width} on; with fewer the limit lies too low,"
                " and may be negative"
                if few
                else None
            ),
            super().caution(pictures),
        ]
        return "; ".join(reason for reason in reasons if reason) or None

    def compute(self, pictures: GroupedMoments, reference: GroupedMoments) -> Interval:
        return self._distances(pictures, reference, halves=True).limit()


def _around(reference: GroupedMoments) -> FrechetDistance:
    """The reference's factor, made once."""

    def make() -> FrechetDistance:
        rows = reference.rows
        parts = (
            reference.moments()
            if rows is None
            else [Moments.of(block) for block in torch.split(rows, BLOCK)]
        )
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
        """All that depends on the reference alone: the bandwidth, and the kernel's sum over its
        pairs."""

        def make() -> tuple[float, float]:
            bandwidth, fast = self.bandwidth(reference.rows), reference.width >= WIDE
            return bandwidth, self_sum(
                self._prepared(reference), self.kernel(bandwidth, fast), fast
            )

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
    label, unit, explain = (
        METRICS["mmd_published"].label,
        METRICS["mmd_published"].unit,
        METRICS["mmd_published"].explain,
    )
    estimator = f"biased, Gaussian kernel, sigma = {PUBLISHED_SIGMA:g} on unit-norm features, x1000"
    sees = SEES["mmd_published"]

    def kernel(self, bandwidth: float, fast: bool) -> Kernel:
        return GaussianKernel(PUBLISHED_SIGMA, flat=fast)

    def prepare(self, rows: Tensor) -> Tensor:
        return unit_norm(rows).float() if rows.shape[1] >= WIDE else unit_norm(rows)

    def finish(self, sums: KernelSums, leave: int | None = None) -> float:
        return published(sums, leave)


class KID(KernelDistance):
    """Not the mean over random subsets of the original: all pairs at once, the same estimate with
    less noise."""

    name = "kid"
    label = "KID"
    explain = (
        "Kernel distance with the polynomial kernel (x y / d + 1)^3, unbiased: it may fall below"
        " zero."
    )
    estimator = "unbiased, polynomial kernel of degree 3, all pairs"
    code = "2"  # 1 was computed about zero, and rounding spoiled it for features with a large mean
    sees = SEES["kid"]

    def kernel(self, bandwidth: float, fast: bool) -> Kernel:
        return PolynomialKernel()


class Neighbours(Distance):
    better = "higher"

    def compute(self, pictures: Rows, reference: Rows) -> Interval:
        around = reference.once("balls", lambda: balls(reference.rows))
        counts = pictures.once(
            ("balls", id(around)), lambda: (around, count(pictures.rows, around, GROUPS))
        )[1]
        value = self.finish(counts)
        return (value, *jackknife(value, [self.finish(counts, group) for group in range(GROUPS)]))

    def finish(self, counts: Counts, leave: int | None = None) -> float:
        raise NotImplementedError


class Density(Neighbours):
    name = "density"
    label = "Density"
    explain = (
        "In how many reference pictures' balls (to their 5th neighbour) a picture lies, over 5:"
        " about 1 is natural."
    )
    estimator = f"k = {K}, Euclidean"
    sees = SEES["density"]

    def finish(self, counts: Counts, leave: int | None = None) -> float:
        return counts.density(leave)


class Coverage(Neighbours):
    name = "coverage"
    label = "Coverage"
    unit = "share"
    explain = (
        "Share of reference pictures with a picture nearer than their 5th neighbour: diversity."
        " Grows with N. The interval is for this reference: over redrawn references of heavy-tailed"
        " features it covered .78 to .92."
    )
    estimator = f"k = {K}, Euclidean"
    sees = SEES["coverage"]

    def finish(self, counts: Counts, leave: int | None = None) -> float:
        return counts.coverage(leave)


DISTANCES: tuple[Distance, ...] = (
    Frechet(),
    FrechetLimit(),
    MMD(),
    MMDPublished(),
    KID(),
    Density(),
    Coverage(),
)
