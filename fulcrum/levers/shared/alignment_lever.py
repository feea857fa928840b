"""What REPA and iREPA share: settings, the edit that brings term and teacher, needs and cost. They differ in the term."""

from typing import ClassVar, Literal

from fulcrum.levers.base import Built, Cost, Swap
from fulcrum.levers.shared import price
from fulcrum.levers.shared.teacher_choice import with_teacher
from fulcrum.spec.edit import put
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec
from fulcrum.training.loss.fillers import Alignment


class Aligning(Swap):
    """A lever that adds the term `alignment`; a subclass says which one, and sees it in what was built."""

    until: Fraction | None = None  # share of the budget after which it is off; none = never

    slot, filler = "terms.alignment", Alignment
    settings: ClassVar[tuple[str, ...]] = ("teacher", "layer", "weight", "schedule")
    touches = ("terms.alignment", "encode.teachers")
    projector: ClassVar[Literal["mlp", "conv"]] = "mlp"
    normalise: ClassVar[bool] = False  # the teacher's tokens, over space

    def term(self) -> Alignment:
        made: Alignment = self.made(projector=self.projector, normalise=self.normalise, until=self.until or 1.0)
        return made

    def edit(self, run: RunSpec) -> RunSpec:
        return with_teacher(put(run, self.slot, self.term()), self.teacher)

    def needs(self, run: RunSpec) -> str | None:
        return self.term().problem(run)

    def cost(self, run: RunSpec) -> Cost:
        return price.of_term(self.term(), run, self.edit(run))

    def witness(self, built: Built) -> bool:
        """The built term has this projector and normalisation, and the teacher's tokens are on the model's grid."""
        if "alignment" not in built.weights(0):
            return False
        batch, draw = built.feed.at(0)
        term, tokens = built.step.terms["alignment"], batch.teacher[self.teacher].shape[1]
        convolves = any(parameter.ndim == 4 for parameter in term.parameters())
        asked = (self.normalise, self.term().alpha, self.projector == "conv")
        return (term.normalise, term.alpha, convolves) == asked and bool(
            tokens == draw.eps[0, 0].numel() // built.run.model.patch**2
        )
