"""Resolution ladder: the first part of the budget on smaller pictures, with less shift of the times.

k of the small stage = max(1, k · small / large): a small picture is destroyed by less noise
"""

from typing import Literal

from fulcrum.data.fillers import World
from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.spec.edit import during, put
from fulcrum.spec.flops import denoiser_training_flops
from fulcrum.spec.record import Count, Fraction
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import ShiftedTimes

STAGED = ("data.size", "flow.time.scale")


class ResolutionLadder(Lever):
    start_size: Count | None = None  # pixels on a side in the first stage; none: half of the run's
    until: Fraction = 0.5  # share of the budget on small pictures
    shift: Literal["scaled", "kept"] = "scaled"  # of the times, in the first stage

    name = "resolution_ladder"
    touches = ("data.stages",)
    card = Card(
        says="small pictures first, the run's own size afterwards: more images for the same FLOPs; pays where most of the "
        "tokens are saved (published: 512 px, then 1024 px; no number was given)",
        train_only=True,
        warns="at equal images it trains on fewer tokens: compare at equal FLOPs too",
    )

    def _small(self, run: RunSpec) -> int:
        return self.start_size or run.data.size // 2

    def edit(self, run: RunSpec) -> RunSpec:
        small = self._small(run)
        run = during(run, 0.0, self.until, "data.size", small)
        if self.shift == "scaled" and isinstance(run.flow.time, ShiftedTimes):
            run = during(run, 0.0, self.until, "flow.time.scale", small / run.data.size)
        return run

    def needs(self, run: RunSpec) -> str | None:
        from fulcrum.data.world.scene import SMALLEST

        small = self._small(run)
        if small >= run.data.size:
            return f"it starts at {small} pixels, but the run's own size is {run.data.size}: nothing to climb"
        if isinstance(run.data.source, World) and small < SMALLEST:
            return f"it starts at {small} pixels, but the world is drawn at {SMALLEST} or more"
        if self.shift == "scaled" and not isinstance(run.flow.time, ShiftedTimes):
            return f"it scales the shift of the times, and flow.time has none: {run.flow.time}; write shift=kept"
        return None

    def cost(self, run: RunSpec) -> Cost:
        without = put(run, "data.stages", tuple(stage for stage in run.data.stages if stage.path not in STAGED))
        return Cost(flops=denoiser_training_flops(self.edit(without)) / denoiser_training_flops(without))

    def witness(self, built: Built) -> bool:
        first, last = (built.feed.at(at, 1)[0].x0[0, 0].numel() for at in (0, built.run.budget.images - 1))
        grown = first / last / (self._small(built.run) / built.run.data.size) ** 2
        return bool(first < last and abs(grown - 1) < 0.25)  # pictures of several shapes have about as many pixels
