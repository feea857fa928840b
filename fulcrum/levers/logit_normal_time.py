"""Logit-normal time: where the times lie and how far they spread, SD3's rf/lognorm(m, s).  arXiv:2403.03206

t = sigmoid(mean + deviation z), z standard normal; t = 1 is noise here as in SD3
"""

from fulcrum.levers.base import Built, Card, Lever
from fulcrum.spec.edit import put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.record import Factor, Share
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import Location, LogitNormal, Spread

SETTINGS = ("mean", "deviation", "uniform_share", "shift")


class PlacedTimes(Lever):
    mean: Location = 0.5  # above zero = more noise
    deviation: Spread = 0.6
    uniform_share: Share | None = None  # none: the run's own
    shift: Factor | None = None  # of the times, not of the sampler; none: the run's own

    name = "logit_normal_time"
    touches = tuple(f"flow.time.{setting}" for setting in SETTINGS)
    card = Card(
        says="the budget goes to a chosen band of noise levels; SD3 tried such bands on latents of 256 px and ranked "
        "rf/lognorm(0, 1), which is the recipes' own, before (1, 0.6) and (0.5, 0.6)",
        train_only=True,
        warns="SD3's mixture has no uniform part, and the recipes' keep their tenth unless uniform_share=0 is written; a "
        "shift of k adds ln k to the mean",
    )

    def _asked(self) -> list[tuple[str, float]]:
        """What it sets; what is none stays the run's own."""
        values = ((setting, getattr(self, setting)) for setting in SETTINGS)
        return [(f"flow.time.{setting}", value) for setting, value in values if value is not None]

    def edit(self, run: RunSpec) -> RunSpec:
        if not isinstance(run.flow.time, LogitNormal):
            raise BadInput(f"'{self.name}' places logit-normal times, and flow.time is {run.flow.time}")
        return put_all(run, self._asked())

    def needs(self, run: RunSpec) -> str | None:
        time = run.flow.time
        if not isinstance(time, LogitNormal):
            return f"it places logit-normal times, and flow.time is {time}"
        return "all times are uniform (uniform_share=1): none is left to be placed" if time.uniform_share == 1 else None

    def witness(self, built: Built) -> bool:
        """The last draw's times are the quantiles of its uniform numbers, placed as asked; those of the uniform share
        are not looked at."""
        import numpy as np
        import torch

        from fulcrum.training.flow import noise as keyed_noise

        last, time = built.run.budget.images - built.run.budget.batch, built.run.flow.time
        t = built.feed.at(last)[1].t.cpu().double()
        u = keyed_noise.uniform(built.seed, "t", np.arange(last, last + len(t)))[:, 0].double()
        share = time.uniform_share if self.uniform_share is None else self.uniform_share
        k = time.shift if self.shift is None else self.shift
        placed = torch.sigmoid(self.mean + self.deviation * torch.special.ndtri((u - share) / (1 - share)))
        expected = k * placed / (1 + (k - 1) * placed)
        return bool(((t - expected).abs() < 1e-5)[u > share + 1e-3].all())
