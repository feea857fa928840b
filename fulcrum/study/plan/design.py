"""The design of a study: which arms a plan asks for, and what each is held against."""

from typing import NamedTuple

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
        base = at_scale(BASELINE, label)
        arms += [Wanted(at_scale(name, label), phrase, base, label, settings) for name, phrase in _phrases(plan).items()]
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


def _phrases(plan: Plan) -> dict[str, str]:
    """Arm -> phrase at one scale, the baseline first."""
    if plan.design == "leave_one_out":
        phrases = {BASELINE: " + ".join([plan.baseline, *plan.stack])}
        for left_out in plan.stack:
            phrases[f"without {left_out}"] = " + ".join([plan.baseline, *(one for one in plan.stack if one != left_out)])
        return phrases
    if plan.design == "fractional":
        return {name or BASELINE: " + ".join(filter(None, [plan.baseline, name])) for name in fraction_of(plan).names()}
    arms = [*plan.arms, *(name for pair in plan.interactions for name in interaction_arms(pair))]
    return {BASELINE: plan.baseline, **{arm: f"{plan.baseline} + {arm}" for arm in dict.fromkeys(arms)}}
