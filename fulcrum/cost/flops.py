"""What the denoiser costs by formula, from its sizes alone. A multiply-add counts as two FLOPs; no torch in here.

B images, N image tokens, K tokens that a routed span sees, L text tokens, E text width, D width
"""

from typing import NamedTuple


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


TRAINING = 3  # a backward is two forwards: one product for the inputs' gradient and one for the weights'
INPUT_ONLY = 2  # forward and back to the input, where the weights get no gradient
SINUSOIDS = 256


def vector_multiply_adds(width: int, numbers: int = 1) -> int:
    """Of the two linears that make a vector from the sinusoids of so many numbers."""
    return numbers * SINUSOIDS * width + width * width


class Layer(NamedTuple):
    """A linear layer of the denoiser, and how many vectors of one image it multiplies."""

    name: str  # as the denoiser's own, without the number of the block
    words: frozenset[str]  # its weight's role, and what the layer is for: `fulcrum.model.roles`
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
    """Every layer of a denoiser in the order of its forward; those of a condition are only known by their cost."""
    width, hidden, patch = sizes.width, int(sizes.width * sizes.mlp_ratio), sizes.channels * sizes.patch**2
    embed, head = frozenset({"embed"}), frozenset({"head"})
    narrow = sizes.bottleneck
    listed = (
        [Layer("img_in", embed, tokens, patch, width, True)]
        if narrow is None
        else [Layer("img_in.0", embed, tokens, patch, narrow, True), Layer("img_in.1", embed, tokens, narrow, width, True)]
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
            listed.append(Layer(name, frozenset({"matrix", use}), rows, inputs, outputs, use == "modulation", block))
    if sizes.fuses:  # in halves: the span's tokens, and those that went around it; the mask's row is nothing
        rows = tokens + (tokens if kept is None else kept)
        listed.append(Layer("route.fuse", head, rows / 2, 2 * width, width, True))
    listed.append(Layer("final_layer.adaLN_modulation.1", head, 1, width, 2 * width, True))
    return [*listed, Layer("final_layer.linear", head, tokens, width, patch, True)]


def forward_flops(sizes: Sizes, tokens: int, text: float, kept: int | None = None) -> Flops:
    """One image forward: `tokens` on the grid, `text` real text tokens, `kept` of the grid in the routed span.

    `text` counts the tokens that are projected and read; attention reads padding too, which is not counted.
    """
    seen = seen_by_blocks(sizes, tokens, kept)
    attention = sum(4 * sizes.width * one * (one + text) for one in seen)  # q k' and the sum of values
    return Flops(2 * (sum(layer.multiply_adds for layer in layers(sizes, tokens, text, kept)) + sizes.condition), attention)


def training_flops(sizes: Sizes, tokens: int, text: float, kept: int | None = None) -> float:
    """One image forward and backward; what is computed again to save memory is not counted."""
    return TRAINING * forward_flops(sizes, tokens, text, kept).total


def stem_flops(sizes: Sizes, tokens: int, text: float, last: int, kept: int) -> float:
    """One image through the blocks 0 to `last`, without the head, and back to the input: no weight gets a gradient, and
    neither text nor time asks for one. Attention's backward is that of training: its two factors are the stream's."""
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


def activations(sizes: Sizes, tokens: int, text: float, kept: int | None = None) -> float:
    """Numbers that the backward of one image needs, in fp32 and without recomputation.

    In widths, per block: 17 a token and 6 for each time that the MLP is wider, 7 a text token (counted in an eager pass;
    the norms' and the attention's row sums are left out). Outside the blocks 3 a token, and 1 that a fuse reads again.
    """
    routed = 0 if kept is None or sizes.span is None else sizes.span[1] - sizes.span[0] + 1
    seen = (sizes.depth - routed) * tokens + routed * (kept or 0)
    return sizes.width * (seen * (17 + 6 * sizes.mlp_ratio) + sizes.depth * 7 * text + (3 + sizes.fuses) * tokens)
