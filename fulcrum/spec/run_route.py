"""Which route the model of a run is built with, read from the run's description and its stages."""

from fulcrum.spec import seam
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases


def route_of(run: RunSpec) -> seam.RouteFiller:
    """The one route that a run's model is built with: its own or a stage's; of equals that differ in what they drop,
    the one that drops most. Phases without a route see every token and change nothing in the model."""
    depth, tokens = run.model.depth, run.tokens
    routes = [run.model.route, *(phase.run.model.route for phase in phases(run))]
    spanned = [route for route in routes if has_span(route, depth)]
    if len({(route.kind, route.bounds(depth)) for route in spanned}) > 1:
        names = ", ".join(sorted({str(route) for route in spanned}))
        raise BadInput(f"two routes in one run: {names}", "a run may switch one route on and off, or change what it drops")
    return min(spanned, key=lambda route: route.kept(tokens), default=run.model.route)


def has_span(route: seam.RouteFiller, depth: int) -> bool:
    start, end = route.bounds(depth)
    return start <= end


def misfit(route: seam.RouteFiller, depth: int) -> str | None:
    """Why a route cannot be built into a stack of `depth` blocks, or None."""
    start, end = route.bounds(depth)
    if 0 <= start <= end < depth:
        return None
    return f"it routes blocks {start} to {end}, but the model has blocks 0 to {depth - 1}"
