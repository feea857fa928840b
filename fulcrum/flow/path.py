"""The straight path between data and noise, and the one convention of time: t = 0 is data, t = 1 is noise.

B batch, C channels, h, w latent rows and columns.
"""

from torch import Tensor


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
