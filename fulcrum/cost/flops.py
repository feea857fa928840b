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


def forward_flops(sizes: Sizes, tokens: int, text: float, kept: int | None = None) -> Flops:
    """One image forward: `tokens` on the grid, `text` real text tokens, `kept` of the grid in the routed span.

    `text` counts the tokens that are projected and read; attention reads padding too, which is not counted.
    """
    width, hidden = sizes.width, int(sizes.width * sizes.mlp_ratio)
    routed = 0 if kept is None or sizes.span is None else sizes.span[1] - sizes.span[0] + 1
    seen = (sizes.depth - routed) * tokens + routed * (kept or 0)  # image tokens, summed over blocks

    per_token = 3 * width * width + width * width + 3 * width * hidden  # qkv, out, gate up down
    blocks = seen * per_token + sizes.depth * (text * 2 * width * width + 6 * width * width)  # text kv, modulation
    patch = sizes.channels * sizes.patch**2
    into = patch * width if sizes.bottleneck is None else sizes.bottleneck * (patch + width)
    vector = vector_multiply_adds(width) + sizes.condition + 2 * width * width  # time, condition, last adaLN
    fuse = (tokens + (tokens if kept is None else kept)) * width * width if sizes.fuses else 0  # the mask's row is nothing
    linears = 2 * (blocks + fuse + tokens * (into + patch * width) + text * sizes.text_width * width + vector)

    attention = 4 * width * (sizes.depth - routed) * tokens * (tokens + text)  # q k' and the sum of values
    attention += 4 * width * routed * (kept or 0) * ((kept or 0) + text)
    return Flops(linears, attention)


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
