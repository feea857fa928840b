"""What a step costs when only some weights learn: no gradient goes where nobody asks for one. No torch in here.

N image tokens, L text tokens
"""

from typing import NamedTuple

from fulcrum.cost.flops import Layer, Sizes, layers, seen_by_blocks
from fulcrum.spec.seam import LearnedFiller

VECTOR = frozenset({"vector"})


class LayerShare(NamedTuple):
    """What a layer adds to a step, and whether gradients pass through its output."""

    multiply_adds: float
    passes: bool


def share_of(layer: Layer, into: bool, learned: LearnedFiller, depth: int) -> LayerShare:
    """Forward, to the input if that asks for a gradient (`into`), to the weight; and the same of what is beside it."""
    whole = layer.multiply_adds
    learns = learned.learns(layer.words, layer.block, depth)
    rank = rank_of(layer, learned)
    down, up = layer.rows * rank * layer.inputs, layer.rows * rank * layer.outputs
    shifted = layer.bias and learned.learns(bias_words(layer), layer.block, depth)
    multiply_adds = whole * (1 + into + learns) + down * (2 + into) + up * (3 if rank else 0)
    return LayerShare(multiply_adds, into or learns or rank > 0 or shifted)


def rank_of(layer: Layer, learned: LearnedFiller) -> int:
    """Of what learns beside a layer; a layer that is multiplied in halves has nothing beside it."""
    return 0 if layer.name == "route.fuse" else learned.rank_beside(layer.words)


def bias_words(layer: Layer) -> frozenset[str]:
    """A bias is a vector of a layer that is for the same thing."""
    return VECTOR | (layer.words - {"matrix", "embed", "head"})


def partial_training_flops(sizes: Sizes, tokens: int, text: float, kept: int | None, learned: LearnedFiller) -> float:
    """One image forward and backward, in the order of the denoiser's forward: a layer's input asks for a gradient if
    something before it learns."""
    total, depth = 0.0, sizes.depth
    listed = iter(layers(sizes, tokens, text, kept))

    def run(into: bool) -> bool:
        nonlocal total
        part = share_of(next(listed), into, learned, depth)
        total += part.multiply_adds
        return part.passes

    stream = run(False)
    stream = run(stream) if sizes.bottleneck is not None else stream
    prompt = run(False)
    time = run(run(False))
    conditioned = bool(sizes.condition) and learned.learns({"embed"}, None, depth)
    total, time = total + sizes.condition * (3 if conditioned else 1), time or conditioned
    for block, seen in enumerate(seen_by_blocks(sizes, tokens, kept)):
        gains = learned.learns(VECTOR, block, depth)
        modulated = run(time)
        keys = run(prompt) or gains
        looks = run(stream or modulated) or gains or keys
        total += 2 * sizes.width * seen * (seen + text) * (3 if looks else 1)
        stream = run(looks) or stream or modulated
        gate, up = run(stream), run(stream)
        stream = run(gate or up) or stream
    if sizes.fuses:
        stream = run(stream) or learned.learns(VECTOR, None, depth)
    modulated = run(time)
    run(stream or modulated)
    return 2 * total


def first_block_reached(sizes: Sizes, learned: LearnedFiller) -> int:
    """The first block that the backward goes through: of those before it nothing is kept."""
    for layer in layers(sizes):
        if share_of(layer, False, learned, sizes.depth).passes and not layer.name.startswith("final_layer"):
            return layer.block or 0
    return sizes.depth


def learned_matrices(sizes: Sizes, learned: LearnedFiller) -> list[tuple[int, int]]:
    """Rows and columns of every matrix of the blocks that learns, products beside others included."""
    sides = []
    for layer in (one for one in layers(sizes) if "matrix" in one.words):
        if learned.learns(layer.words, layer.block, sizes.depth):
            sides.append((layer.outputs, layer.inputs))
        elif rank := rank_of(layer, learned):
            sides += [(rank, layer.inputs), (layer.outputs, rank)]
    return sides


def beside(sizes: Sizes, learned: LearnedFiller) -> int:
    """Parameters that learn beside the denoiser's own."""
    return sum(rank_of(layer, learned) * (layer.inputs + layer.outputs) for layer in layers(sizes))


def smallest_side(sizes: Sizes, learned: LearnedFiller) -> tuple[str, int, int]:
    """Of the layers with something beside them, that with the fewest inputs or outputs: its name, how many, the rank."""
    beside_them = [layer for layer in layers(sizes) if rank_of(layer, learned)]
    least = min(beside_them, key=lambda layer: min(layer.inputs, layer.outputs))
    return least.name, min(least.inputs, least.outputs), rank_of(least, learned)


def learned_weights(sizes: Sizes, learned: LearnedFiller, gains: int) -> int:
    """Of the denoiser's own parameters, those that learn; `gains` are the norms' in a block. A condition is left out."""
    depth, total = sizes.depth, 0
    for layer in layers(sizes):
        total += layer.inputs * layer.outputs * learned.learns(layer.words, layer.block, depth)
        total += layer.outputs * (layer.bias and learned.learns(bias_words(layer), layer.block, depth))
    return total + sum(gains * learned.learns(VECTOR, block, depth) for block in range(depth))
