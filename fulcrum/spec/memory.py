"""Memory that one process needs at the peak of a step, part by part. No torch."""

import math
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from fulcrum.spec.flops import (
    SIZE,
    TEXT_TOKENS,
    beside,
    first_block_reached,
    learned_weights,
    parameters,
    remembered,
    seen_by_blocks,
    sizes_of,
)
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases

# --------------------------------------------------------------------------------------------------
# FLOPs of published frozen networks, from what a run says of them: they need not be on this
# machine. No torch in here.
#
# S side in pixels, C latent channels, w widths of the levels. A multiply-add counts as two, as in
# `spec/flops.py`.


# of FLUX.1, FLUX.2 and REPA-E: one encoder, other channels at its end
KL_WIDTHS = (128, 256, 512, 512)
KL_RESNETS = 2  # of a level
# blocks of a vision transformer, by its width
DEPTHS = {384: 12, 768: 12, 1024: 24, 1280: 32, 1536: 40}
PREFIX = 5  # tokens before the patches: class and registers
# weights that a token meets: T5Gemma 2B's encoder, Qwen3-VL 2B's language half
TEXTS = {2304: 2.0e9, 2048: 1.4e9}


def kl_encoder_flops(side: int, channels: int) -> float:
    """Encoding one picture: convolutions, shortcuts, and the attention in the middle."""
    areas = [(side >> level) ** 2 for level in range(len(KL_WIDTHS))]
    total = 9.0 * 3 * KL_WIDTHS[0] * areas[0]
    for area, (before, width) in zip(areas, pairwise([KL_WIDTHS[0], *KL_WIDTHS]), strict=True):
        shortcut = before * width if before != width else 0
        total += area * (9 * (before * width + (2 * KL_RESNETS - 1) * width**2) + shortcut)
    total += sum(9 * width**2 * below for width, below in zip(KL_WIDTHS, areas[1:], strict=False))
    last, cells = KL_WIDTHS[-1], areas[-1]
    middle = cells * (36 * last**2 + 4 * last**2 + 2 * cells * last)
    return 2.0 * (total + middle + cells * 9 * last * 2 * channels)


def vit_flops(width: int, tokens: int) -> float | None:
    """One picture through a vision transformer of the usual shape, or None if no such width is
    usual."""
    if width not in DEPTHS:
        return None
    seen = tokens + PREFIX
    return DEPTHS[width] * (24.0 * width**2 * seen + 4.0 * width * seen**2)


