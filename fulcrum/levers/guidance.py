"""Levers of guidance: contrastive correction, path-drop and routed guidance."""

from typing import Any, ClassVar

from fulcrum.levers.base import Built, Card, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.record import Guidance
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import CorrectedCFG, PathDropGuide, RoutedGuide

# --------------------------------------------------------------------------------------------------
# What the levers that change guidance share: a guide in the place of the run's own, at the run's
# own scale.


class Guiding(Swap):
    """A lever that replaces the guide; a subclass says by which, and what path of the denoiser that
    one asks for."""

    scale: Guidance | None = None  # w; none: that of the run's own guide

    slot = "sample.guide"
    settings: ClassVar[tuple[str, ...]] = ("scale",)
    affects = ("samples",)
    path: ClassVar[str]

    def edit(self, run: RunSpec) -> RunSpec:
        scale = self.scale if self.scale is not None else getattr(run.sample.guide, "scale", 1.0)
        return put(run, self.slot, self.filler.model_validate({"scale": scale}))

    def needs(self, run: RunSpec) -> str | None:
        guide: Any = run.sample.guide
        if guide.kind != self.filler.kind:
            return "another guide is in its place"
        return guide.missing(run) or (
            "a scale of 1 guides nothing: give one" if guide.scale == 1 else None
        )

    def witness(self, built: Built) -> bool:
        """The built guide asks the denoiser for such a pass."""
        from fulcrum.training.flow.sampling import paths_asked

        return self.path in paths_asked(built.run.sample.guide.build(built))


# --------------------------------------------------------------------------------------------------
# Contrastive correction: pictures are drawn without the stretch that a contrastive term teaches.
# arXiv:2506.05350
#
# v <- (1 - lambda) v + lambda u_mean,  v guided away from the empty prompt, u_mean the mean
# velocity of the training set


class ContrastiveCorrection(Guiding):
    name = "contrastive_correction"
    filler, settings = CorrectedCFG, ("scale", "weight")
    path = "full"
    card = Card(
        says=(
            "draws with what a contrastive term meant instead of what it asked for: its authors do"
            " so wherever they guide (class-conditional ImageNet and CC3M; no number for this"
            " alone), the published arm of PRX Part 2 did not"
        ),
        warns=(
            "u_mean is minus the mean latent of the first 256 training pictures, place by place:"
            " the negatives are independent samples, so their mean velocity is that of the whole"
            " set, and the same at every time. The pictures must be at hand where the run is drawn"
            " with; it takes the place of plain guidance and keeps its scale"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(super().edit(run), "sample.guide.weight", self.weight)

    def needs(self, run: RunSpec) -> str | None:
        guide = run.sample.guide
        return (
            guide.missing(run)
            if isinstance(guide, CorrectedCFG)
            else "another guide is in its place"
        )

    def witness(self, built: Built) -> bool:
        """The built guide changes a velocity."""
        guide = built.run.sample.guide
        if not isinstance(guide, CorrectedCFG):
            return False
        draw = built.feed.at(0)[1]
        return not draw.eps.equal(guide.build(built).corrected(draw.eps, draw.eps, draw.t))


# --------------------------------------------------------------------------------------------------
# Path-drop guidance: pictures move away from what the short path gives for the empty prompt.
#
# v = v_short(empty) + w (v_full(prompt) - v_short(empty)),  the short path skips the routed blocks.
# arXiv:2510.21986


class PathDropGuidance(Guiding):
    name = "path_drop_guidance"
    filler = PathDropGuide
    path = "short"
    card = Card(
        says=(
            "draws with a weak pass that skips the routed blocks: guidance for little more than the"
            " price of no guidance"
        ),
        warns=(
            "the short path learns from the few samples whose path was dropped: a short run teaches"
            " it little"
        ),
    )


# --------------------------------------------------------------------------------------------------
# Routed guidance: pictures move away from what the same prompt gives with the tokens routed as in
# training.
#
# v = v_routed + w (v_full - v_routed),  both with the prompt, one mask for all steps.
# arXiv:2501.04765


class RoutedGuidance(Guiding):
    name = "routed_guidance"
    filler = RoutedGuide
    path = "routed"
    card = Card(
        says=(
            "draws with the routed model as the weak one instead of the empty prompt; training is"
            " untouched"
        ),
        warns=(
            "the prompt itself is no longer amplified: this replaces classifier-free guidance, it"
            " does not add to it"
        ),
    )
