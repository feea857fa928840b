"""Density and coverage (arXiv:2002.09797), blockwise: are the pictures where the reference is, and everywhere it is.

Every reference row has a ball that reaches to its k-th nearest fellow. Density counts the balls that a picture lies in
(over k, so that about 1 is natural); coverage is the share of balls that hold any picture. Chosen over precision and
recall, which one outlier's huge ball can satisfy.

n generated rows, m reference rows, d feature width, G groups
"""

from typing import NamedTuple

import torch
from torch import Tensor

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
            rows[start : start + _NEIGHBOUR_BLOCK_ROWS], norms[start : start + _NEIGHBOUR_BLOCK_ROWS], rows, norms
        )
        block[torch.arange(len(block)), torch.arange(start, start + len(block))] = torch.inf  # not its own neighbour
        radii.append(block.topk(K, dim=1, largest=False).values[:, -1])
    return Balls(rows, mean, torch.cat(radii))


def count(rows: Tensor, reference: Balls, groups: int) -> Counts:
    """One pass over the generated rows; row i belongs to group i mod G."""
    if len(rows) < 2 * groups:
        raise ValueError(
            f"density and coverage in {groups} groups need at least {2 * groups} generated rows, found {len(rows)}"
        )
    rows = rows.float() - reference.mean
    norms, reference_norms = rows.square().sum(dim=1), reference.rows.square().sum(dim=1)
    group = torch.arange(len(rows)) % groups
    inside, hit = torch.zeros(groups, dtype=torch.long), torch.zeros(len(reference.rows), groups, dtype=torch.bool)
    for start in range(0, len(rows), _NEIGHBOUR_BLOCK_ROWS):
        part = slice(start, start + _NEIGHBOUR_BLOCK_ROWS)
        held = _squared(rows[part], norms[part], reference.rows, reference_norms) <= reference.radii  # (b, m)
        inside.index_add_(0, group[part], held.sum(dim=1))
        in_balls = torch.zeros(groups, held.shape[1], dtype=torch.int32).index_add_(0, group[part], held.int())
        hit |= in_balls.T > 0
    return Counts(torch.bincount(group, minlength=groups), inside, hit)


def _squared(x: Tensor, xx: Tensor, y: Tensor, yy: Tensor) -> Tensor:
    return torch.addmm(yy, x, y.T, alpha=-2.0).add_(xx[:, None]).clamp_min_(0.0)


def _kept(groups: int, leave: int | None) -> Tensor:
    return torch.tensor([group for group in range(groups) if group != leave])
