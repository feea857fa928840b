"""FLOPs, parameters and bytes of the denoiser and of a whole run, from the description alone. No
torch."""

from typing import NamedTuple

from fulcrum.spec.edit import put
from fulcrum.spec.record import Frozen
from fulcrum.spec.run import AllWeights, RunSpec
from fulcrum.spec.slots import LearnedFiller
from fulcrum.spec.stage import has_span, mean_over_images, route_of

# --------------------------------------------------------------------------------------------------
# What the denoiser costs by formula, from its sizes alone. A multiply-add counts as two FLOPs; no
# torch in here.
#
# B images, N image tokens, K tokens that a routed span sees, L text tokens, E text width, D width


class Sizes(NamedTuple):
    """What the formulas need to know of a denoiser."""

    channels: int
    patch: int
    width: int
    depth: int
    text_width: int
    mlp_ratio: float
    bottleneck: int | None = None
    condition: int = 0  # multiply-adds of what is added to the time vector
    span: tuple[int, int] | None = None
    fuses: bool = False  # is what leaves the span joined with what entered it by a linear?


class Flops(NamedTuple):
    linears: float
    attention: float

    @property
    def total(self) -> float:
        return self.linears + self.attention


# a backward is two forwards: one product for the inputs' gradient and one for the weights'
TRAINING = 3
INPUT_ONLY = 2  # forward and back to the input, where the weights get no gradient
SINUSOIDS = 256


def vector_multiply_adds(width: int, numbers: int = 1) -> int:
    """Of the two linears that make a vector from the sinusoids of so many numbers."""
    return numbers * SINUSOIDS * width + width * width


class Layer(NamedTuple):
    """A linear layer of the denoiser, and how many vectors of one image it multiplies."""

    name: str  # as the denoiser's own, without the number of the block
    #: its weight's role, and what the layer is for: `fulcrum.training.model.parameters`
    words: frozenset[str]
    rows: float
    inputs: int
    outputs: int
    bias: bool = False
    block: int | None = None

    @property
    def multiply_adds(self) -> float:
        return self.rows * self.inputs * self.outputs


def seen_by_blocks(sizes: Sizes, tokens: int, kept: int | None = None) -> list[int]:
    """How many image tokens each block sees."""
    first, last = (sizes.depth, sizes.depth) if kept is None or sizes.span is None else sizes.span
    return [(kept or 0) if first <= block <= last else tokens for block in range(sizes.depth)]


def layers(sizes: Sizes, tokens: int = 1, text: float = 1, kept: int | None = None) -> list[Layer]:
    """Every layer of a denoiser in the order of its forward; those of a condition are only known by
    their cost."""
    width, hidden, patch = (
        sizes.width,
        int(sizes.width * sizes.mlp_ratio),
        sizes.channels * sizes.patch**2,
    )
    embed, head = frozenset({"embed"}), frozenset({"head"})
    narrow = sizes.bottleneck
    listed = (
        [Layer("img_in", embed, tokens, patch, width, True)]
        if narrow is None
        else [
            Layer("img_in.0", embed, tokens, patch, narrow, True),
            Layer("img_in.1", embed, tokens, narrow, width, True),
        ]
    )
    listed += [
        Layer("txt_in", embed, text, sizes.text_width, width, True),
        Layer("time_in.in_layer", embed, 1, SINUSOIDS, width, True),
        Layer("time_in.out_layer", embed, 1, width, width, True),
    ]
    for block, seen in enumerate(seen_by_blocks(sizes, tokens, kept)):
        for name, use, rows, inputs, outputs in (
            ("modulation.lin", "modulation", 1, width, 6 * width),
            ("attention.txt_kv_proj", "text", text, width, 2 * width),
            ("attention.img_qkv_proj", "attention_in", seen, width, 3 * width),
            ("attention.to_out.0", "attention_out", seen, width, width),
            ("gate_proj", "feed_forward", seen, width, hidden),
            ("up_proj", "feed_forward", seen, width, hidden),
            ("down_proj", "feed_forward", seen, hidden, width),
        ):
            listed.append(
                Layer(
                    name,
                    frozenset({"matrix", use}),
                    rows,
                    inputs,
                    outputs,
                    use == "modulation",
                    block,
                )
            )
    # in halves: the span's tokens, and those that went around it; the mask's row is nothing
    if sizes.fuses:
        rows = tokens + (tokens if kept is None else kept)
        listed.append(Layer("route.fuse", head, rows / 2, 2 * width, width, True))
    listed.append(Layer("final_layer.adaLN_modulation.1", head, 1, width, 2 * width, True))
    return [*listed, Layer("final_layer.linear", head, tokens, width, patch, True)]


