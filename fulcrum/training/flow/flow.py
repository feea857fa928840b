"""Flow matching: the path from data to noise, the times, and what a prediction means."""

from typing import Protocol

import torch
from torch import Tensor

# --------------------------------------------------------------------------------------------------
# The straight path between data and noise, and the one convention of time: t = 0 is data, t = 1 is
# noise.
#
# B batch, C channels, h, w latent rows and columns.


def over(t: Tensor, like: Tensor) -> Tensor:
    """t (B,) shaped so that it multiplies `like` (B, ...)."""
    return t.view(-1, *[1] * (like.dim() - 1))


def mix(x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
    """x_t = (1 - t) x0 + t eps."""
    t = over(t, x0)
    return (1 - t) * x0 + t * eps


def shift(t: Tensor, k: float) -> Tensor:
    """S_k(t) = k t / (1 + (k - 1) t): k > 1 moves times towards noise, as larger pictures need."""
    return k * t / (1 + (k - 1) * t)


# --------------------------------------------------------------------------------------------------
# What the network's output means: the only place that turns a prediction into a velocity or a
# picture.
#
# B batch, C channels, h, w latent rows and columns; every tensor but t is (B, C, h, w).


class Predict(Protocol):
    """What a network's output means."""

    def inputs(self, x_t: Tensor, t: Tensor) -> Tensor:
        """What the network sees of x_t."""

    def ideal(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """What a perfect network gives."""

    def to_v(self, pred: Tensor, x_t: Tensor, t: Tensor) -> Tensor: ...

    def to_x(self, pred: Tensor, x_t: Tensor, t: Tensor) -> Tensor: ...


class VelocityPrediction:
    """The output is v = eps - x0."""

    def inputs(self, x_t: Tensor, t: Tensor) -> Tensor:
        return x_t

    def ideal(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        return eps - x0

    def to_v(self, pred: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return pred

    def to_x(self, pred: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return x_t - over(t, x_t) * pred


class CleanPrediction:
    """The output is x0; v = (x_t - x) / max(t, floor). Works where the patch is wider than the
    network."""

    def __init__(self, floor: float) -> None:
        self.floor = floor

    def inputs(self, x_t: Tensor, t: Tensor) -> Tensor:
        return x_t

    def ideal(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        return x0

    def to_v(self, pred: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return (x_t - pred) / over(t.clamp(min=self.floor), x_t)

    def to_x(self, pred: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return pred


class PreconditionedPrediction:
    """The output is EDM's F: of unit variance at every noise level, and so is what the network
    sees.  arXiv:2206.00364

    Our path is EDM's with sigma = n t / (1 - t) and x = x_t / (1 - t); s is the spread of the data,
    n that of eps. With den = n^2 t^2 + s^2 (1 - t)^2 its c_in, c_skip, c_out (its table 1) lose the
    pole at t = 1:

        c_in x = x_t / sqrt(den)      x0 = s^2 (1 - t) / den x_t + n s t / sqrt(den) F
        v = (x_t - x0) / t = (n^2 t - s^2 (1 - t)) / den x_t - n s / sqrt(den) F

    c_noise is t itself: the sinusoids read it. The loss stays on v; how a time counts is
    `flow.weight`'s decision.
    """

    def __init__(self, sigma_data: float, noise_scale: float = 1.0) -> None:
        self.s, self.n = sigma_data, noise_scale

    def inputs(self, x_t: Tensor, t: Tensor) -> Tensor:
        return x_t / over(self._den(t).sqrt(), x_t)

    def ideal(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """(x0 - c_skip x) / c_out, multiplied out: no pole at t = 0, where c_out is 0."""
        of_x0, of_eps = self.n * t / self.s, self.s * (1 - t) / self.n
        return (over(of_x0, x0) * x0 - over(of_eps, x0) * eps) / over(self._den(t).sqrt(), x0)

    def to_v(self, pred: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        den = self._den(t)
        skip, out = (self.n**2 * t - self.s**2 * (1 - t)) / den, self.n * self.s / den.sqrt()
        return over(skip, x_t) * x_t - over(out, x_t) * pred

    def to_x(self, pred: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        den = self._den(t)
        skip, out = self.s**2 * (1 - t) / den, self.n * self.s * t / den.sqrt()
        return over(skip, x_t) * x_t + over(out, x_t) * pred

    def _den(self, t: Tensor) -> Tensor:  # (B,): the variance of x_t
        return (self.n * t).square() + (self.s * (1 - t)).square()


# --------------------------------------------------------------------------------------------------
# From a uniform number to the time of a sample, and the weight of a time.


EARLIEST = 0.001  # uniform times start here: the published setting


class LogitNormalTime:
    """u in (0, 1) -> t in (0, 1]: one uniform number decides both the mixture's part and the time
    in it."""

    def __init__(
        self, uniform_share: float, k: float, mean: float = 0.0, deviation: float = 1.0
    ) -> None:
        self.uniform_share, self.k = uniform_share, k
        self.mean, self.deviation = mean, deviation  # of the normal number whose sigmoid is a time

    def __call__(self, u: Tensor) -> Tensor:  # (B,) -> (B,)
        share = self.uniform_share
        uniform = EARLIEST + (1 - EARLIEST) * (u / share if share > 0 else u)
        if share >= 1:
            return uniform
        rest = ((u - share) / (1 - share)).clamp(1e-6, 1 - 1e-6)
        normal = shift(
            torch.sigmoid(self.mean + self.deviation * torch.special.ndtri(rest)), self.k
        )
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

    With noise of scale n the ratio is SNR = (1 - t)^2 / (n t)^2, so the weight on v is min((1 -
    t)^2 / n^2, gamma t^2).
    """

    def __init__(self, gamma: float, noise_scale: float = 1.0) -> None:
        self.gamma, self.n = gamma, noise_scale

    def __call__(self, t: Tensor) -> Tensor:  # (B,) -> (B,)
        return torch.minimum(((1 - t) / self.n).square(), self.gamma * t.square())


class EDMWeight:
    """EDM's weight (sigma^2 + s^2) / (sigma s)^2 on the error of x0, table 1 of arXiv:2206.00364,
    for our path.

    With sigma = n t / (1 - t), and the error of x0 t times that of v, it is t^2 / s^2 + (1 - t)^2 /
    n^2 on v: the error of EDM's network output counts the same at every time.
    """

    def __init__(self, sigma_data: float, noise_scale: float = 1.0) -> None:
        self.s, self.n = sigma_data, noise_scale

    def __call__(self, t: Tensor) -> Tensor:  # (B,) -> (B,)
        return (t / self.s).square() + ((1 - t) / self.n).square()
