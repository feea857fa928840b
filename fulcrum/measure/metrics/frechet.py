"""The Fréchet distance, over whole sets and over subsets."""

from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.measure.features.extractor import Gaussian, Moments
from fulcrum.measure.features.kept import GroupedMoments, merged
from fulcrum.measure.metrics.base import Interval, jackknife

# --------------------------------------------------------------------------------------------------
# Fréchet distance of two Gaussians by symmetric eigenvalues; on the small Gram side when rows are
# few.
#
# d^2 = |mean_a - mean_b|^2 + tr(A) + tr(B) - 2 tr((A B)^(1/2))            (Dowson and Landau 1982)
#
# With B = R R^T the last trace is the sum of the square roots of the eigenvalues of R^T A R, which
# is symmetric: no complex matrix square root, no dropped imaginary part. R depends on the reference
# only and is made once. With fewer rows than features, A = X^T X and the same non-zero eigenvalues
# are those of the smaller X B X^T.
#
# n rows, m reference rows, d feature width


# from here on R^T A R by blocks that skip the zeros of R and half of the result: 1.4 d^3 instead of
# 4 d^3
_WIDE = 512
# rows of a block: small enough to skip most zeros, large enough for a product to run at full speed
_BLOCK = 192


class Root(NamedTuple):
    factor: Tensor  # (d, d), R with R R^T = cov
    lower: bool  # triangular


def root(cov: Tensor) -> Root:
    """Cholesky where cov is regular, else by eigenvalues.  (d, d)"""
    # with its package 0.2 s to import, which no first step waits for
    from scipy.linalg.lapack import dpotrf

    # The transposed view is what Fortran reads without a copy; OpenBLAS takes 0.6 of torch's time
    # at 2,048 dimensions.
    upper, failed = dpotrf(cov.numpy().T, lower=0, clean=1)
    if failed == 0:
        return Root(torch.from_numpy(upper.T), lower=True)
    values, vectors = torch.linalg.eigh(cov)
    return Root(vectors * _nonnegative(values).sqrt(), lower=False)


class FrechetDistance:
    """Distances to one fixed reference."""

    def __init__(self, reference: Gaussian) -> None:
        self.reference = reference
        self._trace = float(reference.cov.trace())

    @cached_property
    def _root(self) -> Root:  # the Gram side does without it
        return root(self.reference.cov)

    def to(self, other: Gaussian) -> float:
        """Distance to a Gaussian."""
        self._check(other.mean)
        inner = _congruent(other.cov, self._root)  # (d, d)
        return self._assemble(other.mean, float(other.cov.trace()), inner)

    def to_rows(self, rows: Tensor) -> float:
        """Distance to the Gaussian of feature rows (n, d), by whichever side is smaller."""
        n, d = rows.shape
        if n > d:
            return self.to(Moments.of(rows).compute())
        if n < 2:
            raise ValueError(f"a covariance needs at least 2 rows, found {n}")
        mean, scaled = _scaled(rows)  # (n, d), its Gram matrix is the covariance
        self._check(mean)
        inner = scaled @ self.reference.cov @ scaled.T  # (n, n)
        return self._assemble(mean, float(scaled.square().sum()), inner)

    def to_parts(self, rows: Tensor, parts: list[Tensor]) -> list[float]:
        """Distances to the Gaussians of several subsets of n <= d rows: one product with the
        reference serves them all.

        parts  the positions of each subset's rows
        """
        rows = rows.to("cpu", torch.float64)
        self._check(rows[0])
        centre = rows.mean(dim=0)
        centred = rows - centre  # a shift changes no covariance, and leaves rounding less to spoil
        gram = centred @ self.reference.cov @ centred.T  # (n, n)
        distances = []
        for part in parts:
            subset, count = centred[part], len(part)
            mean, inner = subset.mean(dim=0), gram[part][:, part]
            # about the subset's mean
            inner = inner - inner.mean(dim=0) - inner.mean(dim=1, keepdim=True) + inner.mean()
            trace = float((subset - mean).square().sum()) / (count - 1)
            distances.append(self._assemble(mean + centre, trace, inner / (count - 1)))
        return distances

    def _assemble(self, mean: Tensor, trace: float, inner: Tensor) -> float:
        eigenvalues = torch.linalg.eigvalsh(inner)  # of which only the lower triangle is read
        cross = float(_nonnegative(eigenvalues).sqrt().sum())
        gap = float((mean - self.reference.mean).square().sum())
        return gap + trace + self._trace - 2.0 * cross

    def _check(self, mean: Tensor) -> None:
        if mean.shape != self.reference.mean.shape:
            raise ValueError(
                f"expected features of width {len(self.reference.mean)}, found width {len(mean)}"
            )


