"""EMA: pictures are drawn with a moving average of the weights."""

from fulcrum.levers.base import Built, Card, Cost, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.flops import bytes_per_parameter
from fulcrum.spec.run import RunSpec
from fulcrum.training.fillers import EMA, NoAverage
from fulcrum.training.optim.optimizers import rates


class UseEMA(Swap):
    name = "ema"
    slot, filler = "average", EMA
    affects = ("averaged weights", "samples")
    card = Card(
        says="a smoother model for drawing; training itself is untouched (published: 0.999 every 10 steps of 100,000, at a "
        "constant rate; no number was given)",
        warns="an average pays by quieting the noise of a rate that stays high, and a decayed rate has quieted it already: "
        "on a recipe that decays it is judged without its fuel. It changes no schedule, which would be a second decision: "
        "for the published setting give both arms --set optim.decay=0",
    )

    def needs(self, run: RunSpec) -> str | None:
        steps = run.budget.images // run.budget.batch
        if self.every < steps:
            return None
        return f"it looks at the weights every {self.every} steps, but the run has only {steps}: it would draw as it began"

    def cost(self, run: RunSpec) -> Cost:
        return Cost(memory=bytes_per_parameter(self.edit(run)) / bytes_per_parameter(put(run, "average", NoAverage())))

    def in_run(self, run: RunSpec) -> str:
        """The rate under its average: every step's, weighed as the average weighs what came after it."""
        steps = rates(run)
        half_life = self.half_life * len(steps)
        weights = [0.5 ** ((len(steps) - 1 - step) / half_life) for step in range(len(steps))]
        mean = sum(weight * rate for weight, rate in zip(weights, steps, strict=True)) / sum(weights)
        return f"the steps that its average holds had a mean learning rate of {mean:.0%} of the peak"

    def witness(self, built: Built) -> bool:
        return bool(built.average.state())
