"""The first blocks of a denoiser with weights that get no gradient: what a codec is trained through.

A model of its own, so that passes, lanes, recomputing, compiling and sharding are those of any model; its weights are the
denoiser's own memory, or, sharded, a copy of each process's slices.
"""

import copy

import torch

from fulcrum.dist.processes.start import is_sharded
from fulcrum.model.backbone import Backbone


def stem_of(backbone: Backbone, last: int) -> Backbone:
    """A model that ends after block `last` and has no head. It follows `backbone` when it is told to."""
    stem = copy.deepcopy(backbone)
    stem.blocks, stem.final_layer = stem.blocks[: last + 1], None
    return stem.requires_grad_(False)


@torch.no_grad()
def follow(stem: Backbone, backbone: Backbone) -> None:
    """Give a stem the weights of its denoiser as they stand; not while a forward has gathered some of them."""
    weights = dict(backbone.named_parameters())
    for name, weight in stem.named_parameters():
        if is_sharded(weight):
            weight.to_local().copy_(weights[name].to_local())  # type: ignore[attr-defined]
        else:
            weight.data = weights[name].data
