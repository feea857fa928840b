"""Squared maximum mean discrepancy with a Gaussian kernel, blockwise: unbiased, and in the published form.

k(x, y) = exp(-|x - y|^2 / (2 sigma^2)).  Sums are kept per group of rows, so that one pass gives the value and every
delete-a-group replicate of the jackknife. Memory is one group against all rows.

n generated rows, m reference rows, d feature width, G groups
"""

from typing import NamedTuple

import torch
from torch import Tensor

PUBLISHED_SIGMA = 10.0  # CMMD (arXiv:2401.09603), and DINO-MMD in the PRX study
PUBLISHED_SCALE = 1000.0
_MEDIAN_ROWS = 2000  # rows that the median looks at: two million pairs are plenty
_BLOCK_ROWS = 256


def median_bandwidth(reference: Tensor) -> float:
    """The median distance of pairs of reference rows: fixed by the reference alone, the same for every arm.

    A bandwidth taken from both sets would move with the generated pictures, so that arms were judged by unlike kernels.
    """
    m = reference.shape[0]
    if m < 2:
        raise ValueError(f"a bandwidth needs at least 2 reference rows, found {m}")
    take = torch.linspace(0, m - 1, min(m, _MEDIAN_ROWS)).round().long()  # evenly spaced, no randomness
    rows = reference[take].double()
    median = float(torch.pdist(rows).median())
    if median <= 0.0:
        raise ValueError("half of the reference rows are identical: no bandwidth can be taken from them")
    return median


def unit_norm(rows: Tensor) -> Tensor:
    """Rows divided by their length.  (n, d)"""
    length: Tensor = torch.linalg.vector_norm(rows.double(), dim=1, keepdim=True)
    if not bool((length > 0).all()):
        raise ValueError("a feature row is exactly zero and has no direction: look at the feature network")
    return rows.double() / length


def kernel_block(x: Tensor, y: Tensor, sigma: float) -> Tensor:
    """k between all rows of x and all rows of y, in fp64.  (n, m)"""
    squared = torch.addmm(y.square().sum(dim=1), x, y.T, alpha=-2.0)
    squared.add_(x.square().sum(dim=1, keepdim=True)).clamp_min_(0.0)
    return squared.mul_(-0.5 / sigma**2).exp_()


def self_sum(rows: Tensor, sigma: float) -> float:
    """Sum of k over ordered pairs of different rows."""
    rows, total = _centred(rows, rows), 0.0
    for start in range(0, rows.shape[0], _BLOCK_ROWS):
        block = kernel_block(rows[start : start + _BLOCK_ROWS], rows[start:], sigma)
        here = block[:, : block.shape[0]]  # the square on the diagonal
        total += float(here.sum() - here.diagonal().sum()) + 2.0 * float(block[:, block.shape[0] :].sum())
    return total


class KernelSums(NamedTuple):
    """Kernel sums of generated rows, per group, against themselves and against the reference."""

    counts: Tensor  # (G,) rows of each group
    own: Tensor  # (G, G) sum over pairs of different rows, one of group g and one of group h
    cross: Tensor  # (G,) sum over rows of group g and all reference rows
    m: int
    reference: float  # self_sum of the reference


def kernel_sums(rows: Tensor, reference: Tensor, reference_sum: float, sigma: float, groups: int = 1) -> KernelSums:
    """One pass over the generated rows; row i belongs to group i mod G."""
    n = rows.shape[0]
    if n < 2 * groups:
        raise ValueError(f"{groups} groups need at least {2 * groups} generated rows, found {n}")
    group = torch.arange(n) % groups
    by_group = torch.argsort(group, stable=True)
    group = group[by_group]
    x, y = _centred(rows, reference)[by_group], _centred(reference, reference)
    counts = torch.bincount(group, minlength=groups)
    own, cross = torch.zeros(groups, groups, dtype=torch.float64), torch.zeros(groups, dtype=torch.float64)
    start = 0
    for g in range(groups):
        size = int(counts[g])
        for first in range(start, start + size, _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, start + size)
            block = kernel_block(x[first:last], x[first:], sigma)  # later rows only: k is symmetric
            block.diagonal().zero_()
            block[:, last - first :] *= 2.0  # a pair of rows counts in both orders
            own[g].index_add_(0, group[first:], block.sum(dim=0))
            cross[g] += kernel_block(x[first:last], y, sigma).sum()
        start += size
    return KernelSums(counts, (own + own.T) / 2, cross, reference.shape[0], reference_sum)


def unbiased(sums: KernelSums, leave: int | None = None) -> float:
    """The unbiased estimate of MMD^2 (Gretton et al. 2012, equation 3), without group `leave`."""
    n, own, cross = _totals(sums, leave)
    m = sums.m
    return own / (n * (n - 1)) + sums.reference / (m * (m - 1)) - 2.0 * cross / (n * m)


def published(sums: KernelSums, leave: int | None = None) -> float:
    """The published form: the biased estimate (each row against itself included), x1000."""
    n, own, cross = _totals(sums, leave)
    m = sums.m
    return PUBLISHED_SCALE * ((own + n) / n**2 + (sums.reference + m) / m**2 - 2.0 * cross / (n * m))


def _totals(sums: KernelSums, leave: int | None) -> tuple[int, float, float]:
    n, own, cross = int(sums.counts.sum()), float(sums.own.sum()), float(sums.cross.sum())
    if leave is None:
        return n, own, cross
    gone = float(2.0 * sums.own[leave].sum() - sums.own[leave, leave])
    return n - int(sums.counts[leave]), own - gone, cross - float(sums.cross[leave])


def _centred(rows: Tensor, reference: Tensor) -> Tensor:
    """Rows about the reference's mean: |x|^2 + |y|^2 - 2xy cancels less when the mean is gone."""
    if rows.shape[1] != reference.shape[1]:
        raise ValueError(f"expected features of width {reference.shape[1]}, found width {rows.shape[1]}")
    return rows.double() - reference.double().mean(dim=0)
