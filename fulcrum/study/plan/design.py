"""The design of a study: which arms a plan asks for, and what each is held against."""

from typing import NamedTuple

from fulcrum.study.plan.based_arm import BasedArm, InsteadArm
from fulcrum.study.plan.fraction import FractionTable, fraction_table
from fulcrum.study.plan.plan import Plan

BASELINE = "baseline"


class Wanted(NamedTuple):
    """An arm as the plan asks for it, not yet resolved."""

    name: str
    phrase: str
    against: str  # name of its baseline; of a baseline its own
    scale: str = ""
    settings: tuple[str, ...] = ()


def wanted(plan: Plan) -> list[Wanted]:
    """All arms; every baseline stands before its arms, the first of all is the study's."""
    arms = []
    for scale in plan.scales or (None,):
        label = scale.name if scale else ""
        settings = (
            *plan.settings,
            *([f"budget.images={plan.images}"] if plan.images is not None else []),
            *(scale.settings if scale else ()),
        )
        arms += [
            Wanted(at_scale(name, label), arm.phrase, at_scale(arm.against, label), label, settings)
            for name, arm in _phrases(plan).items()
        ]
    return arms


def fraction_of(plan: Plan) -> FractionTable:
    """Which levers are on in which arm of a fractional design."""
    return fraction_table(plan.stack, plan.interactions, plan.combinations)


def trunks(plan: Plan) -> dict[str, Wanted]:
    """Scale -> the run that its arms branch from."""
    if plan.trunk is None:
        return {}
    runs = {}
    for scale in plan.scales or (None,):
        label = scale.name if scale else ""
        settings = (*plan.settings, *(scale.settings if scale else ()), f"budget.images={plan.trunk_images}")
        runs[label] = Wanted(at_scale("trunk", label), plan.trunk, "", label, settings)
    return runs


def at_scale(name: str, scale: str) -> str:
    return f"{name} [{scale}]" if scale else name


def interaction_arms(pair: tuple[str, str]) -> tuple[str, str, str]:
    """Names of a, b, and both."""
    return pair[0], pair[1], f"{pair[0]} + {pair[1]}"


class _Held(NamedTuple):
    phrase: str
    against: str = BASELINE


def _phrases(plan: Plan) -> dict[str, _Held]:
    """Arm -> what it is and is held against, at one scale; the baseline first, every other base before its arms."""
    if plan.design == "leave_one_out":
        arms = {BASELINE: _Held(" + ".join([plan.baseline, *plan.stack]))}
        for left_out in plan.stack:
            rest = (one for one in plan.stack if one != left_out)
            arms[f"without {left_out}"] = _Held(" + ".join([plan.baseline, *rest]))
        return arms
    if plan.design == "fractional":
        names = fraction_of(plan).names()
        return {name or BASELINE: _Held(" + ".join(filter(None, [plan.baseline, name]))) for name in names}
    arms = {BASELINE: _Held(plan.baseline)}
    based = {arm.name: arm for arm in plan.arms if isinstance(arm, BasedArm)}

    def add(name: str) -> _Held:
        if name not in arms:
            arm = based.get(name)
            if arm is None:
                held = _Held(f"{plan.baseline} + {name}")
            elif isinstance(arm, InsteadArm):
                add(arm.instead_of)
                held = _Held(f"{plan.baseline} + {arm.add}", arm.instead_of)
            else:
                held = _Held(f"{add(arm.to).phrase} + {arm.add}", arm.to)
            arms[name] = held
        return arms[name]

    for arm in plan.arms:
        add(arm if isinstance(arm, str) else arm.name)
    for pair in plan.interactions:
        for name in interaction_arms(pair):
            add(name)
    return arms
