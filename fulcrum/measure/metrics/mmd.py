"""Squared maximum mean discrepancy, blockwise: unbiased, and in the published form; with any kernel of `kernel.py`.

Sums are kept per group of rows, so that one pass gives the value and every delete-a-group replicate of the jackknife.
Memory is a block of pairs, never all of them. Products are taken in fp64, or in fp32 (`fast`) with fp64 sums.

n generated rows, m reference rows, d feature width, G groups
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fulcrum.measure.metrics.kernel import GaussianKernel, Kernel

PUBLISHED_SIGMA = 10.0  # CMMD (arXiv:2401.09603), and DINO-MMD in the PRX study
PUBLISHED_SCALE = 1000.0
_MEDIAN_ROWS = 2000  # rows that the median looks at: two million pairs are plenty
_BLOCK_ROWS = 256
_TILE = 2048  # columns of a block in fp32: 256 x 2048 numbers stay in the cache between their operations


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


def self_sum(rows: Tensor, kernel: float | Kernel, fast: bool = False) -> float:
    """Sum of k over ordered pairs of different rows. A number stands for a Gaussian kernel of that sigma."""
    mean, total = _mean(rows, fast), 0.0
    kernel, rows = _kernel(kernel).about(mean), _ready(rows, mean, fast)
    norms = kernel.norms(rows)
    for start in range(0, rows.shape[0], _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, rows.shape[0])
        for left, right in _tiles(start, rows.shape[0], fast):
            block = kernel.block(rows[start:stop], norms[start:stop], rows[left:right], norms[left:right])
            square = stop - start if left == start else 0  # of columns that are the rows themselves
            here = block[:, :square]
            total += float(here.sum() - here.diagonal().sum()) + 2.0 * float(block[:, square:].sum())
    return total + kernel.offset * rows.shape[0] * (rows.shape[0] - 1)


class KernelSums(NamedTuple):
    """Kernel sums of generated rows, per group, against themselves and against the reference."""

    counts: Tensor  # (G,) rows of each group
    own: Tensor  # (G, G) sum over pairs of different rows, one of group g and one of group h
    cross: Tensor  # (G,) sum over rows of group g and all reference rows
    m: int
    reference: float  # self_sum of the reference


def kernel_sums(
    rows: Tensor, reference: Tensor, reference_sum: float, kernel: float | Kernel, groups: int = 1, fast: bool = False
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
    own, cross = torch.zeros(groups, groups, dtype=torch.float64), torch.zeros(groups, dtype=torch.float64)
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
                cross[g] += kernel.block(x[first:last], xx[first:last], y[left:right], yy[left:right]).sum().double()
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
    return PUBLISHED_SCALE * ((own + n) / n**2 + (sums.reference + m) / m**2 - 2.0 * cross / (n * m))


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
    """Rows moved to the reference's mean: |x|^2 + |y|^2 - 2xy cancels less, and so does a polynomial."""
    if rows.shape[1] != len(mean):
        raise ValueError(f"expected features of width {len(mean)}, found width {rows.shape[1]}")
    return rows - mean if fast and rows.dtype == mean.dtype else (rows.double() - mean.double()).to(mean.dtype)
