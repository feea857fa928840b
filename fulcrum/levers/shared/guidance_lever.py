"""What the levers that change guidance share: a guide in the place of the run's own, at the run's own scale."""

from typing import Any, ClassVar

from fulcrum.levers.base import Built, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.record import Guidance
from fulcrum.spec.run import RunSpec


class Guiding(Swap):
    """A lever that replaces the guide; a subclass says by which, and what path of the denoiser that one asks for."""

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
        return guide.missing(run) or ("a scale of 1 guides nothing: give one" if guide.scale == 1 else None)

    def witness(self, built: Built) -> bool:
        """The built guide asks the denoiser for such a pass."""
        from fulcrum.training.flow.sampling import paths_asked

        return self.path in paths_asked(built.run.sample.guide.build(built))
