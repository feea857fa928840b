"""Samplers and guidance: integrate the velocity from noise to data."""

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.training.flow.flow import Predict, mix, shift

# --------------------------------------------------------------------------------------------------
# Sampling: steps on the shifted grid from noise to data, of Euler or through the midpoint; every
# image has its own seed.
#
# B batch, M steps.


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
# Guidance: away from a weaker prediction. A guide asks the denoiser for velocities and combines
# them.
#
#     v = v_weak + w (v_strong - v_weak)      every guide; w = 1 asks once
#
# B batch, C channels, h, w latent rows and columns


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


def away(weak: Tensor, strong: Tensor, scale: float) -> Tensor:
    return weak + scale * (strong - weak)


class Guide:
    """The strong pass has the prompt and every token; a subclass says what the weak one sees."""

    weak: tuple[bool] | tuple[bool, Path]  # with the prompt? through which path?

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, denoise: Denoise, x_t: Tensor, t: Tensor) -> Tensor:
        if self.scale == 1:
            return denoise(x_t, t, True)
        strong, weak = self.velocities(denoise, x_t, t)
        return away(weak, strong, self.scale)

    def velocities(self, denoise: Denoise, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Of the strong pass and of the weak one."""
        return denoise(x_t, t, True), denoise(x_t, t, *self.weak)


class ClassifierFree(Guide):
    """Weak: the empty prompt.  arXiv:2207.12598"""

    weak = (False,)

    def velocities(self, denoise: Denoise, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return denoise.with_and_without(x_t, t)


class RoutedVersusFull(Guide):
    """Weak: the same prompt with the tokens routed as in training.  arXiv:2501.04765"""

    weak = (True, "routed")


class PathDrop(Guide):
    """Weak: the empty prompt through the short path, which costs a fraction of a full pass.
    arXiv:2510.21986"""

    weak = (False, "short")


class Unstretched:
    """v <- (1 - weight) v + weight u_mean, after guidance away from the empty prompt.
    arXiv:2506.05350

    A contrastive term of this weight asks for (u - weight u_mean) / (1 - weight), which this
    undoes. Guidance sums its two velocities with weights that add up to one: it does not matter
    whether they are put right before or after it. u_mean is the mean of u = eps - x0 over samples
    that know nothing of this one: that of the mean picture without noise, at any t.
    """

    def __init__(self, scale: float, weight: float, mean: Tensor, predict: Predict) -> None:
        self.guide, self.weight, self.predict = ClassifierFree(scale), weight, predict
        self.mean = mean  # (C, h, w) latent

    def __call__(self, denoise: Denoise, x_t: Tensor, t: Tensor) -> Tensor:
        return self.corrected(self.guide(denoise, x_t, t), x_t, t)

    def corrected(self, stretched: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return away(stretched, self.mean_velocity(x_t, t), self.weight)

    def mean_velocity(self, x_t: Tensor, t: Tensor) -> Tensor:
        """(B, C, h, w) of every sample's time; pictures of another size have the mean resized."""
        mean = self.mean.to(x_t)[None]
        if mean.shape[-2:] != x_t.shape[-2:]:
            mean = F.interpolate(mean, size=x_t.shape[-2:], mode="bilinear", align_corners=False)
        x0 = mean.expand_as(x_t)
        eps = torch.zeros_like(x_t)
        return self.predict.to_v(self.predict.ideal(x0, eps, t), mix(x0, eps, t), t)


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
