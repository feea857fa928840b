"""The phases of a run: its stages merged into successive stretches, each an ordinary RunSpec."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec


class Phase(NamedTuple):
    start: int  # images seen when it begins
    end: int  # images seen when it is over
    run: RunSpec  # the run as it is during the phase, no stages left in it


def phases(run: RunSpec) -> tuple[Phase, ...]:
    """Bounds fall on whole batches, so that no batch belongs to two phases."""
    batch, images = run.budget.batch, run.budget.images
    steps = -(-images // batch)

    def at(share: float) -> int:
        return round(share * steps) * batch

    bounds = sorted({0, steps * batch} | {at(share) for stage in run.data.stages for share in (stage.start, stage.end)})
    plain = put(run, "data.stages", ())
    stretches = []
    for start, end in zip(bounds, bounds[1:], strict=False):
        current = plain
        for stage in run.data.stages:
            if at(stage.start) <= start and end <= at(stage.end):
                current = put(current, stage.path, stage.value)
        stretches.append(Phase(start, end, current))
    return tuple(stretches)


def mean_over_images(run: RunSpec, of: Callable[[RunSpec], float]) -> float:
    """The average over the budget of a number that each phase has for one image."""
    parts = phases(run)
    return sum((phase.end - phase.start) * of(phase.run) for phase in parts) / parts[-1].end


def require_sound(run: RunSpec) -> None:
    """Every stage really runs and leaves room for what it stands beside; a term's name means one term; each is on once."""
    steps = -(-run.budget.images // run.budget.batch)
    for stage in run.data.stages:
        for share in (stage.start, stage.end):
            if 0 < share < 1 and not 0 < round(share * steps) < steps:
                raise BadInput(
                    f"the stage {stage.name} begins or ends at {share:g} of the budget, but the run has only "
                    f"{steps} steps: one of its sides would never run",
                    "choose another share, or more images",
                )
        if round(stage.start * steps) == round(stage.end * steps):
            raise BadInput(f"the stage {stage.name} holds no whole batch of {run.budget.batch} images", "make it longer")
    terms: dict[str, tuple[Any, bool]] = {}  # by name, and whether it is ever on
    for phase in phases(run):
        for term in phase.run.terms:
            at = [phase.start + part * (phase.end - phase.start) / 8 for part in range(8)]
            on = any(term.weight_at(images / run.budget.images) for images in at)
            known, was_on = terms.get(term.name, (term, False))
            if known.model_copy(update={"weight": term.weight}) != term:
                raise BadInput(
                    f"two terms are called '{term.name}' in different stages: {known} and {term}",
                    "a run has one term of a name; leave one of them out",
                )
            terms[term.name] = (term, on or was_on)
    if off := [name for name, (_, on) in terms.items() if not on]:
        raise BadInput(f"the term '{off[0]}' is never on: its weight is zero wherever the run has it", "leave it out")