def frozen_flops(run: RunSpec, text: float, progress: float = 0.0) -> dict[str, float | None]:
    """What every frozen network that is read when this share of the budget is done costs for one
    picture; None: not known without its folder."""
    codec, size = run.encode.codec, run.data.size
    parts: dict[str, float | None] = {}
    if codec.kind == "pretrained_codec":
        known = getattr(codec, "network", "") in ("AutoencoderKL", "AutoencoderKLFlux2")
        parts["codec"] = kl_encoder_flops(size, codec.channels) if known else None
    if run.encode.text.kind == "pretrained_text":
        weights = TEXTS.get(run.encode.text.width)
        parts["text"] = None if weights is None else 2 * weights * text
    for teacher in read_teachers(run, progress):
        if teacher.kind == "pretrained_teacher":
            parts[f"teacher {teacher.name}"] = vit_flops(
                teacher.width, (size // teacher.patch) ** 2
            )
    return parts


def read_teachers(run: RunSpec, progress: float = 0.0) -> list[Any]:
    """Teachers whose tokens some term reads when this share of the budget is done; a term that is
    off reads none."""
    names = {name for term in run.terms if term.weight_at(progress) for name in term.teachers()}
    return [teacher for name in sorted(names) if (teacher := run.encode.teacher(name)) is not None]


# --------------------------------------------------------------------------------------------------
# What one process of a run must hold at the peak of a step, part by part, and what would fit. No
# torch in here.
#
# Kept for the backward are the bytes that autograd was seen to hold, per block, token and width, in
# eager and in compiled blocks (docs/decisions/0061-sizes-before-a-run.md). What an allocator adds
# is not in it: the true peak is a little higher.


# (compute, compiled) -> bytes per width: of a token in a block, that for each time the MLP is
# wider, of a text token
KEPT = {
    ("fp32", False): (68.25, 24.0, 20.0),
    ("fp32", True): (48.25, 12.0, 16.0),
    ("bf16", False): (50.25, 20.0, 14.0),
    ("bf16", True): (26.25, 6.0, 10.0),
}
# of a picture's size, in fp32: clean, noise, mixed, target, prediction and their gradients
PICTURES = 10
AHEAD = 3  # batches of inputs at a time: the one in use, and two that are prepared
Recompute = Literal["none", "selective", "full"]  # of no block, every other from the first on, all
MORE_RECOMPUTED: dict[Recompute, tuple[Recompute, ...]] = {
    "none": ("selective", "full"),
    "selective": ("full",),
    "full": (),
}


class RankLayout(NamedTuple):
    """How a run is spread over processes."""

    ranks: int = 1
    shards: int | None = None  # ranks that share the weights; None: all
    microbatch: int | None = None  # rows of one backward pass on a rank; None: all of its rows
    recompute: Recompute = "none"
    compiled: bool = True

    @property
    def sharing(self) -> int:
        return self.shards or self.ranks

    def rows(self, run: RunSpec) -> int:
        """Of one step on one rank, rounded up."""
        return -(-run.budget.batch // self.ranks)

    def pass_rows(self, run: RunSpec) -> int:
        return min(self.microbatch or self.rows(run), self.rows(run))

    def pass_sizes(self, run: RunSpec) -> list[int]:
        """Rows that a pass may have instead: those that divide a rank's, most first."""
        rows = self.rows(run)
        small = [count for count in range(1, math.isqrt(rows) + 1) if rows % count == 0]
        sizes = {*small, *(rows // count for count in small)}
        return sorted((count for count in sizes if count <= self.pass_rows(run)), reverse=True)

    def passes(self, run: RunSpec) -> int:
        return -(-self.rows(run) // self.pass_rows(run))

    def is_recomputed(self, block: int) -> bool:
        return self.recompute == "full" or (self.recompute == "selective" and block % 2 == 0)

    def recomputed_share(self, depth: int) -> float:
        """Of the blocks."""
        return sum(map(self.is_recomputed, range(depth))) / depth


EAGER = RankLayout(compiled=False)


def step_memory(run: RunSpec, text: float = TEXT_TOKENS, layout: RankLayout = EAGER) -> float:
    """Bytes that one process needs at the peak of a training step."""
    return sum(rank_memory(run, text, layout).values())


def rank_memory(run: RunSpec, text: float, layout: RankLayout) -> dict[str, float]:
    """Bytes by part, on one rank, in the phase of the run that needs most."""
    held = weights_memory(run, layout)
    wide = max((one.run for one in phases(run)), key=lambda one: row_bytes(one, text, layout))
    held["activations"] = layout.pass_rows(run) * row_bytes(wide, text, layout) + pass_bytes(
        wide, text, layout
    )
    held["inputs"] = max(
        AHEAD * layout.rows(run) * input_bytes(one.run, text) for one in phases(run)
    )
    return held


def weights_memory(run: RunSpec, layout: RankLayout) -> dict[str, float]:
    """What does not depend on the batch: everything that is kept for each weight, and the weights
    of blocks in use."""
    projectors = sum(term_parameters(run).values())
    whole = parameters(run) + projectors
    moving = whole if not run.model.learned.partial else _learned(run) + projectors
    shared, alone = layout.sharing, layout.ranks == 1
    # else FSDP2 sums them, whole and in fp32, on every rank until the last pass
    sent = layout.passes(run) == 1
    held = {
        "weights": SIZE["fp32"] * whole / shared,
        "gradients": SIZE["fp32"] * moving / (shared if sent else 1),
        "optimizer": moving * remembered(run) / shared,
        "average": 0.0 if run.average.kind == "last_weights" else SIZE["fp32"] * whole / shared,
    }
    block = whole / run.model.depth
    # two blocks gathered, and the gradient of one before it is shared out; so too where all have
    # all (ddp)
    if not alone:
        held["gathered blocks"] = block * (2 * SIZE[run.precision.compute] + SIZE["fp32"])
    elif run.precision.compute == "bf16":  # every product keeps its weight as it was multiplied
        kept = 1 - layout.recomputed_share(run.model.depth)
        held["weights in bf16"] = SIZE["bf16"] * max(block, kept * whole)
    return held


def term_parameters(run: RunSpec) -> dict[str, int]:
    """What the terms of any phase learn, by name; each is counted in a phase that has it, for there
    its teacher is too."""
    homes = {term.name: (term, phase.run) for phase in phases(run) for term in phase.run.terms}
    return {name: term.parameters(home) for name, (term, home) in homes.items()}


def row_bytes(run: RunSpec, text: float, layout: RankLayout) -> float:
    """That the backward of one image reads: blocks, the ends of the denoiser, terms and
    pictures."""
    sizes, model = sizes_of(run), run.model
    seen = seen_by_blocks(sizes, run.tokens, run.model.route.kept(run.tokens))
    first = first_block_reached(sizes, model.learned) if model.learned.partial else 0
    again = [
        tokens
        for block, tokens in enumerate(seen)
        if block >= first and layout.is_recomputed(block)
    ]
    kept = [
        tokens
        for block, tokens in enumerate(seen)
        if block >= first and not layout.is_recomputed(block)
    ]
    token, wider, word = KEPT[run.precision.compute, layout.compiled]
    blocks = sum(kept) * (token + wider * model.mlp_ratio) + len(kept) * text * word
    if again:  # the stream that enters each of them, and the text once
        blocks += SIZE["fp32"] * (sum(again) + text)
    ends = SIZE["fp32"] * (3 + sizes.fuses) * run.tokens
    terms = sum(term.numbers(run) for term in run.terms)
    return model.width * (blocks + ends) + SIZE["fp32"] * (terms + PICTURES * picture_numbers(run))


def pass_bytes(run: RunSpec, text: float, layout: RankLayout) -> float:
    """Where the last block is computed again, it is there as a whole beside all that is kept; where
    it is not, the first one to be computed again takes the room that the last has left."""
    if not layout.is_recomputed(run.model.depth - 1):
        return 0.0
    token, wider, word = KEPT[run.precision.compute, layout.compiled]
    block = run.tokens * (token + wider * run.model.mlp_ratio) + text * word
    return layout.pass_rows(run) * run.model.width * block


def picture_numbers(run: RunSpec) -> float:
    """Of what the denoiser sees of one picture."""
    codec = run.encode.codec
    return float(codec.channels * (run.data.size // codec.stride) ** 2)


def input_bytes(run: RunSpec, text: float) -> float:
    """Of one image as the feed hands it over: latents in fp32 or pixels in bytes, texts and teacher
    tokens in half."""
    pixels = run.encode.codec.stride == 1
    latent = picture_numbers(run) * (1 if pixels else SIZE["fp32"])
    tokens = float(sum(run.tokens * teacher.width for teacher in read_teachers(run)))
    return latent + 2 * (text * run.encode.text.width + tokens)


def fitting(
    run: RunSpec, text: float, layout: RankLayout, memory: float, home: str = "a GPU each"
) -> list[tuple[str, RankLayout]]:
    """Changes under which a rank would need no more than `memory`, the smallest change first; none:
    nothing known fits. `home`: where more processes would be."""

    def fits(other: RankLayout) -> bool:
        return step_memory(run, text, other) <= memory

    def fewer_rows(other: RankLayout) -> RankLayout | None:
        smaller = (other._replace(microbatch=rows) for rows in other.pass_sizes(run))
        return next(filter(fits, smaller), None)

    remedies: list[tuple[str, RankLayout]] = []
    if layout.sharing < layout.ranks and fits(together := layout._replace(shards=None)):
        remedies.append(("--mesh fsdp", together))
    if (one := fewer_rows(layout)) is not None:
        remedies.append((f"--microbatch {one.microbatch}", one))
    again = [layout._replace(recompute=way) for way in MORE_RECOMPUTED[layout.recompute]]
    if (half := next(filter(fits, again), None)) is not None:
        remedies.append((f"--recompute {half.recompute}", half))
    elif again and not remedies and (one := fewer_rows(again[-1])) is not None:
        remedies.append((f"--recompute full --microbatch {one.microbatch}", one))
    for ranks in (2**power for power in range(1, 11)):
        if ranks > layout.ranks and run.budget.batch % ranks == 0:
            spread = layout._replace(ranks=ranks, shards=None, microbatch=None)
            if fits(spread):
                remedies.append((f"{ranks} processes, {home}", spread))
            elif (
                one := fewer_rows(spread._replace(recompute="full"))
            ) is not None and not remedies:
                remedies.append(
                    (
                        (
                            f"{ranks} processes, {home}, with --recompute full --microbatch"
                            f" {one.microbatch}"
                        ),
                        one,
                    )
                )
            else:
                continue
            break
    return remedies


def _learned(run: RunSpec) -> int:
    sizes, learned = sizes_of(run), run.model.learned
    return beside(sizes, learned) + learned_weights(
        sizes, learned, 3 * (run.model.width // run.model.heads)
    )
