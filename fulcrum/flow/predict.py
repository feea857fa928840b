"""What the network's output means: the only place that turns a prediction into a velocity or a picture.

B batch, C channels, h, w latent rows and columns; every tensor but t is (B, C, h, w).
"""

from typing import Protocol

from torch import Tensor

from fulcrum.flow.path import over


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
    """The output is x0; v = (x_t - x) / max(t, floor). Works where the patch is wider than the network."""

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
    """The output is EDM's F: of unit variance at every noise level, and so is what the network sees.  arXiv:2206.00364

    Our path is EDM's with sigma = n t / (1 - t) and x = x_t / (1 - t); s is the spread of the data, n that of eps.
    With den = n^2 t^2 + s^2 (1 - t)^2 its c_in, c_skip, c_out (its table 1) lose the pole at t = 1:

        c_in x = x_t / sqrt(den)      x0 = s^2 (1 - t) / den x_t + n s t / sqrt(den) F
        v = (x_t - x0) / t = (n^2 t - s^2 (1 - t)) / den x_t - n s / sqrt(den) F

    c_noise is t itself: the sinusoids read it. The loss stays on v; how a time counts is `flow.weight`'s decision.
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