def frechet_of_rows(a: Tensor, b: Tensor) -> float:
    """Fréchet distance of two sets of rows, by the smallest of the matrices that have the
    eigenvalues.  a (n, d), b (m, d)

    With both sets smaller than d no covariance is made at all: A = X^T X, B = Y^T Y, and the
    eigenvalues of A B are the squared singular values of X Y^T.
    """
    few, many = (a, b) if len(a) <= len(b) else (b, a)
    if len(few) < 2:
        raise ValueError(f"a covariance needs at least 2 rows, found {len(few)}")
    if len(many) > many.shape[1]:
        return FrechetDistance(Moments.of(many).compute()).to_rows(few)
    if few.shape[1] != many.shape[1]:
        raise ValueError(f"expected features of width {many.shape[1]}, found width {few.shape[1]}")
    (mean_a, x), (mean_b, y) = _scaled(few), _scaled(many)
    product = x @ y.T  # (n, m)
    cross = float(_nonnegative(torch.linalg.eigvalsh(product @ product.T)).sqrt().sum())
    gap = float((mean_a - mean_b).square().sum())
    return gap + float(x.square().sum()) + float(y.square().sum()) - 2.0 * cross


def frechet(a: Gaussian, b: Gaussian) -> float:
    """Fréchet distance (squared, as FID has it) of two Gaussians."""
    return FrechetDistance(b).to(a)


def _congruent(cov: Tensor, factor: Root) -> Tensor:
    """R^T A R, of which only the lower triangle is meant to be read.  (d, d)

    With T the lower half of A (its diagonal blocks halved) A = T + T^T, so that R^T A R = R^T X +
    X^T R with X = T R, which is lower as T and R are. A product of two blocks is left out wherever
    one of them is zero, and above the diagonal.
    """
    r, d = factor.factor, len(cov)
    if d < _WIDE or not factor.lower:
        return r.T @ cov @ r
    x, result = cov.clone(), torch.empty_like(cov)
    bounds = [(start, min(start + _BLOCK, d)) for start in range(0, d, _BLOCK)]
    for start, end in bounds:
        x[start:end, start:end] *= 0.5
        # T becomes X from left to right: what is overwritten is not needed again
        for left in range(0, end, _BLOCK):
            right = min(left + _BLOCK, end)
            x[start:end, left:right] = x[start:end, left:end] @ r[left:end, left:right]
    for start, end in bounds:
        rows = result[start:end, :end]
        torch.mm(r[start:, start:end].T, x[start:, :end], out=rows)
        rows.addmm_(x[start:, start:end].T, r[start:, :end])
    return result


