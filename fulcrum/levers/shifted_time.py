"""Shifted time: training and sampling move towards noise, as larger pictures need.  arXiv:2403.03206

S_k(t) = k t / (1 + (k - 1) t), on the times (the uniform part of a mixture stays) and on the sampler's grid
"""

from typing import Annotated

from fulcrum.levers.base import Built, Card, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Within
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import ShiftedTimes


class ShiftedTime(Lever):
    k: Annotated[float, Within("(0, 100]")] = 3.0  # the published value for pixels at 1024; above 1 = more noise

    name = "shifted_time"
    touches = ("flow.time.shift", "sample.shift")
    card = Card(
        says="more of the budget and of the sampling steps at high noise, where the composition is decided",
        warns="the sampler's grid moves with the times: its pictures are drawn with another sampler than the baseline's",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        time = run.flow.time
        if isinstance(time, ShiftedTimes) and time.shift == run.sample.shift == self.k:
            raise BadInput(
                f"'shifted_time' would change nothing: times and sampler are shifted by {self.k:g} already",
                "choose another k, or leave it out",
            )
        if isinstance(time, ShiftedTimes):  # other times have no shift: `needs` says so
            run = put(run, "flow.time.shift", self.k)
        return put(run, "sample.shift", self.k)

    def needs(self, run: RunSpec) -> str | None:
        time = run.flow.time
        return None if isinstance(time, ShiftedTimes) else f"it shifts times, and flow.time has no shift: {time}"

    def witness(self, built: Built) -> bool:
        import numpy as np

        from fulcrum.training.flow import flow as path
        from fulcrum.training.flow import noise as keyed_noise

        last = built.run.budget.images - built.run.budget.batch  # a stage before may scale the shift
        t, time = built.feed.at(last)[1].t.cpu(), built.run.flow.time
        u = keyed_noise.uniform(built.seed, "t", np.arange(last, last + len(t)))[:, 0]
        plain, share = time.model_copy(update={"shift": 1.0}).build(built)(u), getattr(time, "uniform_share", 0.0)
        return built.run.sample.shift == self.k and bool((t - path.shift(plain, self.k))[u >= share].abs().max() < 1e-6)
