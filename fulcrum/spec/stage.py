"""The phases of a run: its stages merged into successive stretches, each an ordinary RunSpec."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from fulcrum.spec import slots
from fulcrum.spec.edit import put, put_all, require_staged
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RATE, During, RunSpec

# --------------------------------------------------------------------------------------------------
# The phases of a run: its stages merged into successive stretches, each an ordinary RunSpec.


class Phase(NamedTuple):
    start: int  # images seen when it begins
    end: int  # images seen when it is over
    run: RunSpec  # the run as it is during the phase, no stages left in it


class OwnRate(NamedTuple):
    """A stretch of images with a learning rate of its own."""

    start: int
    end: int
    share: float  # of the run's own rate


def bounds(run: RunSpec, stage: During) -> tuple[int, int]:
    """Images seen when a stage begins and ends; whole batches, so that no batch belongs to two
    phases."""
    batch, steps = run.budget.batch, run.budget.images // run.budget.batch
    return round(stage.start * steps) * batch, round(stage.end * steps) * batch


def phases(run: RunSpec) -> tuple[Phase, ...]:
    # of two rates, the one that began last counts
    stages = sorted(run.data.stages, key=lambda stage: stage.start)
    ends = {0, run.budget.images} | {images for stage in stages for images in bounds(run, stage)}
    plain = put(run, "data.stages", ())
    stretches = []
    for start, end in pairwise(sorted(ends)):
        current = plain
        for stage in stages:
            first, last = bounds(run, stage)
            if first <= start and end <= last:
                current = put(current, stage.path, stage.value)
        stretches.append(Phase(start, end, current))
    return tuple(stretches)


def own_rates(run: RunSpec) -> tuple[OwnRate, ...]:
    """The stages that have a learning rate of their own, in the order in which they begin."""
    staged = sorted(
        (stage for stage in run.data.stages if stage.path == RATE), key=lambda stage: stage.start
    )
    return tuple(OwnRate(*bounds(run, stage), stage.value / run.optim.lr) for stage in staged)


def at_rate(run: RunSpec, lr: float) -> RunSpec:
    """The run at another learning rate; stages with a rate of their own keep their share of it."""
    stages = tuple(
        (
            stage.model_copy(update={"value": stage.value * (lr / run.optim.lr)})
            if stage.path == RATE
            else stage
        )
        for stage in run.data.stages
    )
    return put_all(run, [(RATE, lr), ("data.stages", stages)])


def terms_of(run: RunSpec) -> dict[str, slots.TermFiller]:
    """Every term of any phase, by its name."""
    return {term.name: term for phase in phases(run) for term in phase.run.terms}


def mean_over_images(run: RunSpec, of: Callable[[RunSpec], float]) -> float:
    """The average over the budget of a number that each phase has for one image."""
    parts = phases(run)
    return sum((phase.end - phase.start) * of(phase.run) for phase in parts) / parts[-1].end


def require_sound(run: RunSpec) -> None:
    """Every stage really runs and leaves room for what it stands beside; a term's name means one
    term; each is on once."""
    steps = run.budget.images // run.budget.batch
    for stage in run.data.stages:
        require_staged(stage.path)
        for share in (stage.start, stage.end):
            if 0 < share < 1 and not 0 < round(share * steps) < steps:
                raise BadInput(
                    f"the stage {stage.name} begins or ends at {share:g} of the budget, but the run"
                    f" has only {steps} steps: one of its sides would never run",
                    "choose another share, or more images",
                )
        if round(stage.start * steps) == round(stage.end * steps):
            raise BadInput(
                f"the stage {stage.name} holds no whole batch of {run.budget.batch} images",
                "make it longer",
            )
    for one, other in pairwise(own_rates(run)):
        if one.start == other.start and one != other:
            raise BadInput(
                f"two stages with a rate of their own begin at {one.start:,} images: which rate"
                " counts?",
                "let one of them begin later, or have no rate of its own",
            )
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
        _require_known_pictures(phase.run)
        _require_captions(phase.run)
    if off := [name for name, (_, on) in terms.items() if not on]:
        raise BadInput(
            f"the term '{off[0]}' is never on: its weight is zero wherever the run has it",
            "leave it out",
        )


def _require_known_pictures(run: RunSpec) -> None:
    """The embedded teacher has learned to see the world's pictures: of others it says nothing that
    is worth learning."""
    if run.data.source.is_world:
        return
    read = {name for term in run.terms for name in term.teachers()}
    teachers = [
        teacher
        for name in sorted(read)
        if (teacher := run.encode.teacher(name)) and teacher.world_only
    ]
    if teachers:
        raise BadInput(
            f"the teacher '{teachers[0].name}' knows the embedded world's pictures, not those of"
            f" {run.data.source}",
            "let a pretrained one take its place: dinov3(path='FOLDER',"
            f" instead_of={teachers[0].name}), or dinov2; FOLDER is what save_pretrained writes, or"
            " hub:org/name (docs/pretrained.md, for CLIP too)",
        )
    if terms := [term.name for term in run.terms if term.world_only]:
        raise BadInput(
            f"the term '{terms[0]}' looks through the embedded world's teacher, which does not know"
            f" the pictures of {run.data.source}",
            "leave it out, or use lpips(network=vgg), which looks through VGG; alignment takes"
            " pretrained teachers: DINOv2, DINOv3, CLIP (docs/pretrained.md)",
        )


def _require_captions(run: RunSpec) -> None:
    """Captions that the pictures do not have are missed here, and not when their stage begins."""
    try:
        having = run.data.source.caption_names()
    except BadInput:
        return  # a store that is not here: a run may be described without it
    if having is None:
        return
    if missing := [name for name in run.data.caption.caption_names() if name not in having]:
        raise BadInput(
            f"not every picture of {run.data.source} has a caption '{missing[0]}'; all have:"
            f" {', '.join(having) or 'none'}",
            "choose by name: --set \"data.caption=named_captions(names=('...',))\", and so"
            " sample.prompts; a mix of lengths leaves one out with a weight of zero, such as"
            f" mixed_captions({missing[0]}=0)",
        )


# --------------------------------------------------------------------------------------------------
# Which route the model of a run is built with, read from the run's description and its stages.


def route_of(run: RunSpec) -> slots.RouteFiller:
    """The one route that a run's model is built with: its own or a stage's; of equals that differ
    in what they drop, the one that drops most. Phases without a route see every token and change
    nothing in the model."""
    depth, tokens = run.model.depth, run.tokens
    routes = [run.model.route, *(phase.run.model.route for phase in phases(run))]
    spanned = [route for route in routes if has_span(route, depth)]
    if len({(route.kind, route.bounds(depth)) for route in spanned}) > 1:
        names = ", ".join(sorted({str(route) for route in spanned}))
        raise BadInput(
            f"two routes in one run: {names}",
            "a run may switch one route on and off, or change what it drops",
        )
    return min(spanned, key=lambda route: route.kept(tokens), default=run.model.route)


def has_span(route: slots.RouteFiller, depth: int) -> bool:
    start, end = route.bounds(depth)
    return start <= end


def misfit(route: slots.RouteFiller, depth: int) -> str | None:
    """Why a route cannot be built into a stack of `depth` blocks, or None."""
    start, end = route.bounds(depth)
    if 0 <= start <= end < depth:
        return None
    return f"it routes blocks {start} to {end}, but the model has blocks 0 to {depth - 1}"
