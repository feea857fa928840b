"""What the levers that route tokens share: when a route cannot work in a run, and the run they are compared with."""

from fulcrum.model.fillers import Dense
from fulcrum.spec.edit import put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.route import misfit, route_of
from fulcrum.spec.run import RunSpec


def problem(run: RunSpec, drop: float) -> str | None:
    """What keeps the route of an edited run from working, in words, or None."""
    try:
        route = route_of(run)
        if route.kept(run.tokens) == run.tokens:
            return f"of {run.tokens} tokens a share of {drop:g} is none: nothing would be dropped"
        return misfit(route, run.model.depth)
    except BadInput as error:
        return error.message


def unrouted(run: RunSpec) -> RunSpec:
    """The run with every token in every block, at all times."""
    others = tuple(stage for stage in run.data.stages if not stage.path.startswith("model.route"))
    return put_all(run, [("data.stages", others), ("model.route", Dense())])
