"""Path-drop guidance: pictures move away from what the short path gives for the empty prompt.

    v = v_short(empty) + w (v_full(prompt) - v_short(empty)),  the short path skips the routed blocks.  arXiv:2510.21986
"""

from typing import Any, ClassVar

from fulcrum.flow.fillers import PathDropGuide
from fulcrum.levers.base import Card, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.record import Guidance
from fulcrum.spec.run import RunSpec


class PathDropGuidance(Lever):
    scale: Guidance | None = None                            # w; none: that of the run's own guide

    name: ClassVar[str] = "path_drop_guidance"
    touches: ClassVar[tuple[str, ...]] = ("sample.guide",)
    affects: ClassVar[tuple[str, ...]] = ("samples",)
    card: ClassVar[Card] = Card(
        says="draws with a weak pass that skips the routed blocks: guidance for little more than the price of no guidance",
        warns="the short path learns from the few samples whose path was dropped: a short run teaches it little")

    def edit(self, run: RunSpec) -> RunSpec:
        scale = self.scale if self.scale is not None else getattr(run.sample.guide, "scale", 1.0)
        return put(run, "sample.guide", PathDropGuide(scale=scale))

    def needs(self, run: RunSpec) -> str | None:
        guide = run.sample.guide
        if not isinstance(guide, PathDropGuide):
            return "another guide is in its place"
        return guide.missing(run) or ("a scale of 1 guides nothing: give one" if guide.scale == 1 else None)

    def witness(self, built: Any) -> bool:
        """The built guide asks the denoiser for a short pass."""
        from fulcrum.flow.guide import paths_asked
        return "short" in paths_asked(built.run.sample.guide.build(built))
