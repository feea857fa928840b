"""From a uniform number to the time of a sample, and the weight of a time."""

import torch
from torch import Tensor

from fulcrum.flow.path import shift

EARLIEST = 0.001  # uniform times start here: the published setting


class LogitNormalTime:
    """u in (0, 1) -> t in (0, 1]: one uniform number decides both the mixture's part and the time in it."""

    def __init__(self, uniform_share: float, k: float, mean: float = 0.0, deviation: float = 1.0) -> None:
        self.uniform_share, self.k = uniform_share, k
        self.mean, self.deviation = mean, deviation  # of the normal number whose sigmoid is a time

    def __call__(self, u: Tensor) -> Tensor:  # (B,) -> (B,)
        share = self.uniform_share
        uniform = EARLIEST + (1 - EARLIEST) * (u / share if share > 0 else u)
        if share >= 1:
            return uniform
        rest = ((u - share) / (1 - share)).clamp(1e-6, 1 - 1e-6)
        normal = shift(torch.sigmoid(self.mean + self.deviation * torch.special.ndtri(rest)), self.k)
        return torch.where(u < share, uniform, normal)


class UniformTimes:
    """u in (0, 1) -> S_k of a time that is spread evenly over [EARLIEST, 1]."""

    def __init__(self, k: float) -> None:
        self.k = k

    def __call__(self, u: Tensor) -> Tensor:  # (B,) -> (B,)
        return shift(EARLIEST + (1 - EARLIEST) * u, self.k)


def even(t: Tensor) -> Tensor:
    return torch.ones_like(t)


class MinSNRWeight:
    """min(SNR, gamma) on the error of x0, which is t times the error of v.  arXiv:2303.09556

    With noise of scale n the ratio is SNR = (1 - t)^2 / (n t)^2, so the weight on v is min((1 - t)^2 / n^2, gamma t^2).
    """

    def __init__(self, gamma: float, noise_scale: float = 1.0) -> None:
        self.gamma, self.n = gamma, noise_scale

    def __call__(self, t: Tensor) -> Tensor:  # (B,) -> (B,)
        return torch.minimum(((1 - t) / self.n).square(), self.gamma * t.square())


class EDMWeight:
    """EDM's weight (sigma^2 + s^2) / (sigma s)^2 on the error of x0, table 1 of arXiv:2206.00364, for our path.

    With sigma = n t / (1 - t), and the error of x0 t times that of v, it is t^2 / s^2 + (1 - t)^2 / n^2 on v: the error of
    EDM's network output counts the same at every time.
    """

    def __init__(self, sigma_data: float, noise_scale: float = 1.0) -> None:
        self.s, self.n = sigma_data, noise_scale

    def __call__(self, t: Tensor) -> Tensor:  # (B,) -> (B,)
        return (t / self.s).square() + ((1 - t) / self.n).square()
