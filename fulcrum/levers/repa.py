"""REPA: a middle layer learns to speak as a frozen vision teacher does.  arXiv:2410.06940

    block 0 ──► … ──► middle block ──► … ──► out
                          └──► 3-layer MLP ──► 1 - cosine with the teacher's token at the same place
"""

from typing import Any, ClassVar, Literal

from fulcrum.encode.fillers import WorldTeacher
from fulcrum.levers.base import Card, Claim, Cost, Lever
from fulcrum.loss.fillers import Alignment
from fulcrum.model.cost import step_memory, training_flops
from fulcrum.model.parameters import parameters
from fulcrum.optim.memory import bytes_per_parameter
from fulcrum.spec.edit import put
from fulcrum.spec.record import Fraction, Positive
from fulcrum.spec.run import RunSpec

SCOPE = "256 px latents, 1.2 B parameters, 100k steps"
DINO3, DINO2 = f"{SCOPE}, DINOv3 teacher", f"{SCOPE}, DINOv2 teacher"


class Repa(Lever):
    teacher: str = "world"
    layer: int | None = None                                 # negative counts from the end; none = the middle block
    weight: Positive = 0.5
    schedule: Literal["constant", "cosine"] = "constant"     # as it is, or falling to zero
    until: Fraction | None = None                            # share of the budget after which it is off; none = never

    name: ClassVar[str] = "repa"
    touches: ClassVar[tuple[str, ...]] = ("terms.alignment", "encode.teachers.world")
    card: ClassVar[Card] = Card(
        says="a middle layer is drawn towards a frozen teacher's features; pays early, is best switched off later (until=)",
        claims=(Claim(metric="fid", change=-3.56, scope=DINO3, source="PRX Part 2"),
                Claim(metric="cmmd", change=-0.06, scope=DINO3, source="PRX Part 2"),
                Claim(metric="fid", change=-1.60, scope=DINO2, source="PRX Part 2"),
                Claim(metric="cmmd", change=-0.02, scope=DINO2, source="PRX Part 2")),
        train_only=True,
        warns="the published teachers saw far more than the training set; the embedded one saw scenes of the same world, "
              "and its features are cached, where the published arms computed theirs in every step (12 % and 7 % slower)")

    def term(self) -> Alignment:
        return Alignment(weight=self.weight, teacher=self.teacher, layer=self.layer, schedule=self.schedule,
                         until=self.until or 1.0)

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
        return not term.normalise and all(p.ndim <= 2 for p in term.parameters()) and tokens == built.phases[0].run.tokens
