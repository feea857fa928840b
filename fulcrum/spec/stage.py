"""The phases of a run: its stages merged into successive stretches, each an ordinary RunSpec."""

from typing import NamedTuple

from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec


class Phase(NamedTuple):
    start: int                                               # images seen when it begins
    end: int                                                 # images seen when it is over
    run: RunSpec                                             # the run as it is during the phase, no stages left in it


def phases(run: RunSpec) -> tuple[Phase, ...]:
    """Bounds fall on whole batches, so that no batch belongs to two phases."""
    batch, images = run.budget.batch, run.budget.images
    steps = -(-images // batch)

    def at(share: float) -> int:
        return round(share * steps) * batch

    bounds = sorted({0, steps * batch} | {at(share) for stage in run.data.stages for share in (stage.start, stage.end)})
    plain = put(run, "data.stages", ())
    found = []
    for start, end in zip(bounds, bounds[1:], strict=False):
        current = plain
        for stage in run.data.stages:
            if at(stage.start) <= start and end <= at(stage.end):
                current = put(current, stage.path, stage.value)
        found.append(Phase(start, end, current))
    return tuple(found)
