"""EMA: pictures are drawn with a moving average of the weights."""

from typing import Any, ClassVar

from fulcrum.cost.optimizer_memory import bytes_per_parameter
from fulcrum.levers.base import Card, Cost, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.record import Count, Fraction
from fulcrum.spec.run import RunSpec
from fulcrum.train.fillers import EMA, NoAverage


class UseEMA(Lever):
    half_life: Fraction = 0.07  # share of the budget
    every: Count = 10  # steps between updates

    name: ClassVar[str] = "ema"
    touches: ClassVar[tuple[str, ...]] = ("average",)
    affects: ClassVar[tuple[str, ...]] = ("averaged weights", "samples")
    card: ClassVar[Card] = Card(says="a smoother model for drawing; training itself is untouched")

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "average", EMA(half_life=self.half_life, every=self.every))

    def needs(self, run: RunSpec) -> str | None:
        steps = run.budget.images // run.budget.batch
        return (
            None
            if self.every < steps
            else f"it looks at the weights every {self.every} steps, but the run has only {steps}: "
            "it would draw as it began"
        )

    def cost(self, run: RunSpec) -> Cost:
        return Cost(memory=bytes_per_parameter(self.edit(run)) / bytes_per_parameter(put(run, "average", NoAverage())))

    def witness(self, built: Any) -> bool:
        return bool(built.average.state())
