"""Mean and covariance of feature rows, gathered in pieces and merged: constant memory, fp64.

B rows, d feature width
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Gaussian(NamedTuple):
    """Mean and unbiased covariance of n rows."""

    n: int
    mean: Tensor  # (d,) fp64
    cov: Tensor  # (d, d) fp64


class Moments:
    """Count, mean and scatter about the mean (Chan, Golub and LeVeque 1979).

    Raw second moments would cancel when the mean is large against the spread; the scatter about the running mean does
    not. So any order and any split of the rows gives the same result to rounding.
    """

    def __init__(self, width: int) -> None:
        self.n = 0
        self.mean = torch.zeros(width, dtype=torch.float64)  # (d,)
        self.scatter = torch.zeros(width, width, dtype=torch.float64)  # (d, d), sum of (x - mean)(x - mean)^T

    @classmethod
    def of(cls, rows: Tensor) -> "Moments":
        """Moments of one set of rows.  rows (B, d)"""
        if rows.ndim != 2:
            raise ValueError(f"expected feature rows of shape (B, d), found {tuple(rows.shape)}")
        if not bool(torch.isfinite(rows).all()):
            raise ValueError("feature rows hold NaN or infinity: look at the images or the feature network")
        moments = cls(rows.shape[1])
        if rows.shape[0]:
            rows = rows.to("cpu", torch.float64)
            moments.n, moments.mean = rows.shape[0], rows.mean(dim=0)
            centred = rows - moments.mean
            moments.scatter = centred.T @ centred
        return moments

    def update(self, rows: Tensor) -> "Moments":
        """Takes in more rows, in place."""
        return self.merge(Moments.of(rows))

    def merge(self, other: "Moments") -> "Moments":
        """Takes in another gathering, in place."""
        if other.mean.shape != self.mean.shape:
            raise ValueError(f"expected features of width {len(self.mean)}, found width {len(other.mean)}")
        if other.n:
            n, gap = self.n + other.n, other.mean - self.mean
            self.scatter += other.scatter + torch.outer(gap, gap) * (self.n * other.n / n)
            self.mean = self.mean + gap * (other.n / n)
            self.n = n
        return self

    def without(self, part: "Moments") -> "Moments":
        """The moments that remain when `part`, rows gathered before, is taken out again: for the jackknife."""
        if not 0 < part.n < self.n:
            raise ValueError(f"expected a part of 1 to {self.n - 1} rows to take out, found {part.n}")
        rest = Moments(len(self.mean))
        rest.n = self.n - part.n
        gap = part.mean - self.mean
        rest.mean = self.mean - gap * (part.n / rest.n)
        rest.scatter = self.scatter - part.scatter - torch.outer(gap, gap) * (self.n * part.n / rest.n)
        return rest

    def compute(self) -> Gaussian:
        """Mean and unbiased covariance."""
        if self.n < 2:
            raise ValueError(f"a covariance needs at least 2 rows, found {self.n}")
        return Gaussian(self.n, self.mean.clone(), self.scatter / (self.n - 1))
