"""The layer with the fewest inputs or outputs among those that are chosen: what bounds the rank of a product beside it."""

from collections.abc import Collection

from fulcrum.cost.denoiser import sizes_of
from fulcrum.cost.flops import layers
from fulcrum.spec.run import RunSpec


def smallest_side(run: RunSpec, targets: Collection[str]) -> tuple[str, int]:
    """Its name, and how many. Every target names some layer of every denoiser."""
    chosen = [layer for layer in layers(sizes_of(run)) if layer.words & set(targets)]
    least = min(chosen, key=lambda layer: min(layer.inputs, layer.outputs))
    return least.name, min(least.inputs, least.outputs)
