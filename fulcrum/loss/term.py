"""What a term of the loss sees, and how terms are added up.

B batch, C channels, h, w latent rows and columns.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor


class Coded(NamedTuple):
    """What a codec that is trained says of the batch. Its own terms reach it through these; the denoiser's never do:
    `batch.x0` is `latent` without its history."""

    pixels: Tensor  # (B, 3, H, W) in [-1, 1]
    mean: Tensor  # (B, C, h, w) of the posterior, raw
    log_variance: Tensor  # (B, C, h, w)
    raw: Tensor  # (B, C, h, w) that the denoiser is shown: a sample of the posterior, or its mean
    latent: Tensor  # (B, C, h, w) the same, normalised
    # Computed when a term first asks:
    decoded: Callable[[], Tensor]  # (B, 3, H, W) from a sample of the posterior
    taps: Callable[[], dict[int, Any]]  # layer -> Tokens: the noised `latent` as read by the denoiser without its gradient

    def moments(self) -> Tensor:  # -> (2, C)
        """Mean and mean square of every channel: what the running statistics follow."""
        raw = self.raw.detach().double()
        return torch.stack([raw.mean((0, 2, 3)), raw.square().mean((0, 2, 3))])


class View(NamedTuple):
    """One step as the terms see it."""

    batch: Any  # encode.Batch
    draw: Any  # flow.Draw
    v: Tensor  # (B, C, h, w) predicted velocity
    target: Tensor  # (B, C, h, w) velocity of a perfect prediction
    x: Tensor  # (B, C, h, w) predicted clean latent
    taps: dict[int, Any]  # layer -> Tokens
    coded: Coded | None = None  # if the codec is trained
    terms: Mapping[str, Any] = {}  # the run's terms by name, for one that looks with another's eyes


class Term(Protocol):
    """One addend of the loss: a torch module that gives every sample a number."""

    taps: tuple[int, ...]  # blocks whose tokens it wants to see; `frozen_taps`, if it has them, are those of `coded`

    def __call__(self, view: View) -> Tensor: ...  # (B,)


class Losses(NamedTuple):
    total: Tensor  # () what is minimised
    parts: dict[str, Tensor]  # name -> () mean over the batch, before weighting
    moments: Tensor | None = None  # (2, C) of the latents of a codec that is trained

    def plus(self, other: "Losses") -> "Losses":
        """The sum of two parts of one batch, each scaled by its share of the rows."""
        return Losses(
            self.total + other.total,
            {name: value + other.parts[name] for name, value in self.parts.items()},
            None if self.moments is None or other.moments is None else self.moments + other.moments,
        )


def weigh(parts: Mapping[str, Tensor], weights: Mapping[str, float | Tensor]) -> Losses:
    """total = sum of weight x mean over the batch."""
    means = {name: part.mean() for name, part in parts.items()}
    total = cast(Tensor, sum(weights[name] * mean for name, mean in means.items()))
    return Losses(total, {name: mean.detach() for name, mean in means.items()})