def forward_flops(sizes: Sizes, tokens: int, text: float, kept: int | None = None) -> Flops:
    """One image forward: `tokens` on the grid, `text` real text tokens, `kept` of the grid in the
    routed span.

    `text` counts the tokens that are projected and read; attention reads padding too, which is not
    counted.
    """
    seen = seen_by_blocks(sizes, tokens, kept)
    # q k' and the sum of values
    attention = sum(4 * sizes.width * one * (one + text) for one in seen)
    return Flops(
        2
        * (
            sum(layer.multiply_adds for layer in layers(sizes, tokens, text, kept))
            + sizes.condition
        ),
        attention,
    )


def training_flops(sizes: Sizes, tokens: int, text: float, kept: int | None = None) -> float:
    """One image forward and backward; what is computed again to save memory is not counted."""
    return TRAINING * forward_flops(sizes, tokens, text, kept).total


def stem_flops(sizes: Sizes, tokens: int, text: float, last: int, kept: int) -> float:
    """One image through the blocks 0 to `last`, without the head, and back to the input: no weight
    gets a gradient, and neither text nor time asks for one. Attention's backward is that of
    training: its two factors are the stream's."""
    width, hidden = sizes.width, int(sizes.width * sizes.mlp_ratio)
    first, end = sizes.span or (sizes.depth, sizes.depth)
    routed = max(0, min(last, end) - first + 1)
    dense = last + 1 - routed
    seen = dense * tokens + routed * kept  # image tokens, summed over blocks
    patch = sizes.channels * sizes.patch**2
    into = patch * width if sizes.bottleneck is None else sizes.bottleneck * (patch + width)
    fuse = (tokens + kept) * width**2 if sizes.fuses and end < last else 0
    of_stream = seen * (4 * width**2 + 3 * width * hidden) + tokens * into + fuse
    of_text = text * width * (sizes.text_width + (last + 1) * 2 * width)
    of_time = vector_multiply_adds(width) + sizes.condition + (last + 1) * 6 * width**2
    attention = 4 * width * (dense * tokens * (tokens + text) + routed * kept * (kept + text))
    return INPUT_ONLY * 2 * of_stream + 2 * (of_text + of_time) + TRAINING * attention


# --------------------------------------------------------------------------------------------------
# What a step costs when only some weights learn: no gradient goes where nobody asks for one. No
# torch in here.
#
# N image tokens, L text tokens


VECTOR = frozenset({"vector"})


class LayerShare(NamedTuple):
    """What a layer adds to a step, and whether gradients pass through its output."""

    multiply_adds: float
    passes: bool


def share_of(layer: Layer, into: bool, learned: LearnedFiller, depth: int) -> LayerShare:
    """Forward, to the input if that asks for a gradient (`into`), to the weight; and the same of
    what is beside it."""
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


def partial_training_flops(
    sizes: Sizes, tokens: int, text: float, kept: int | None, learned: LearnedFiller
) -> float:
    """One image forward and backward, in the order of the denoiser's forward: a layer's input asks
    for a gradient if something before it learns."""
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
        if share_of(layer, False, learned, sizes.depth).passes and not layer.name.startswith(
            "final_layer"
        ):
            return layer.block or 0
    return sizes.depth


def learned_matrices(sizes: Sizes, learned: LearnedFiller) -> list[tuple[int, int]]:
    """Rows and columns of every matrix of the blocks that learns, products beside others
    included."""
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
    """Of the layers with something beside them, that with the fewest inputs or outputs: its name,
    how many, the rank."""
    beside_them = [layer for layer in layers(sizes) if rank_of(layer, learned)]
    least = min(beside_them, key=lambda layer: min(layer.inputs, layer.outputs))
    return least.name, min(least.inputs, least.outputs), rank_of(least, learned)


def learned_weights(sizes: Sizes, learned: LearnedFiller, gains: int) -> int:
    """Of the denoiser's own parameters, those that learn; `gains` are the norms' in a block. A
    condition is left out."""
    depth, total = sizes.depth, 0
    for layer in layers(sizes):
        total += layer.inputs * layer.outputs * learned.learns(layer.words, layer.block, depth)
        total += layer.outputs * (
            layer.bias and learned.learns(bias_words(layer), layer.block, depth)
        )
    return total + sum(gains * learned.learns(VECTOR, block, depth) for block in range(depth))


# --------------------------------------------------------------------------------------------------
# What a run's denoiser costs, from its description alone: parameters, FLOPs and bytes of a step. No
# torch in here.


TEXT_TOKENS = 24  # a long caption of the world, on average, the start counted
SIZE = {"fp32": 4, "bf16": 2}  # bytes of a number


def parameters(run: RunSpec) -> int:
    """Weights and biases of the backbone, its route and condition included, and what learns beside
    them."""
    return own_parameters(run) + beside(sizes_of(run), run.model.learned)


