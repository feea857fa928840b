"""Perceptual terms: the predicted picture and the true one, seen through a frozen network.

The network belongs to its term but is no part of the module tree: not saved, not trained, not sharded. It is the
alignment teacher, never a metric's network: a term that trains on its own judge would win by construction.

B batch, S side in pixels, N tokens, E token width, c channels of a stage
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.loss.term import View

EPS = 1e-8


class FrozenTerm(nn.Module):
    """Holds a frozen network outside of what `parameters` and `state_dict` know, on the device it was given."""

    taps: tuple[int, ...] = ()

    def __init__(self, network: nn.Module, device: str) -> None:
        super().__init__()
        self._held: tuple[Any] = (network.eval().requires_grad_(False).to(device),)  # a tuple is not registered

    @property
    def network(self) -> Any:
        return self._held[0]


class FeatureTerm(FrozenTerm):
    """1 - cosine of the network's patch tokens of both pictures, mean over tokens."""

    def forward(self, view: View) -> Tensor:  # -> (B,)
        with torch.no_grad():
            wanted = self.network(view.batch.x0)  # (B, N, E)
        return 1 - F.cosine_similarity(self.network(view.x), wanted, dim=-1).mean(1)


class StageTerm(FrozenTerm):
    """LPIPS (arXiv:1801.03924, eq. 1) with every channel's weight one: unit-normalised features of several stages,
    squared differences summed over channels, averaged over space, summed over stages."""

    def forward(self, view: View) -> Tensor:  # -> (B,)
        with torch.no_grad():
            wanted = self.network.stages(view.batch.x0)  # of (B, c, s, s) each
        return torch.stack(
            [
                (unit(one) - unit(other)).square().sum(1).mean((1, 2))
                for one, other in zip(self.network.stages(view.x), wanted, strict=True)
            ]
        ).sum(0)


def unit(h: Tensor) -> Tensor:
    """(B, c, s, s) with every place's vector of length one; EPS in the root keeps the gradient of a zero vector finite."""
    return h * (h.square().sum(1, keepdim=True) + EPS).rsqrt()
