"""Records of where a run starts from and which average of its weights it draws with."""

from typing import Any, ClassVar

from fulcrum.spec import seam
from fulcrum.spec.record import Count, Fraction


class NoAverage(seam.Average):
    kind: ClassVar[str] = "last_weights"

    def build(self, ctx: Any) -> Any:
        from fulcrum.train.average import LastWeights
        return LastWeights()


class EMA(seam.Average):
    """Exponential moving average; its half-life is a share of the budget, so that it means the same at every length."""

    kind: ClassVar[str] = "ema"
    half_life: Fraction = 0.07
    every: Count = 10                                        # steps between updates

    def build(self, ctx: Any) -> Any:
        from fulcrum.train.average import MovingAverage
        steps = ctx.run.budget.images / ctx.run.budget.batch
        return MovingAverage(decay=0.5 ** (self.every / max(self.half_life * steps, self.every)), every=self.every)


class Fresh(seam.Start):
    """Named initialisation: every parameter from (seed, its name)."""

    kind: ClassVar[str] = "fresh"

    def build(self, ctx: Any) -> Any:
        return None


class Trunk(seam.Start):
    """The weights of an earlier run, known by their hash; the run's budget counts from there."""

    kind: ClassVar[str] = "trunk"
    run: str                                                 # key of the earlier run
    weights_sha256: str

    def build(self, ctx: Any) -> Any:
        return self


FILLERS = (NoAverage, EMA, Fresh, Trunk)
