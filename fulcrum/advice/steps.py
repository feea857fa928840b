"""Traces of a training step, and planned studies, as an audit reads them."""

from typing import Literal, NamedTuple

from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue
from fulcrum.studies.arms import Arm, prove
from fulcrum.studies.plan import BasedArm, Plan

# --------------------------------------------------------------------------------------------------
# What was seen of one step of a user's module: in which number formats its sensitive operations
# really ran.


Kind = Literal["norm", "softmax", "rope", "time", "loss"]
LOW = ("bf16", "fp16", "fp8")


class RanOperation(NamedTuple):
    """A sensitive operation, with the formats of what it was given, and where it was called."""

    kind: Kind
    operation: str  # as torch names it: native_layer_norm
    formats: str  # of its floating inputs: "bf16", "bf16 and fp32"
    place: str  # module path and line
    times: int = 1

    @property
    def low(self) -> bool:
        """Did it compute in low precision? Mixed inputs are promoted, so the widest decides."""
        return all(one in LOW for one in self.formats.split(" and "))


class StepTrace(NamedTuple):
    operations: list[RanOperation]
    trained: dict[str, str]  # parameter -> format it is stored in
    optimizer_state: dict[str, str]  # moment -> format
    #: share of updates that would round to nothing; 0 where nothing is stored low or no rate is
    #: known
    lost_updates: float
    ran: int  # operations that ran in all

    def of(self, kind: Kind) -> list[RanOperation]:
        return [one for one in self.operations if one.kind == kind]


# --------------------------------------------------------------------------------------------------
# A study of ours before it runs: the plan, the arms that can be resolved, and what is wrong with
# the others.


class PlannedStudy(NamedTuple):
    plan: Plan
    arms: list[Arm]  # proven, the baseline first
    refused: list[tuple[str, str, str]]  # arm, what is wrong with it, what to do


def read_study(plan: Plan, catalogue: Catalogue) -> PlannedStudy:
    """Every arm that can be proven; one that cannot is set aside with its reason, and the others
    are looked at."""
    try:
        return PlannedStudy(plan, prove(plan, catalogue), [])
    except BadInput as error:
        if plan.design != "one_at_a_time" or plan.interactions or plan.scales:
            return PlannedStudy(plan, [], [("", error.message, error.hint)])
    try:
        prove(plan.model_copy(update={"arms": ()}), catalogue)
    except BadInput as error:
        return PlannedStudy(plan, [], [("", error.message, error.hint)])
    sound: tuple[str | BasedArm, ...] = ()
    refused, arms = list[tuple[str, str, str]](), list[Arm]()
    for arm in plan.arms:
        try:
            arms = prove(plan.model_copy(update={"arms": (*sound, arm)}), catalogue)
            sound = (*sound, arm)
        except BadInput as error:
            refused.append((arm if isinstance(arm, str) else arm.name, error.message, error.hint))
    return PlannedStudy(plan, arms, refused)
