"""Uniform time: every time is trained equally often, instead of mostly the middle."""

from fulcrum.flow.fillers import UniformTime
from fulcrum.levers.base import Built, Card, Swap


class UseUniformTime(Swap):
    name = "uniform_time"
    slot, filler = "flow.time", UniformTime
    card = Card(says="times spread evenly: both ends get more of the budget, the middle less", train_only=True)

    def witness(self, built: Built) -> bool:
        import numpy as np

        from fulcrum.flow import keyed_noise

        t = built.feed.at(0)[1].t.cpu()
        u = keyed_noise.uniform(built.seed, "t", np.arange(len(t)))[:, 0]
        return bool((t - u).abs().max() < 2e-3)  # a time is its own uniform number, but for the first 0.001
