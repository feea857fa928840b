"""Records of the model's seams: routes and conditions."""

from typing import Any, ClassVar

from fulcrum.spec import seam
from fulcrum.spec.record import Fraction, Part


class Dense(seam.RouteFiller):
    """Every block sees every token."""

    kind: ClassVar[str] = "dense"

    def build(self, ctx: Any) -> Any:
        from fulcrum.model.route import DenseRoute

        return DenseRoute()


class Carry(seam.RouteFiller):
    """TREAD: a random share of the tokens takes a shortcut around the blocks start … end."""

    kind: ClassVar[str] = "carry"
    start: int = 1  # first routed block
    end: int = -2  # last routed block, inclusive; negative counts from the end
    drop: Fraction = 0.5  # share of tokens that takes the shortcut

    def kept(self, tokens: int) -> int:
        return max(1, round(tokens * (1 - self.drop)))

    def bounds(self, depth: int) -> tuple[int, int]:
        return _bounds(self.start, self.end, depth)

    def draws(self, tokens: int) -> dict[str, Any]:
        return _keep(tokens, self.kept(tokens))

    def build(self, ctx: Any) -> Any:
        from fulcrum.model.route import CarryRoute

        return CarryRoute(*self.bounds(ctx.run.model.depth))


class DropAndFuse(seam.RouteFiller):
    """SPRINT: the blocks start … end see few tokens; what leaves them is joined with what entered by a learned linear."""

    kind: ClassVar[str] = "drop_and_fuse"
    fuses: ClassVar[bool] = True
    start: int = 1  # first routed block
    end: int = -2  # last routed block, inclusive; negative counts from the end
    drop: Part  # share of tokens that the span does not see
    path_drop: Part = 0.0  # share of samples for which the whole span counts for nothing

    def kept(self, tokens: int) -> int:
        return max(1, round(tokens * (1 - self.drop)))

    def bounds(self, depth: int) -> tuple[int, int]:
        return _bounds(self.start, self.end, depth)

    def draws(self, tokens: int) -> dict[str, Any]:
        from fulcrum.flow.draw import Chance

        found = _keep(tokens, self.kept(tokens))
        return found | {"drop_path": Chance(self.path_drop)} if self.path_drop else found

    def build(self, ctx: Any) -> Any:
        from fulcrum.model.route import FuseRoute

        return FuseRoute(*self.bounds(ctx.run.model.depth), ctx.run.model.width, ctx.dtype("compute"))


def _bounds(start: int, end: int, depth: int) -> tuple[int, int]:
    first, last = (block if block >= 0 else depth + block for block in (start, end))
    return first, last


def _keep(tokens: int, kept: int) -> dict[str, Any]:
    from fulcrum.flow.draw import Subset

    return {"keep": Subset(tokens, kept)} if kept < tokens else {}


class NoCondition(seam.ConditionFiller):
    """The time vector carries the time only."""

    kind: ClassVar[str] = "no_condition"

    def build(self, ctx: Any) -> Any:
        return False


class Resolution(seam.ConditionFiller):
    """Height and width enter the time vector."""

    kind: ClassVar[str] = "resolution"

    def build(self, ctx: Any) -> Any:
        return True


FILLERS = (Dense, Carry, DropAndFuse, NoCondition, Resolution)
