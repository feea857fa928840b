"""Records of the model's seams: routes and conditions."""

from typing import TYPE_CHECKING, Any

from fulcrum.cost.flops import vector_multiply_adds
from fulcrum.spec import seam
from fulcrum.spec.record import Fraction, Part

if TYPE_CHECKING:
    from fulcrum.model.condition import Condition
    from fulcrum.model.route import Route


class Dense(seam.RouteFiller):
    """Every block sees every token."""

    kind = "dense"

    def build(self, ctx: Any) -> "Route":
        from fulcrum.model.route import DenseRoute

        return DenseRoute()


class SpanRoute(seam.RouteFiller):
    """What routes with a span share: its blocks, and that a share `drop` of the tokens is not seen there."""

    start: int = 1  # first routed block
    end: int = -2  # last routed block, inclusive; negative counts from the end
    drop: Part  # share of tokens that the span does not see

    def kept(self, tokens: int) -> int:
        return max(1, round(tokens * (1 - self.drop)))

    def bounds(self, depth: int) -> tuple[int, int]:
        first, last = (block if block >= 0 else depth + block for block in (self.start, self.end))
        return first, last

    def draws(self, tokens: int) -> dict[str, Any]:
        from fulcrum.flow.draw import Subset

        kept = self.kept(tokens)
        return {"keep": Subset(tokens, kept)} if kept < tokens else {}


class Carry(SpanRoute):
    """TREAD: a random share of the tokens takes a shortcut around the blocks start … end."""

    kind = "carry"
    drop: Fraction = 0.5  # share of tokens that takes the shortcut

    def build(self, ctx: Any) -> "Route":
        from fulcrum.model.route import CarryRoute

        return CarryRoute(*self.bounds(ctx.run.model.depth))


class DropAndFuse(SpanRoute):
    """SPRINT: the blocks start … end see few tokens; what leaves them is joined with what entered by a learned linear."""

    kind = "drop_and_fuse"
    fuses = True
    path_drop: Part = 0.0  # share of samples for which the whole span counts for nothing

    def draws(self, tokens: int) -> dict[str, Any]:
        from fulcrum.flow.draw import Chance

        return super().draws(tokens) | ({"drop_path": Chance(self.path_drop)} if self.path_drop else {})

    def build(self, ctx: Any) -> "Route":
        from fulcrum.model.route import FuseRoute

        return FuseRoute(*self.bounds(ctx.run.model.depth), ctx.run.model.width, ctx.dtype("compute"))


class NoCondition(seam.ConditionFiller):
    """The time vector carries the time only."""

    kind = "no_condition"

    def build(self, ctx: Any) -> None:
        return None


class Resolution(seam.ConditionFiller):
    """Height and width enter the time vector."""

    kind = "resolution"

    def parameters(self, width: int) -> int:
        return vector_multiply_adds(width) + 2 * width  # and two biases

    def multiply_adds(self, width: int) -> int:
        return vector_multiply_adds(width)

    def build(self, ctx: Any) -> "Condition":
        from fulcrum.model.condition import ResolutionIn

        return ResolutionIn(ctx.run.model.width, ctx.dtype("compute"))


FILLERS = (Dense, Carry, DropAndFuse, NoCondition, Resolution)
