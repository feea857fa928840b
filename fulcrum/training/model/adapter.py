"""Weights that stay as they began, and small products that learn beside them (LoRA,
arXiv:2106.09685).

    y = W x + b + scale up down x          down (r, inputs) begins as a layer's weight does,
                                           up (outputs, r) at zero

D inputs, E outputs, r rank
"""

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor, nn

from fulcrum.spec.errors import BadInput
from fulcrum.training.model.parameters import ZERO, Role, fan_in, words
from fulcrum.training.model.transformer import Backbone, Cast, Linear

BESIDE = ".beside."  # between a layer's name and that of a tensor beside it
# words of a weight, its block, the depth
Learns = Callable[[Collection[str], int | None, int], bool]


class Adapter(nn.Module):
    """What learns beside a layer. The scale is kept with the weights: they can be merged without
    the run's description."""

    def __init__(self, layer: Linear, rank: int, scale: float):
        super().__init__()
        self.scale: Tensor
        inputs, outputs, device = layer.in_features, layer.out_features, layer.weight.device
        self.cast: Cast = layer.cast
        self.down = nn.Parameter(torch.empty(rank, inputs, dtype=torch.float32, device=device))
        self.up = nn.Parameter(torch.empty(outputs, rank, dtype=torch.float32, device=device))
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32, device="cpu"))
        role: Role = layer.parameter_roles["weight"]
        self.parameter_roles = {"down": role, "up": role}
        self.parameter_starts = {"down": fan_in(inputs), "up": ZERO}

    def forward(self, x: Tensor) -> Tensor:  # (..., D) -> (..., E)
        low = self.cast.linear(x, self.down)  # (..., r)
        return self.cast.linear(low, self.up) * self.scale


def freeze(backbone: Backbone, learns: Learns) -> None:
    """Only the weights of which `learns` is true get a gradient; at least one does."""
    blocks = {
        id(weight): number
        for number, block in enumerate(backbone.blocks)
        for weight in block.parameters()
    }
    known = words(backbone)
    for name, weight in backbone.named_parameters():
        weight.requires_grad_(learns(known[name], blocks.get(id(weight)), backbone.depth))
    if not any(weight.requires_grad for weight in backbone.parameters()):
        raise BadInput(
            "no weight of this denoiser would learn: nothing in it has the chosen role",
            _there(known),
        )


def adapt(backbone: Backbone, rank_beside: Callable[[Collection[str]], int], alpha: float) -> None:
    """Freeze every weight, and put a product of the rank that is asked for beside each layer."""
    known = words(backbone)
    backbone.requires_grad_(False)
    adapted = False
    for name, layer in list(backbone.named_modules()):
        if not isinstance(layer, Linear) or not layer.whole:
            continue
        rank = rank_beside(known[f"{name}.weight"])
        if rank >= min(layer.in_features, layer.out_features):
            raise BadInput(
                f"a product of rank {rank} beside '{name}', which has {layer.in_features} inputs"
                f" and {layer.out_features} outputs, is as large as the layer itself",
                f"choose a rank below {min(layer.in_features, layer.out_features)}, or other"
                " targets",
            )
        if rank:
            layer.beside, adapted = Adapter(layer, rank, alpha / rank), True
    if not adapted:
        raise BadInput(
            "no layer of this denoiser would be adapted: none has a chosen role", _there(known)
        )


def _there(known: Mapping[str, Collection[str]]) -> str:
    return "it has: " + ", ".join(sorted({word for each in known.values() for word in each}))


def is_beside(name: str) -> bool:
    """Does a tensor of this name belong to an adapter?"""
    return BESIDE in name


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the denoiser without adapters that computes the same: W + scale up down.
    Others are as they were."""
    plain = {name: value for name, value in weights.items() if not is_beside(name)}
    for layer in {name.partition(BESIDE)[0] for name in weights if is_beside(name)}:
        down, up, scale = (weights[f"{layer}{BESIDE}{part}"] for part in ("down", "up", "scale"))
        weight = plain[f"{layer}.weight"]
        # In fp64, so that the sum is rounded once: a picture drawn with it differs least from one
        # drawn unmerged.
        change = scale.double() * (up.detach().double() @ down.detach().double())
        plain[f"{layer}.weight"] = (weight.detach().double() + change).to(weight.dtype)
    return plain
