"""Keyed random tensors: pure functions of (seed, purpose, image index), never of rank, batch or what was drawn before.

B rows, n numbers per row.
"""

from math import prod
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.flow import gaussian
from fulcrum.spec.keyed import GOLDEN, bits, key


class DrawPlace(NamedTuple):
    """Where numbers are made, and whether by compiled code; the numbers are the same."""

    device: str = "cpu"
    compiled: bool = False

    @property
    def far(self) -> bool:
        return torch.device(self.device).type != "cpu"


HERE = DrawPlace()


def uniform(seed: int, purpose: str, index: np.ndarray, n: int = 1, place: DrawPlace = HERE) -> Tensor:
    """(B, n) numbers in (0, 1), 23 bits each: exact in fp32 and never 0 or 1."""
    if place.far:
        far = (gaussian.device_bits(device_keys(seed, purpose, index, place.device), n) >> 41) & (1 << 23) - 1
        return (far.float() + 0.5) / 2**23
    words = bits(key(seed, purpose, index), n) >> np.uint64(41)
    return torch.from_numpy((words.astype(np.float64) + 0.5) / 2**23).float()


def normal(seed: int, purpose: str, index: np.ndarray, shape: tuple[int, ...], place: DrawPlace = HERE) -> Tensor:
    """(B, *shape) standard normal numbers, the same on every device."""
    n = prod(shape)
    if not place.far:
        return torch.from_numpy(gaussian.normals(key(seed, purpose, index), n)).reshape(len(index), *shape)
    form = gaussian.compiled_normals() if place.compiled else gaussian.device_normals
    numbers = form(device_keys(seed, purpose, index, place.device), n, gaussian.device_lines(place.device))
    return numbers.reshape(len(index), *shape)


def device_keys(seed: int, purpose: str, index: np.ndarray, device: str) -> Tensor:
    """(B,) int64, the words of `key(seed, purpose, index)`, folded on the device: of a stretch of images only its bounds
    are told there."""
    first, count = int(index[0]) if len(index) else 0, len(index)
    if count and np.array_equal(index, np.arange(first, first + count)):
        numbers = torch.arange(first, first + count, device=device)
    else:
        numbers = torch.from_numpy(index.astype(np.int64)).to(device)
    opening = int((key(seed, purpose) + GOLDEN).view(np.int64)[0])
    return gaussian.device_scramble(gaussian.device_scramble(numbers + gaussian.STEP) ^ opening)


def subset(seed: int, purpose: str, index: np.ndarray, n: int, kept: int, place: DrawPlace = HERE) -> Tensor:
    """(B, kept) sorted positions out of n, each subset equally likely; of equal numbers the first comes first."""
    order = uniform(seed, purpose, index, n, place).argsort(dim=1, stable=True)[:, :kept]
    return order.sort(dim=1).values


def grouped_subset(
    seed: int, purpose: str, index: np.ndarray, rows: int, columns: int, kept: int, place: DrawPlace = HERE
) -> Tensor:
    """(B, K) sorted positions on a grid: of every 2 x 2 group `kept` of its four, each choice equally likely.

    Where a side is odd the groups at its edge are smaller and keep their share, rounded up: none is ever empty.
    """
    drawn = uniform(seed, purpose, index, rows * columns, place).reshape(-1, rows, columns)
    even = F.pad(drawn, (0, columns % 2, 0, rows % 2), value=2.0)  # places that are not there come last
    groups = even.unfold(1, 2, 2).unfold(2, 2, 2)  # (B, groups down, groups across, 2, 2)
    members = groups.flatten(3)  # (B, groups down, groups across, 4)
    quota = -(-(members < 1).sum(-1, keepdim=True) * kept // 4)
    chosen = members.argsort(dim=-1, stable=True).argsort(-1) < quota
    whole = (
        chosen.reshape(groups.shape).transpose(2, 3).reshape(even.shape)[:, :rows, :columns].flatten(1)
    )  # (B, N) true where kept
    # Not `nonzero`: how many it finds a device would have to tell the host, which must wait for that.
    positions = (~whole).byte().argsort(dim=1, stable=True)
    return positions[:, : _grouped_count(rows, columns, kept)]


def _grouped_count(rows: int, columns: int, kept: int) -> int:
    """How many positions `grouped_subset` keeps: whole groups, those at an odd side, and the one in the corner."""
    down, across = rows // 2, columns // 2
    edge = (columns % 2) * down + (rows % 2) * across
    return down * across * kept + edge * -(-2 * kept // 4) + (rows % 2) * (columns % 2) * -(-kept // 4)
