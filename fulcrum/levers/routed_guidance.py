"""Routed guidance: pictures move away from what the same prompt gives with the tokens routed as in training.

    v = v_routed + w (v_full - v_routed),  both with the prompt, one mask for all steps.  arXiv:2501.04765
"""

from typing import Any, ClassVar

from fulcrum.flow.fillers import RoutedGuide
from fulcrum.levers.base import Card, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.record import Guidance
from fulcrum.spec.run import RunSpec


class RoutedGuidance(Lever):
    scale: Guidance | None = None                            # w; none: that of the run's own guide

    name: ClassVar[str] = "routed_guidance"
    touches: ClassVar[tuple[str, ...]] = ("sample.guide",)
    affects: ClassVar[tuple[str, ...]] = ("samples",)
    card: ClassVar[Card] = Card(
        says="draws with the routed model as the weak one instead of the empty prompt; training is untouched",
        warns="the prompt itself is no longer amplified: this replaces classifier-free guidance, it does not add to it")

    def edit(self, run: RunSpec) -> RunSpec:
        scale = self.scale if self.scale is not None else getattr(run.sample.guide, "scale", 1.0)
        return put(run, "sample.guide", RoutedGuide(scale=scale))

    def needs(self, run: RunSpec) -> str | None:
        guide = run.sample.guide
        if not isinstance(guide, RoutedGuide):
            return "another guide is in its place"
        return guide.missing(run) or ("a scale of 1 guides nothing: give one" if guide.scale == 1 else None)

    def witness(self, built: Any) -> bool:
        """The built guide asks the denoiser for a routed pass."""
        from fulcrum.flow.guide import paths_asked
        return "routed" in paths_asked(built.run.sample.guide.build(built))
