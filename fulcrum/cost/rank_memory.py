"""What one process of a run must hold at the peak of a step, part by part, and what would fit. No torch in here.

Kept for the backward are the bytes that autograd was seen to hold, per block, token and width, in eager and in compiled
blocks (docs/decisions/0061-sizes-before-a-run.md). What an allocator adds is not in it: the true peak is a little higher.
"""

import math
from typing import Literal, NamedTuple

from fulcrum.cost.denoiser import REMEMBERED, SIZE, parameters, sizes_of
from fulcrum.cost.flops import seen_by_blocks
from fulcrum.cost.frozen_networks import read_teachers
from fulcrum.cost.partial_learning import beside, first_block_reached, learned_weights
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases

# (compute, compiled) -> bytes per width: of a token in a block, that for each time the MLP is wider, of a text token
KEPT = {
    ("fp32", False): (68.25, 24.0, 20.0),
    ("fp32", True): (48.25, 12.0, 16.0),
    ("bf16", False): (50.25, 20.0, 14.0),
    ("bf16", True): (26.25, 6.0, 10.0),
}
PICTURES = 10  # of a picture's size, in fp32: clean, noise, mixed, target, prediction and their gradients
AHEAD = 3  # batches of inputs at a time: the one in use, and two that are prepared
Recompute = Literal["none", "selective", "full"]  # of no block, every other from the first on, all


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

    def passes(self, run: RunSpec) -> int:
        return -(-self.rows(run) // self.pass_rows(run))

    def is_recomputed(self, block: int) -> bool:
        return self.recompute == "full" or (self.recompute == "selective" and block % 2 == 0)

    def recomputed_share(self, depth: int) -> float:
        """Of the blocks."""
        return sum(map(self.is_recomputed, range(depth))) / depth


def rank_memory(run: RunSpec, text: float, layout: RankLayout) -> dict[str, float]:
    """Bytes by part, on one rank, in the phase of the run that needs most."""
    held = weights_memory(run, layout)
    wide = max((one.run for one in phases(run)), key=lambda one: row_bytes(one, text, layout))
    held["activations"] = layout.pass_rows(run) * row_bytes(wide, text, layout) + pass_bytes(wide, text, layout)
    held["inputs"] = max(AHEAD * layout.rows(run) * input_bytes(one.run, text) for one in phases(run))
    return held


def weights_memory(run: RunSpec, layout: RankLayout) -> dict[str, float]:
    """What does not depend on the batch: everything that is kept for each weight, and the weights of blocks in use."""
    projectors = sum(term_parameters(run).values())
    whole = parameters(run) + projectors
    moving = whole if not run.model.learned.partial else _learned(run) + projectors
    shared, alone = layout.sharing, layout.ranks == 1
    sent = layout.passes(run) == 1  # else FSDP2 sums them, whole and in fp32, on every rank until the last pass
    held = {
        "weights": SIZE["fp32"] * whole / shared,
        "gradients": SIZE["fp32"] * moving / (shared if sent else 1),
        "optimizer": moving
        * int(getattr(run.optim.rule, "remembers", REMEMBERED))
        * SIZE[run.precision.optimizer]
        / shared,
        "average": 0.0 if run.average.kind == "last_weights" else SIZE["fp32"] * whole / shared,
    }
    block = whole / run.model.depth
    if not alone:  # two blocks gathered, and the gradient of one before it is shared out; so too where all have all (ddp)
        held["gathered blocks"] = block * (2 * SIZE[run.precision.compute] + SIZE["fp32"])
    elif run.precision.compute == "bf16":  # every product keeps its weight as it was multiplied
        kept = 1 - layout.recomputed_share(run.model.depth)
        held["weights in bf16"] = SIZE["bf16"] * max(block, kept * whole)
    return held


def term_parameters(run: RunSpec) -> dict[str, int]:
    """What the terms of any phase learn, by name; each is counted in a phase that has it, for there its teacher is too."""
    homes = {term.name: (term, phase.run) for phase in phases(run) for term in phase.run.terms}
    return {name: int(_of_term(term, "parameters", home)) for name, (term, home) in homes.items()}


def row_bytes(run: RunSpec, text: float, layout: RankLayout) -> float:
    """That the backward of one image reads: blocks, the ends of the denoiser, terms and pictures."""
    sizes, model = sizes_of(run), run.model
    seen = seen_by_blocks(sizes, run.tokens, run.model.route.kept(run.tokens))
    first = first_block_reached(sizes, model.learned) if model.learned.partial else 0
    again = [tokens for block, tokens in enumerate(seen) if block >= first and layout.is_recomputed(block)]
    kept = [tokens for block, tokens in enumerate(seen) if block >= first and not layout.is_recomputed(block)]
    token, wider, word = KEPT[run.precision.compute, layout.compiled]
    blocks = sum(kept) * (token + wider * model.mlp_ratio) + len(kept) * text * word
    if again:  # the stream that enters each of them, and the text once
        blocks += SIZE["fp32"] * (sum(again) + text)
    ends = SIZE["fp32"] * (3 + sizes.fuses) * run.tokens
    terms = sum(_of_term(term, "numbers", run) for term in run.terms)
    return model.width * (blocks + ends) + SIZE["fp32"] * (terms + PICTURES * picture_numbers(run))


def pass_bytes(run: RunSpec, text: float, layout: RankLayout) -> float:
    """Where the last block is computed again, it is there as a whole beside all that is kept; where it is not, the first
    one to be computed again takes the room that the last has left."""
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
    """Of one image as the feed hands it over: latents in fp32 or pixels in bytes, texts and teacher tokens in half."""
    pixels = run.encode.codec.stride == 1
    latent = picture_numbers(run) * (1 if pixels else SIZE["fp32"])
    tokens = float(sum(run.tokens * teacher.width for teacher in read_teachers(run)))
    return latent + 2 * (text * run.encode.text.width + tokens)


def fitting(
    run: RunSpec, text: float, layout: RankLayout, memory: float, home: str = "a GPU each"
) -> list[tuple[str, RankLayout]]:
    """Changes under which a rank would need no more than `memory`, the smallest change first; none: nothing known fits.
    `home`: where more processes would be."""

    def fits(other: RankLayout) -> bool:
        return sum(rank_memory(run, text, other).values()) <= memory

    def fewer_rows(other: RankLayout) -> RankLayout | None:
        rows, most = other.pass_rows(run), other.rows(run)
        small = [count for count in range(1, math.isqrt(most) + 1) if most % count == 0]
        passes = [count for count in (*(most // one for one in small), *reversed(small)) if count <= rows]
        return next((one for count in passes if fits(one := other._replace(microbatch=count))), None)

    remedies: list[tuple[str, RankLayout]] = []
    if layout.sharing < layout.ranks and fits(together := layout._replace(shards=None)):
        remedies.append(("--mesh fsdp", together))
    again = layout._replace(recompute="full")
    if (one := fewer_rows(layout)) is not None:
        remedies.append((f"--microbatch {one.microbatch}", one))
    half = layout._replace(recompute="selective")
    if layout.recompute == "none" and fits(half):
        remedies.append(("--recompute selective", half))
    elif layout.recompute != "full" and fits(again):
        remedies.append(("--recompute full", again))
    elif layout.recompute != "full" and not remedies and (one := fewer_rows(again)) is not None:
        remedies.append((f"--recompute full --microbatch {one.microbatch}", one))
    for ranks in (2**power for power in range(1, 11)):
        if ranks > layout.ranks and run.budget.batch % ranks == 0:
            spread = layout._replace(ranks=ranks, shards=None, microbatch=None)
            if fits(spread):
                remedies.append((f"{ranks} processes, {home}", spread))
            elif (one := fewer_rows(spread._replace(recompute="full"))) is not None and not remedies:
                remedies.append((f"{ranks} processes, {home}, with --recompute full --microbatch {one.microbatch}", one))
            else:
                continue
            break
    return remedies


def _learned(run: RunSpec) -> int:
    sizes, learned = sizes_of(run), run.model.learned
    return beside(sizes, learned) + learned_weights(sizes, learned, 3 * (run.model.width // run.model.heads))


def _of_term(term: object, what: str, run: RunSpec) -> float:
    """What a term says of itself; one that says nothing counts as nothing."""
    formula = getattr(term, what, None)
    return 0.0 if formula is None else float(formula(run))
