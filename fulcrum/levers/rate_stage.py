"""Rate stage: the last part of the budget at a learning rate of its own, warmed up again.

lr ──╮ warm-up, plateau, decay as ever ──╲    ╱‾‾╲   rate · lr: warmed up over optim.rewarm of the stage,
     ╯                                    ╲──╯    ╲  decayed over optim.decay of it
"""

from fulcrum.levers.base import Built, Card, Lever
from fulcrum.levers.shared.stage_rate import StageRate, at_own_rate, rate_since
from fulcrum.spec.record import Part
from fulcrum.spec.run import RunSpec


class RateStage(Lever):
    start: Part = 0.9  # share of the budget after which it begins
    rate: StageRate = 1.0  # share of the run's own rate

    name = "rate_stage"
    touches = ("data.stages",)
    card = Card(
        says="the last part of the budget at a rate of its own and nothing else changed: what a late stage owes to its "
        "rate alone is seen beside this arm (published nowhere; it is the control of such stages)",
        train_only=True,
        warns="on a recipe whose rate decays it learns more in all than the baseline does",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return at_own_rate(run, self.start, self.rate)

    def in_run(self, run: RunSpec) -> str:
        return rate_since(run, self.start)

    def witness(self, built: Built) -> bool:
        """The built schedule has such a stage."""
        last = built.schedule.stages[-1:]
        return bool(last and last[0].end == built.run.budget.images and abs(last[0].share - self.rate) < 1e-9)
