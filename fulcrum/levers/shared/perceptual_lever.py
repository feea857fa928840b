"""What the levers with a perceptual term share: a frozen network looks at the predicted and at the true picture."""

from typing import Any, Literal

from fulcrum.levers.base import Built, Cost, Swap
from fulcrum.levers.shared import price
from fulcrum.networks.fillers import WORLD_TEACHERS
from fulcrum.spec.run import RunSpec


class Perceiving(Swap):
    """A lever that adds a perceptual term of its own name; a subclass says which."""

    teacher: Literal["world", "supervised"] = "world"  # whose eyes it looks through

    settings = ("weight",)

    def made(self, **others: Any) -> Any:
        return super().made(asset=WORLD_TEACHERS[self.teacher], **others)

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
