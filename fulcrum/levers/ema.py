"""EMA: pictures are drawn with a moving average of the weights."""

from fulcrum.cost.denoiser import bytes_per_parameter
from fulcrum.levers.base import Built, Card, Cost, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec
from fulcrum.train.fillers import EMA, NoAverage


class UseEMA(Swap):
    name = "ema"
    slot, filler = "average", EMA
    affects = ("averaged weights", "samples")
    card = Card(says="a smoother model for drawing; training itself is untouched")

    def needs(self, run: RunSpec) -> str | None:
        steps = run.budget.images // run.budget.batch
        if self.every < steps:
            return None
        return f"it looks at the weights every {self.every} steps, but the run has only {steps}: it would draw as it began"

    def cost(self, run: RunSpec) -> Cost:
        return Cost(memory=bytes_per_parameter(self.edit(run)) / bytes_per_parameter(put(run, "average", NoAverage())))

    def witness(self, built: Built) -> bool:
        return bool(built.average.state())
