"""Scopes of the published study, and what a lever costs."""

from typing import Any

from fulcrum.data.fillers import caption_tokens
from fulcrum.levers.base import Claim, Cost
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.memory import step_memory
from fulcrum.spec.run import RunSpec
from fulcrum.spec.slots import CaptionFiller, TermFiller

# --------------------------------------------------------------------------------------------------
# What PRX Part 2 published: the scopes of its tables, and a claim from one of them.


LATENTS = "256 px latents, 1.2 B parameters, 100k steps"
FEW_TOKENS = "256 px latents, 256 tokens, 100k steps"
MANY_TOKENS = "1024 px pixels, 1,024 tokens, 100k steps"


def claim(metric: str, change: float, scope: str = LATENTS, **facts: Any) -> Claim:
    recipe = "prx_pixels_1024" if scope == MANY_TOKENS else "prx_256"
    return Claim(
        metric=metric, change=change, scope=scope, source="PRX Part 2", recipe=recipe, **facts
    )


# --------------------------------------------------------------------------------------------------
# What a lever costs, from descriptions of runs alone: another denoiser, a term beside it, other
# captions.


def memory_ratio(before: RunSpec, after: RunSpec) -> float:
    """The memory of a step at its peak, over that of another run."""
    return step_memory(after) / step_memory(before)


def of_denoiser(before: RunSpec, after: RunSpec) -> Cost:
    """A step of one run over a step of another: FLOPs, memory at the peak, parameters."""
    return Cost(
        flops=denoiser_training_flops(after) / denoiser_training_flops(before),
        memory=memory_ratio(before, after),
        parameters=parameters(after) / parameters(before),
    )


def of_captions(run: RunSpec, caption: CaptionFiller) -> Cost:
    """Fewer words are read. Where nobody has counted a source's words, none are assumed."""
    before, after = (caption_tokens(run.data.source, each) for each in (run.data.caption, caption))
    return (
        Cost(flops=denoiser_training_flops(run, after) / denoiser_training_flops(run, before))
        if before and after
        else Cost()
    )


def of_term(term: TermFiller, before: RunSpec, after: RunSpec) -> Cost:
    """What a term adds to a step."""
    return Cost(
        flops=1 + (term.flops(after) or 0.0) / denoiser_training_flops(before),
        memory=memory_ratio(before, after),
        parameters=1 + term.parameters(after) / parameters(before),
    )
