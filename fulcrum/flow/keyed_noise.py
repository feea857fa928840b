"""Keyed random tensors: pure functions of (seed, purpose, image index), never of rank, batch or what was drawn before.

B rows, n numbers per row.
"""

from math import prod

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.flow import gaussian
from fulcrum.spec.keyed import bits, key


def uniform(seed: int, purpose: str, index: np.ndarray, n: int = 1) -> Tensor:
    """(B, n) numbers in (0, 1), 23 bits each: exact in fp32 and never 0 or 1."""
    words = bits(key(seed, purpose, index), n) >> np.uint64(41)
    return torch.from_numpy((words.astype(np.float64) + 0.5) / 2**23).float()


def normal(seed: int, purpose: str, index: np.ndarray, shape: tuple[int, ...], device: str = "cpu") -> Tensor:
    """(B, *shape) standard normal numbers, the same on every device."""
    keys, n = key(seed, purpose, index), prod(shape)
    if torch.device(device).type == "cpu":
        return torch.from_numpy(gaussian.normals(keys, n)).reshape(len(index), *shape)
    on_device = torch.from_numpy(keys.view(np.int64)).to(device)
    return gaussian.device_normals(on_device, n, gaussian.device_lines(device)).reshape(len(index), *shape)


def subset(seed: int, purpose: str, index: np.ndarray, n: int, kept: int) -> Tensor:
    """(B, kept) sorted positions out of n, each subset equally likely."""
    order = uniform(seed, purpose, index, n).argsort(dim=1)[:, :kept]
    return order.sort(dim=1).values


def grouped_subset(seed: int, purpose: str, index: np.ndarray, rows: int, columns: int, kept: int) -> Tensor:
    """(B, K) sorted positions on a grid: of every 2 x 2 group `kept` of its four, each choice equally likely.

    Where a side is odd the groups at its edge are smaller and keep their share, rounded up: none is ever empty.
    """
    drawn = uniform(seed, purpose, index, rows * columns).reshape(-1, rows, columns)
    even = F.pad(drawn, (0, columns % 2, 0, rows % 2), value=2.0)  # places that are not there come last
    groups = even.unfold(1, 2, 2).unfold(2, 2, 2)  # (B, groups down, groups across, 2, 2)
    members = groups.flatten(3)  # (B, groups down, groups across, 4)
    quota = -(-(members < 1).sum(-1, keepdim=True) * kept // 4)
    chosen = members.argsort(-1).argsort(-1) < quota
    whole = (
        chosen.reshape(groups.shape).transpose(2, 3).reshape(even.shape)[:, :rows, :columns].flatten(1)
    )  # (B, N) true where kept
    return whole.nonzero()[:, 1].reshape(len(index), -1)
