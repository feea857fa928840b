"""From a uniform number to the time of a sample, and the weight of a time."""

import torch
from torch import Tensor

from fulcrum.flow.path import shift

EARLIEST = 0.001  # uniform times start here: the published setting


class LogitNormalTime:
    """u in (0, 1) -> t in (0, 1]: one uniform number decides both the mixture's part and the time in it."""

    def __init__(self, uniform_share: float, k: float) -> None:
        self.uniform_share, self.k = uniform_share, k

    def __call__(self, u: Tensor) -> Tensor:  # (B,) -> (B,)
        share = self.uniform_share
        uniform = EARLIEST + (1 - EARLIEST) * (u / share if share > 0 else u)
        if share >= 1:
            return uniform
        rest = ((u - share) / (1 - share)).clamp(1e-6, 1 - 1e-6)
        normal = shift(torch.sigmoid(torch.special.ndtri(rest)), self.k)
        return torch.where(u < share, uniform, normal)


def even(t: Tensor) -> Tensor:
    return torch.ones_like(t)


class MinSNRWeight:
    """min((1 - t)^2, gamma t^2): min(SNR, gamma) on the error of x0, which is t times the error of v.  arXiv:2303.09556"""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def __call__(self, t: Tensor) -> Tensor:  # (B,) -> (B,)
        return torch.minimum((1 - t).square(), self.gamma * t.square())
