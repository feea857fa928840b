"""What the levers with a perceptual term share: a frozen network looks at the predicted and at the true picture."""

from fulcrum.levers.base import Built, Cost, Swap
from fulcrum.levers.shared import price
from fulcrum.spec.run import RunSpec


class Perceiving(Swap):
    """A lever that adds a perceptual term of its own name; a subclass says which."""

    settings = ("weight",)

    def needs(self, run: RunSpec) -> str | None:
        problem: str | None = self.made().problem(run)
        return problem

    def cost(self, run: RunSpec) -> Cost:
        return price.of_term(self.made(), run, self.edit(run))

    def witness(self, built: Built) -> bool:
        """The built term sees a difference between prediction and truth."""
        if self.name not in built.weights(0):
            return False
        view = built.step.look(*built.feed.at(0, 2))
        return bool((built.step.terms[self.name](view) > 0).all())
