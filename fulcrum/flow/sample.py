"""Sampling: steps on the shifted grid from noise to data, of Euler or through the midpoint; every image has its own seed.

B batch, M steps.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fulcrum.flow.path import shift


def grid(steps: int, k: float) -> Tensor:
    """tau_i = S_k(1 - i/M), from 1 (noise) to 0 (data): M + 1 times."""
    return shift(1 - torch.arange(steps + 1, dtype=torch.float64) / steps, k).float()


@torch.no_grad()
def euler(velocity: Callable[[Tensor, Tensor], Tensor], noise: Tensor, steps: int, k: float) -> Tensor:
    """x_{i+1} = x_i + (tau_{i+1} - tau_i) v(x_i, tau_i)."""
    x, times = noise, grid(steps, k).to(noise.device)
    for now, after in zip(times[:-1], times[1:], strict=True):
        x = x + (after - now) * velocity(x, now.expand(len(x)))
    return x


@torch.no_grad()
def midpoint(velocity: Callable[[Tensor, Tensor], Tensor], noise: Tensor, steps: int, k: float) -> Tensor:
    """x_{i+1} = x_i + d v(x_i + d/2 v(x_i, tau_i), tau_i + d/2), d = tau_{i+1} - tau_i: second order, two passes a step.

    Unlike Heun's it never asks for t = 0, which hardly any training shows a denoiser.
    """
    x, times = noise, grid(steps, k).to(noise.device)
    for now, after in zip(times[:-1], times[1:], strict=True):
        halfway = x + (after - now) / 2 * velocity(x, now.expand(len(x)))
        x = x + (after - now) * velocity(halfway, ((now + after) / 2).expand(len(x)))
    return x


SOLVERS = {"euler": euler, "midpoint": midpoint}
