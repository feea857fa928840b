"""iREPA: alignment that cares for the layout: a convolution as projector, teacher tokens normalised over space.

    block 0 ──► … ──► middle block ──► … ──► out
                          └──► 3 x 3 convolution ──► 1 - cosine with (y - mean over tokens) / std over tokens
"""

from typing import Any, ClassVar, Literal

from fulcrum.encode.fillers import WorldTeacher
from fulcrum.levers.base import Card, Cost, Lever
from fulcrum.loss.fillers import Alignment
from fulcrum.model.cost import step_memory, training_flops
from fulcrum.model.parameters import parameters
from fulcrum.optim.memory import bytes_per_parameter
from fulcrum.spec.edit import put
from fulcrum.spec.record import Fraction, Positive
from fulcrum.spec.run import RunSpec


class IRepa(Lever):
    teacher: str = "world"
    layer: int | None = None                                 # negative counts from the end; none = the middle block
    weight: Positive = 0.5
    schedule: Literal["constant", "cosine"] = "constant"     # as it is, or falling to zero
    until: Fraction | None = None                            # share of the budget after which it is off; none = never

    name: ClassVar[str] = "irepa"
    touches: ClassVar[tuple[str, ...]] = ("terms.alignment", "encode.teachers.world")
    card: ClassVar[Card] = Card(
        says="alignment to the teacher's spatial layout rather than to what its tokens share (published without numbers: "
             "helped with DINOv2, degraded with DINOv3)",
        train_only=True,
        warns="the convolution sees the whole grid even where the layer is routed: tokens that are not there are zero")

    def term(self) -> Alignment:
        return Alignment(weight=self.weight, teacher=self.teacher, layer=self.layer, projector="conv", normalise=True,
                         schedule=self.schedule, until=self.until or 1.0)

    def edit(self, run: RunSpec) -> RunSpec:
        run = put(run, "terms.alignment", self.term())
        known = any(teacher.name == self.teacher for teacher in run.encode.teachers)
        return put(run, "encode.teachers.world", WorldTeacher()) if self.teacher == "world" and not known else run

    def needs(self, run: RunSpec) -> str | None:
        return self.term().problem(run)

    def cost(self, run: RunSpec) -> Cost:
        edited, term = self.edit(run), self.term()
        bytes_more = term.parameters(edited) * bytes_per_parameter(run) + 4 * run.budget.batch * term.numbers(edited)
        return Cost(flops=1 + term.flops(edited) / training_flops(run), memory=1 + bytes_more / step_memory(run),
                    parameters=1 + term.parameters(edited) / parameters(run))

    def witness(self, built: Any) -> bool:
        if "alignment" not in built.weights(0):
            return False
        term, tokens = built.step.terms["alignment"], built.feed.at(0)[0].teacher[self.teacher].shape[1]
        return term.normalise and any(p.ndim == 4 for p in term.parameters()) and tokens == built.phases[0].run.tokens
