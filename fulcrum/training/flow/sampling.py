"""Samplers: integrate the velocity from noise to data; what they ask of a denoiser.

B batch, C channels, h, w latent rows and columns, M steps; t (B,) time: 1 is noise, 0 is data.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor

from fulcrum.training.flow.fillers import shift

# --------------------------------------------------------------------------------------------------
# Sampling: steps on the shifted grid from noise to data, of Euler or through the midpoint; every
# image has its own seed.


def grid(steps: int, k: float) -> Tensor:
    """tau_i = S_k(1 - i/M), from 1 (noise) to 0 (data): M + 1 times."""
    return shift(1 - torch.arange(steps + 1, dtype=torch.float64) / steps, k).float()


@torch.no_grad()
def euler(
    velocity: Callable[[Tensor, Tensor], Tensor], noise: Tensor, steps: int, k: float
) -> Tensor:
    """x_{i+1} = x_i + (tau_{i+1} - tau_i) v(x_i, tau_i)."""
    x, times = noise, grid(steps, k).to(noise.device)
    for now, after in zip(times[:-1], times[1:], strict=True):
        x = x + (after - now) * velocity(x, now.expand(len(x)))
    return x


@torch.no_grad()
def midpoint(
    velocity: Callable[[Tensor, Tensor], Tensor], noise: Tensor, steps: int, k: float
) -> Tensor:
    """x_{i+1} = x_i + d v(x_i + d/2 v(x_i, tau_i), tau_i + d/2), d = tau_{i+1} - tau_i: second
    order, two passes a step.

    Unlike Heun's it never asks for t = 0, which hardly any training shows a denoiser.
    """
    x, times = noise, grid(steps, k).to(noise.device)
    for now, after in zip(times[:-1], times[1:], strict=True):
        halfway = x + (after - now) / 2 * velocity(x, now.expand(len(x)))
        x = x + (after - now) * velocity(halfway, ((now + after) / 2).expand(len(x)))
    return x


SOLVERS = {"euler": euler, "midpoint": midpoint}


# --------------------------------------------------------------------------------------------------
# What a guide asks of a denoiser.


Path = Literal["full", "routed", "short"]


class Denoise(Protocol):
    """A denoiser with its prompts; `path` says how much of it runs."""

    def __call__(self, x_t: Tensor, t: Tensor, prompt: bool, path: Path = "full") -> Tensor:
        """x_t (B, C, h, w), t (B,), with the prompt or the empty one -> v (B, C, h, w).

        full: every token through every block; routed: the span sees the tokens of a mask that is
        the same at every step, as in training; short: the span is left out.
        """

    def with_and_without(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Full passes with the prompt and with the empty one: in one batch where that is faster."""


def paths_asked(guide: Callable[[Denoise, Tensor, Tensor], Tensor]) -> set[str]:
    """The paths that a guide asks a denoiser for, seen by one that only listens."""
    listener = ListeningDenoiser()
    guide(listener, torch.zeros(1), torch.zeros(1))
    return {path for _, path in listener.asked}


class ListeningDenoiser:
    """A denoiser that only notes what it is asked for: (with the prompt?, path)."""

    def __init__(self) -> None:
        self.asked: list[tuple[bool, Path]] = []

    def __call__(self, x_t: Tensor, t: Tensor, prompt: bool, path: Path = "full") -> Tensor:
        self.asked.append((prompt, path))
        return x_t

    def with_and_without(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return self(x_t, t, True), self(x_t, t, False)
