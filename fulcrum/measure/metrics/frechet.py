"""Fréchet distance of two Gaussians by symmetric eigenvalues; on the small Gram side when rows are few.

d^2 = |mean_a - mean_b|^2 + tr(A) + tr(B) - 2 tr((A B)^(1/2))                  (Dowson and Landau 1982)

With B = R R^T the last trace is the sum of the square roots of the eigenvalues of R^T A R, which is symmetric: no
complex matrix square root, no dropped imaginary part. R depends on the reference only and is made once. With fewer rows
than features, A = X^T X and the same non-zero eigenvalues are those of the smaller X B X^T.

n rows, m reference rows, d feature width
"""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fulcrum.measure.features.moments import Gaussian, Moments

_WIDE = 512  # from here on R^T A R by blocks that skip the zeros of R and half of the result: 1.4 d^3 instead of 4 d^3
_BLOCK = 192  # rows of a block: small enough to skip most zeros, large enough for a product to run at full speed


class Root(NamedTuple):
    factor: Tensor  # (d, d), R with R R^T = cov
    lower: bool  # triangular


def root(cov: Tensor) -> Root:
    """Cholesky where cov is regular, else by eigenvalues.  (d, d)"""
    from scipy.linalg.lapack import dpotrf  # with its package 0.2 s to import, which no first step waits for

    # The transposed view is what Fortran reads without a copy; OpenBLAS takes 0.6 of torch's time at 2,048 dimensions.
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
        """Distances to the Gaussians of several subsets of n <= d rows: one product with the reference serves them all.

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
            inner = inner - inner.mean(dim=0) - inner.mean(dim=1, keepdim=True) + inner.mean()  # about the subset's mean
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
            raise ValueError(f"expected features of width {len(self.reference.mean)}, found width {len(mean)}")


def frechet_of_rows(a: Tensor, b: Tensor) -> float:
    """Fréchet distance of two sets of rows, by the smallest of the matrices that have the eigenvalues.  a (n, d), b (m, d)

    With both sets smaller than d no covariance is made at all: A = X^T X, B = Y^T Y, and the eigenvalues of A B are the
    squared singular values of X Y^T.
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

    With T the lower half of A (its diagonal blocks halved) A = T + T^T, so that R^T A R = R^T X + X^T R with X = T R, which
    is lower as T and R are. A product of two blocks is left out wherever one of them is zero, and above the diagonal.
    """
    r, d = factor.factor, len(cov)
    if d < _WIDE or not factor.lower:
        return r.T @ cov @ r
    x, result = cov.clone(), torch.empty_like(cov)
    bounds = [(start, min(start + _BLOCK, d)) for start in range(0, d, _BLOCK)]
    for start, end in bounds:
        x[start:end, start:end] *= 0.5
        for left in range(0, end, _BLOCK):  # T becomes X from left to right: what is overwritten is not needed again
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
    """Eigenvalues of a positive semidefinite matrix with rounding below zero removed; more is an error."""
    smallest, largest = float(eigenvalues.min()), float(eigenvalues.max())
    if not smallest >= -1e-9 * max(largest, 1e-300):  # written so that NaN is refused as well
        raise ValueError(
            f"expected a positive semidefinite matrix, found eigenvalues from {smallest:.3g} to {largest:.3g}: "
            "one of the covariances is not a covariance"
        )
    return eigenvalues.clamp_min(0.0)