def _scaled(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The mean, and centred rows whose Gram matrix is the covariance.  (d,), (n, d)"""
    rows = rows.to("cpu", torch.float64)
    mean = rows.mean(dim=0)
    return mean, (rows - mean) / (len(rows) - 1) ** 0.5


def _nonnegative(eigenvalues: Tensor) -> Tensor:
    """Eigenvalues of a positive semidefinite matrix with rounding below zero removed; more is an
    error."""
    smallest, largest = float(eigenvalues.min()), float(eigenvalues.max())
    if not smallest >= -1e-9 * max(largest, 1e-300):  # written so that NaN is refused as well
        raise ValueError(
            f"expected a positive semidefinite matrix, found eigenvalues from {smallest:.3g} to"
            f" {largest:.3g}: one of the covariances is not a covariance"
        )
    return eigenvalues.clamp_min(0.0)


# --------------------------------------------------------------------------------------------------
# Fréchet distances of subsets of one set of pictures: they give its interval, and its limit for
# many pictures.
#
# The distance of N pictures is too large by about c / N, and c depends on the model
# (arXiv:1911.07023), so that N reorders models. From the same features: the distance at N, at 7/8 N
# (all but a group) and at N/2 (half of the groups), a line over 1/N, and its value at 0. The halves
# are the 14 blocks of the 3-(8, 4, 1) design: every group lies in seven of them and every two
# groups together in three, so that all are used alike, and so that the seven halves without a group
# are halves for the jackknife too.
#
# n rows, d feature width, G = 8 groups


GROUPS = 8
LIMIT = "line over 1/N through the distances at N, 7/8 N and N/2 of the same features, at 1/N = 0"
# Four of eight groups whose numbers, as bits, cancel out: the affine planes of a cube.
HALVES = tuple(
    four for four in combinations(range(GROUPS), 4) if four[0] ^ four[1] ^ four[2] ^ four[3] == 0
)


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
        sizes = [
            self.n,
            *(self.n - count for count in self.counts),
            *(self._size(half) for half in HALVES),
        ]
        value = intercept(sizes, [self.whole, *self.without, *self.halves])
        replicates = []
        for group in range(GROUPS):
            kept = [k for k, half in enumerate(HALVES) if group not in half]
            parts = [self.n - self.counts[group], *(self._size(HALVES[k]) for k in kept)]
            replicates.append(
                intercept(parts, [self.without[group], *(self.halves[k] for k in kept)])
            )
        return (value, *jackknife(value, replicates))

    def _size(self, half: tuple[int, ...]) -> int:
        return sum(self.counts[group] for group in half)


def intercept(sizes: list[int], values: list[float]) -> float:
    """The value at 1/N = 0 of the line through the mean value of each size: a size counts once,
    however often measured."""
    nearby: dict[int, list[tuple[int, float]]] = {}
    for size, value in zip(sizes, values, strict=True):
        share = round(8 * size / max(sizes))  # groups may differ by one picture
        nearby.setdefault(share, []).append((size, value))
    inverse = [float(np.mean([1.0 / size for size, _ in part])) for part in nearby.values()]
    mean = [float(np.mean([value for _, value in part])) for part in nearby.values()]
    return float(np.polynomial.polynomial.polyfit(inverse, mean, 1)[0])


def distances(pictures: GroupedMoments, reference: FrechetDistance, halves: bool) -> Distances:
    """Everything by the smaller side: few rows share one Gram matrix, many share the groups'
    moments."""
    wanted = [
        tuple(range(GROUPS)),
        *(tuple(k for k in range(GROUPS) if k != group) for group in range(GROUPS)),
    ]
    wanted += list(HALVES) if halves else []
    if pictures.groups % GROUPS:
        raise ValueError(
            f"expected pictures gathered in {GROUPS} groups or a multiple, found {pictures.groups}"
        )
    if pictures.n < 4 * GROUPS:
        raise ValueError(
            f"a Fréchet distance with its interval needs at least {4 * GROUPS} pictures, found"
            f" {pictures.n}"
        )
    rows = pictures.rows
    if rows is not None and len(rows) <= pictures.width:
        group = torch.from_numpy(pictures.held.ids % GROUPS)
        values = reference.to_parts(
            rows, [torch.isin(group, torch.tensor(subset)).nonzero()[:, 0] for subset in wanted]
        )
        counts = torch.bincount(group, minlength=GROUPS).tolist()
    else:
        parts = pictures.moments(GROUPS)
        values = [
            reference.to(merged([parts[group] for group in subset]).compute()) for subset in wanted
        ]
        counts = [part.n for part in parts]
    if min(counts) < 2:
        raise ValueError(f"a group holds {min(counts)} pictures: number the pictures 0 to N - 1")
    return Distances(
        pictures.n,
        values[0],
        tuple(values[1 : 1 + GROUPS]),
        tuple(values[1 + GROUPS :]),
        tuple(counts),
    )
