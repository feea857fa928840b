"""A study of ours before it runs: the plan, the arms that can be resolved, and what is wrong with the others."""

from typing import NamedTuple

from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue
from fulcrum.studies.arms import Arm, prove
from fulcrum.studies.plan import BasedArm, Plan


class PlannedStudy(NamedTuple):
    plan: Plan
    arms: list[Arm]  # proven, the baseline first
    refused: list[tuple[str, str, str]]  # arm, what is wrong with it, what to do


def read_study(plan: Plan, catalogue: Catalogue) -> PlannedStudy:
    """Every arm that can be proven; one that cannot is set aside with its reason, and the others are looked at."""
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
