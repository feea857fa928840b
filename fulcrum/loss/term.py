"""What a term of the loss sees, and how terms are added up.

B batch, C channels, h, w latent rows and columns.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor


class View(NamedTuple):
    """One step as the terms see it."""

    batch: Any                                               # encode.Batch
    draw: Any                                                # flow.Draw
    v: Tensor                                                # (B, C, h, w) predicted velocity
    target: Tensor                                           # (B, C, h, w) velocity of a perfect prediction
    x: Tensor                                                # (B, C, h, w) predicted clean latent
    taps: dict[int, Any]                                     # layer -> Tokens


class Losses(NamedTuple):
    total: Tensor                                            # () what is minimised
    parts: dict[str, Tensor]                                 # name -> () mean over the batch, before weighting


def weigh(parts: Mapping[str, Tensor], weights: Mapping[str, float | Tensor]) -> Losses:
    """total = sum of weight x mean over the batch."""
    means = {name: part.mean() for name, part in parts.items()}
    total = sum(weights[name] * mean for name, mean in means.items())
    return Losses(total, {name: mean.detach() for name, mean in means.items()})
