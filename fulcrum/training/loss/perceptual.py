"""Perceptual terms: the predicted picture and the true one, seen through a frozen network.

The network belongs to its term but is no part of the module tree: not saved, not trained, not
sharded. It is an alignment teacher or LPIPS's VGG, and judges nothing of its run: a term that
trains on its own judge would win by construction. As published, the predicted picture is clamped to
what a picture can be before it is looked at.

B batch, S side in pixels, N tokens, E token width, c channels of a stage
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.training.loss.codec_terms import coded_of
from fulcrum.training.loss.terms import View

EPS = 1e-8


class FrozenTerm(nn.Module):
    """Holds a frozen network outside of what `parameters` and `state_dict` know, on the device it
    was given."""

    taps: tuple[int, ...] = ()

    def __init__(self, network: nn.Module, device: str) -> None:
        super().__init__()
        # a tuple is not registered
        self._held: tuple[Any] = (network.eval().requires_grad_(False).to(device),)

    @property
    def network(self) -> Any:
        return self._held[0]


class FeatureTerm(FrozenTerm):
    """1 - cosine of the network's patch tokens of both pictures, mean over tokens."""

    def forward(self, view: View) -> Tensor:  # -> (B,)
        with torch.no_grad():
            wanted = self.network(view.batch.x0)  # (B, N, E)
        return 1 - F.cosine_similarity(self.network(shown(view.x)), wanted, dim=-1).mean(1)


class StageTerm(FrozenTerm):
    """LPIPS with every channel's weight one, on the stages of the embedded teacher."""

    def forward(self, view: View) -> Tensor:  # -> (B,)
        return self.distance(view.x, view.batch.x0)

    def distance(self, pictures: Tensor, true: Tensor) -> Tensor:  # (B, 3, S, S) each -> (B,)
        with torch.no_grad():
            wanted = self.network.stages(true)  # of (B, c, s, s) each
        return lpips(self.network.stages(shown(pictures)), wanted, [1.0] * len(wanted))


class DecodedStageTerm(StageTerm):
    """The same between what a trained codec decodes and the picture that it was given."""

    def forward(self, view: View) -> Tensor:  # -> (B,)
        coded = coded_of(view)
        return self.distance(coded.decoded(), coded.pixels)


class VGGTerm(FrozenTerm):
    """LPIPS itself: VGG16, with the weights that its authors learned for every channel."""

    def forward(self, view: View) -> Tensor:  # -> (B,)
        with torch.no_grad():
            wanted = self.network(view.batch.x0)  # of (B, c, s, s) each
        return lpips(self.network(shown(view.x)), wanted, list(self.network.heads))


def lpips(
    stages: Sequence[Tensor], wanted: Sequence[Tensor], weights: Sequence[Tensor | float]
) -> Tensor:
    """arXiv:1801.03924, eq. 1: unit-normalised features of several stages (B, c, s, s), squared
    differences weighed and
    summed over channels, averaged over space, summed over stages.  (B,)"""
    pairs = zip(stages, wanted, weights, strict=True)
    return torch.stack(
        [
            ((unit(one) - unit(other)).square() * weight).sum(1).mean((1, 2))
            for one, other, weight in pairs
        ]
    ).sum(0)


def shown(x: Tensor) -> Tensor:
    """The predicted picture as it could be shown: what lies beyond black and white has no
    gradient."""
    return x.clamp(-1, 1)


def unit(h: Tensor) -> Tensor:
    """(B, c, s, s) with every place's vector of length one; EPS in the root keeps the gradient of a
    zero vector finite."""
    return h * (h.square().sum(1, keepdim=True) + EPS).rsqrt()
