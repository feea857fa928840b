"""What the network's output means: the only place that turns a prediction into a velocity or a picture.

B batch, C channels, h, w latent rows and columns; every tensor but t is (B, C, h, w).
"""

from torch import Tensor

from fulcrum.flow.path import over


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
