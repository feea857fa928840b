"""Fréchet distance of two Gaussians by symmetric eigenvalues; on the small Gram side when rows are few.

d^2 = |mean_a - mean_b|^2 + tr(A) + tr(B) - 2 tr((A B)^(1/2))                  (Dowson and Landau 1982)

With B = R R^T the last trace is the sum of the square roots of the eigenvalues of R^T A R, which is symmetric: no
complex matrix square root, no dropped imaginary part. R depends on the reference only and is made once. With fewer rows
than features, A = X^T X and the same non-zero eigenvalues are those of the smaller X B X^T.

n rows, d feature width
"""

import torch
from torch import Tensor

from fulcrum.measure.moments import Gaussian, Moments


def root(cov: Tensor) -> Tensor:
    """R with R R^T = cov: Cholesky where cov is regular, else by eigenvalues.  (d, d)"""
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(cov)
    if int(failed) == 0:
        return factor
    values, vectors = torch.linalg.eigh(cov)
    factor = vectors * _nonnegative(values).sqrt()
    return factor


class FrechetDistance:
    """Distances to one fixed reference."""

    def __init__(self, reference: Gaussian) -> None:
        self.reference = reference
        self._root = root(reference.cov)  # (d, d)
        self._trace = float(reference.cov.trace())

    def to(self, other: Gaussian) -> float:
        """Distance to a Gaussian."""
        self._check(other.mean)
        inner = self._root.T @ other.cov @ self._root  # (d, d)
        return self._assemble(other.mean, float(other.cov.trace()), inner)

    def to_rows(self, rows: Tensor) -> float:
        """Distance to the Gaussian of feature rows (n, d), by whichever side is smaller."""
        n, d = rows.shape
        if n > d:
            return self.to(Moments.of(rows).compute())
        if n < 2:
            raise ValueError(f"a covariance needs at least 2 rows, found {n}")
        rows = rows.to("cpu", torch.float64)
        mean = rows.mean(dim=0)
        self._check(mean)
        scaled = (rows - mean) / (n - 1) ** 0.5  # (n, d), its Gram matrix is the covariance
        inner = scaled @ self.reference.cov @ scaled.T  # (n, n)
        return self._assemble(mean, float(scaled.square().sum()), inner)

    def _assemble(self, mean: Tensor, trace: float, inner: Tensor) -> float:
        eigenvalues = torch.linalg.eigvalsh((inner + inner.T) / 2)
        cross = float(_nonnegative(eigenvalues).sqrt().sum())
        gap = float((mean - self.reference.mean).square().sum())
        return gap + trace + self._trace - 2.0 * cross

    def _check(self, mean: Tensor) -> None:
        if mean.shape != self.reference.mean.shape:
            raise ValueError(f"expected features of width {len(self.reference.mean)}, found width {len(mean)}")


def frechet(a: Gaussian, b: Gaussian) -> float:
    """Fréchet distance (squared, as FID has it) of two Gaussians."""
    return FrechetDistance(b).to(a)


def _nonnegative(eigenvalues: Tensor) -> Tensor:
    """Eigenvalues of a positive semidefinite matrix with rounding below zero removed; more is an error."""
    smallest, largest = float(eigenvalues.min()), float(eigenvalues.max())
    if not smallest >= -1e-9 * max(largest, 1e-300):  # written so that NaN is refused as well
        raise ValueError(
            f"expected a positive semidefinite matrix, found eigenvalues from {smallest:.3g} to {largest:.3g}: "
            "one of the covariances is not a covariance"
        )
    return eigenvalues.clamp_min(0.0)
