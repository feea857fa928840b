"""Proof that every arm differs from the baseline in what its levers declare, and in nothing else."""

from typing import NamedTuple

from fulcrum.levers.base import Lever
from fulcrum.spec.edit import Change, diff, inside
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue, Phrase, parse
from fulcrum.spec.run import RunSpec
from fulcrum.study.plan import Plan


class Arm(NamedTuple):
    """An arm of a study, resolved."""

    name: str
    phrase: Phrase
    run: RunSpec
    changes: list[Change]
    compound: bool                                           # more than one lever: its effect belongs to them together

    @property
    def levers(self) -> tuple[Lever, ...]:
        return self.phrase.levers


def prove(plan: Plan, catalogue: Catalogue) -> list[Arm]:
    """Every arm of the plan with its proven difference, the baseline first."""
    settings = [*plan.settings, *([f"budget.images={plan.images}"] if plan.images is not None else [])]
    arms: list[Arm] = []
    base: RunSpec | None = None
    for name, text in plan.phrases().items():
        phrase = parse(text, catalogue, settings)
        base = phrase.run if base is None else base
        changes = diff(base, phrase.run)
        arm = Arm(name, phrase, phrase.run, changes, compound=_added(phrase, arms) > 1)
        if arms:
            _check(arm, arms)
        arms.append(arm)
    return arms


def _added(phrase: Phrase, arms: list[Arm]) -> int:
    return len(phrase.levers) - (len(arms[0].levers) if arms else 0)


def _check(arm: Arm, before: list[Arm]) -> None:
    if not arm.changes:
        raise BadInput(f"the arm '{arm.name}' is the baseline: it changes nothing", "leave it out of the plan")
    declared = tuple(slot for lever in arm.levers for slot in lever.touches)
    stray = [change.path for change in arm.changes if not inside(change.path, declared)]
    if stray:                                                # each lever alone was checked when the phrase was read
        raise BadInput(f"the arm '{arm.name}' changes {', '.join(stray)}, which its levers do not declare",
                       "an effect must belong to its levers: do they change more together than each alone?")
    same = [other.name for other in before if other.run == arm.run]
    if same:
        raise BadInput(f"the arms '{same[0]}' and '{arm.name}' are the same run", "leave one of them out")
