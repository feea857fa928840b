"""What the levers with a perceptual term share: a frozen network looks at the predicted and at the true picture."""

from typing import Any, ClassVar

from fulcrum.levers.base import Cost, Lever
from fulcrum.levers.shared import price
from fulcrum.loss.fillers import LPIPS, Perceptual, PerceptualFeatures
from fulcrum.spec.edit import put
from fulcrum.spec.record import Factor
from fulcrum.spec.run import RunSpec


class Perceiving(Lever):
    """A lever that adds a perceptual term of its own name; a subclass says which."""

    weight: Factor

    kind: ClassVar[type[LPIPS] | type[PerceptualFeatures]]

    def term(self) -> Perceptual:
        return self.kind(weight=self.weight)

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, f"terms.{self.name}", self.term())

    def needs(self, run: RunSpec) -> str | None:
        return self.term().problem(run)

    def cost(self, run: RunSpec) -> Cost:
        return price.of_term(self.term(), run, self.edit(run))

    def witness(self, built: Any) -> bool:
        """The built term sees a difference between prediction and truth."""
        if self.name not in built.weights(0):
            return False
        view = built.step.look(*built.feed.at(0, 2))
        return bool((built.step.terms[self.name](view) > 0).all())
