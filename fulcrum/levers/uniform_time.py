"""Uniform time: every time is trained equally often, instead of mostly the middle; the run's shift stays."""

from fulcrum.levers.base import Built, Card, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import ShiftedTimes, UniformTime


class UseUniformTime(Swap):
    name = "uniform_time"
    slot, filler, settings = "flow.time", UniformTime, ()
    card = Card(
        says="times spread evenly, then shifted as the run's own: both ends get more of the budget, the middle less "
        "(named by the articles beside the logit-normal law of SD3, arXiv:2403.03206; no number was given)",
        train_only=True,
    )

    def edit(self, run: RunSpec) -> RunSpec:
        time = run.flow.time
        kept = {"shift": time.shift, "scale": time.scale} if isinstance(time, ShiftedTimes) else {}
        return put(run, self.slot, UniformTime(**kept))

    def needs(self, run: RunSpec) -> str | None:
        return None if isinstance(run.flow.time, UniformTime) else f"something else chose the times: {run.flow.time}"

    def witness(self, built: Built) -> bool:
        """A time without its shift is its own uniform number, but for the first 0.001."""
        import numpy as np

        from fulcrum.training.flow import noise as keyed_noise

        last = built.run.budget.images - built.run.budget.batch  # a stage before may scale the shift
        t = built.feed.at(last)[1].t.cpu().double()
        u = keyed_noise.uniform(built.seed, "t", np.arange(last, last + len(t)))[:, 0]
        k = getattr(built.run.flow.time, "shift", 1.0)
        return bool((t / (k - (k - 1) * t) - u).abs().max() < 2e-3)
