"""Records of the model's seams: routes and conditions."""

from typing import Any, ClassVar

from fulcrum.spec import seam
from fulcrum.spec.record import Fraction


class Dense(seam.Route):
    """Every block sees every token."""

    kind: ClassVar[str] = "dense"

    def kept(self, tokens: int) -> int:
        return tokens

    def bounds(self, depth: int) -> tuple[int, int]:
        return (depth, depth - 1)                            # no block

    def build(self, ctx: Any) -> Any:
        from fulcrum.model.route import DenseRoute
        return DenseRoute()


class Carry(seam.Route):
    """TREAD: a random share of the tokens takes a shortcut around the blocks start … end."""

    kind: ClassVar[str] = "carry"
    start: int                                               # first routed block
    end: int                                                 # last routed block, inclusive; negative counts from the end
    drop: Fraction                                           # share of tokens that takes the shortcut

    def kept(self, tokens: int) -> int:
        return max(1, round(tokens * (1 - self.drop)))

    def bounds(self, depth: int) -> tuple[int, int]:
        return (self.start, self.end if self.end >= 0 else depth + self.end)

    def build(self, ctx: Any) -> Any:
        from fulcrum.model.route import CarryRoute
        start, end = self.bounds(ctx.run.model.depth)
        return CarryRoute(start, end)


class NoCondition(seam.Condition):
    """The time vector carries the time only."""

    kind: ClassVar[str] = "no_condition"

    def build(self, ctx: Any) -> Any:
        return False


class Resolution(seam.Condition):
    """Height and width enter the time vector."""

    kind: ClassVar[str] = "resolution"

    def build(self, ctx: Any) -> Any:
        return True


FILLERS = (Dense, Carry, NoCondition, Resolution)
