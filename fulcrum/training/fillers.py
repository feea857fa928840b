"""Records of where a run starts from and which average of its weights it draws with."""

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import field_validator

from fulcrum.spec import slots
from fulcrum.spec.record import Count, Fraction
from fulcrum.spec.run import RunSpec

if TYPE_CHECKING:
    from fulcrum.training.build import Context


class NoAverage(slots.AverageFiller):
    kind: ClassVar[str] = "last_weights"

    def build(self, ctx: "Context") -> Any:
        from fulcrum.training.average import Average

        return Average()


class EMA(slots.AverageFiller):
    """Exponential moving average; its half-life is a share of the budget, so that it means the same
    at every length."""

    kind: ClassVar[str] = "ema"
    half_life: Fraction = 0.07
    every: Count = 10  # steps between updates

    def build(self, ctx: "Context") -> Any:
        from fulcrum.training.average import MovingAverage

        steps = ctx.run.budget.images / ctx.run.budget.batch
        return MovingAverage(
            decay=0.5 ** (self.every / max(self.half_life * steps, self.every)), every=self.every
        )


class Fresh(slots.StartFiller):
    """Named initialisation: every parameter from (seed, its name)."""

    kind: ClassVar[str] = "fresh"

    def build(self, ctx: "Context") -> Any:
        return None


class Trunk(slots.StartFiller):
    """The weights of an earlier run, known by their hash; the run's budget counts from there."""

    kind: ClassVar[str] = "trunk"
    run: str  # key of the earlier run
    weights_sha256: str

    def build(self, ctx: "Context") -> Any:
        from fulcrum.training.start_weights import trunk_weights

        assert ctx.runs is not None, "a trunk lies in the folder of all runs"
        return trunk_weights(ctx.runs / self.run, self.weights_sha256)


class DiffusersStart(slots.StartFiller):
    """The weights of a PRX transformer in diffusers' format, for fine-tuning; the key holds the
    hash of its files."""

    kind: ClassVar[str] = "diffusers"
    path: str  # a folder, org/name in the hub's cache, or hub:org/name/part

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        from fulcrum.networks.pretrained.folder import absolute

        return absolute(path)

    def require_fit(self, run: RunSpec) -> None:
        from fulcrum.training.start_weights import require_diffusers_fit

        require_diffusers_fit(self.path, run)

    def build(self, ctx: "Context") -> Any:
        from fulcrum.training.start_weights import diffusers_weights

        return diffusers_weights(self.path)

    def hashes(self) -> dict[str, str]:
        from fulcrum.networks.pretrained.folder import content_hash, locate

        return {"start": content_hash(locate(self.path, START_PARTS))}

    def identity(self) -> dict[str, Any]:
        return {}


class StandIn(slots.StartFiller):
    """Random weights in the place of trained ones: no layer begins at zero, so that each has a say
    from the first step.

    The laws try on it what needs weights to begin from; nothing that a picture shows was learned.
    """

    kind: ClassVar[str] = "stand_in"

    def build(self, ctx: "Context") -> Any:
        from fulcrum.training.start_weights import stand_in_weights

        return stand_in_weights(ctx)


START_PARTS = ("transformer",)  # what a pipeline's folder calls it

FILLERS = (NoAverage, EMA, Fresh, Trunk, DiffusersStart, StandIn)