def own_parameters(run: RunSpec) -> int:
    """Of the denoiser as it leaves, with nothing beside its layers."""
    model = run.model
    width, hidden, features = (
        model.width,
        int(model.width * model.mlp_ratio),
        run.encode.codec.channels * model.patch**2,
    )
    # image qkv, text kv, out; three gains
    attention = (3 + 2 + 1) * width**2 + 3 * (width // model.heads)
    block = attention + 3 * width * hidden + _linear(width, 6 * width)  # gated MLP, modulation
    narrow = model.bottleneck
    into = (
        _linear(features, width)
        if narrow is None
        else _linear(features, narrow) + _linear(narrow, width)
    )
    return (
        into
        + _linear(run.encode.text.width, width)
        + _linear(SINUSOIDS, width)  # the time's vector
        + _linear(width, width)
        + model.condition.parameters(width)
        + model.depth * block
        + route_of(run).parameters(width)
        + _linear(width, 2 * width)
        + _linear(width, features)
    )


def _linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def denoiser_training_flops(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """FLOPs of forward and backward for one image, route included: the average over the phases of
    the budget."""
    sizes, learned = sizes_of(run), run.model.learned

    def of_phase(phase: RunSpec) -> float:
        seen = phase.tokens, text, phase.model.route.kept(phase.tokens)
        return (
            partial_training_flops(sizes, *seen, learned)
            if learned.partial
            else training_flops(sizes, *seen)
        )

    return mean_over_images(run, of_phase)


def drawing_flops(run: RunSpec, text: float = TEXT_TOKENS) -> float:
    """FLOPs of one pass for one image when pictures are drawn: a forward, whatever learned."""
    return denoiser_training_flops(put(run, "model.learned", AllWeights()), text) / TRAINING


def sizes_of(run: RunSpec) -> Sizes:
    """The denoiser's sizes, with the route of any phase."""
    model, route = run.model, route_of(run)
    return Sizes(
        run.encode.codec.channels,
        model.patch,
        model.width,
        model.depth,
        run.encode.text.width,
        model.mlp_ratio,
        model.bottleneck,
        model.condition.multiply_adds(model.width),
        route.bounds(model.depth) if has_span(route, model.depth) else None,
        route.fuses,
    )


def remembered(run: RunSpec) -> int:
    """Bytes that the optimizer keeps for a parameter."""
    return run.optim.rule.remembers * SIZE[run.precision.optimizer]


def newton_schulz_share(run: RunSpec) -> float:
    """FLOPs of Muon's five Newton–Schulz steps over those of the rest of the training step.

    In units of side^3 for a matrix of `ratio` sides: 20 ratio + 10 step by step, 8 ratio + 28 by
    the Gram matrix with one restart, which `optim.orthogonal` takes where it is cheaper, and never
    in bf16.
    """
    gram = run.precision.compute == "fp32"

    def steps(ratio: float) -> float:
        return min(20 * ratio + 10, 8 * ratio + 28) if gram else 20 * ratio + 10

    sides = [sorted(matrix) for matrix in learned_matrices(sizes_of(run), run.model.learned)]
    total = sum(short**3 * steps(long / short) for short, long in sides)
    return total / (denoiser_training_flops(run) * run.budget.batch)


# --------------------------------------------------------------------------------------------------
# FLOPs of every part of a run for one image, what they add up to, and such numbers in words.


class TrainingFlops(Frozen):
    """FLOPs of what every step of training does, for one image."""

    denoiser: float  # forward and backward
    #: networks of the loss, forward and backward, as their formulas say
    terms: dict[str, float] = {}
    #: Muon's iterations; what touches each parameter a few times counts as nothing
    optimizer: float = 0.0
    tuned_codec: float = 0.0  # a codec that is trained too, forward and backward
    uncounted: tuple[str, ...] = ()  # a user's terms that give no `flops`

    def training(self) -> float:
        """One image of training; latents, texts and teacher tokens are read from disk."""
        return self.denoiser + sum(self.terms.values()) + self.optimizer + self.tuned_codec


class PartFlops(TrainingFlops):
    """With the frozen networks, which run once per image where their results are kept, and with
    evaluation."""

    codec: float  # encode
    decode: float
    text: float
    teachers: dict[str, float]
    evaluation: float  # draw and decode a picture, then look at it with features and judge

    def totals(self, images: int, pictures: int, drawn: int = 0) -> dict[str, float]:
        """By part: training looks at `images`, frozen networks once at each of the `pictures`,
        evaluation draws `drawn`."""
        named = {
            "denoiser": self.denoiser * images,
            **{f"term {name}": each * images for name, each in self.terms.items()},
            "optimizer": self.optimizer * images,
            "tuned codec": self.tuned_codec * images,
            "codec": self.codec * pictures,
            "text": self.text * pictures,
            **{f"teacher {name}": each * pictures for name, each in self.teachers.items()},
            "evaluation": self.evaluation * drawn,
        }
        return {name: value for name, value in named.items() if value}


def amount(value: float) -> str:
    """12.3 G"""
    for size, letter in (
        (1e21, "Z"),
        (1e18, "E"),
        (1e15, "P"),
        (1e12, "T"),
        (1e9, "G"),
        (1e6, "M"),
        (1e3, "k"),
    ):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g} "
