"""What the levers that route tokens share: when a route cannot work in a run, what it saves, and a witness."""

from fulcrum.levers.base import Built, Cost, Swap
from fulcrum.levers.shared import price
from fulcrum.spec.edit import put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import misfit, route_of
from fulcrum.training.model.fillers import Dense


class Routing(Swap):
    """A lever that puts a route with a setting `drop` into the model; a subclass says which."""

    slot = "model.route"

    def needs(self, run: RunSpec) -> str | None:
        try:
            route = route_of(run)
            if route.kept(run.tokens) == run.tokens:
                return f"of {run.tokens} tokens a share of {self.drop:g} is none: nothing would be dropped"
            return misfit(route, run.model.depth)
        except BadInput as error:
            return error.message

    def cost(self, run: RunSpec) -> Cost:
        """Against the run with every token in every block, at all times."""
        others = tuple(stage for stage in run.data.stages if not stage.path.startswith("model.route"))
        dense = put_all(run, [("data.stages", others), ("model.route", Dense())])
        return price.of_denoiser(dense, self.edit(dense))

    def witness(self, built: Built) -> bool:
        """The first step of a stage keeps a part of the tokens; a smaller size before it may have but one."""
        kept = ((phase.run.tokens, built.feed.at(phase.start)[1].keep) for phase in built.phases)
        return any(keep is not None and keep.shape[1] < tokens for tokens, keep in kept)
