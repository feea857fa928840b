"""The arms of a plan, and the proof that each changes only what its levers declare."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from fulcrum.judge.design import BASELINE, at_scale, fraction_of, interaction_arms
from fulcrum.levers.base import Lever
from fulcrum.spec.edit import diff, get, inside
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue, Phrase, ask, parse
from fulcrum.spec.record import Change, Filler, slot_of
from fulcrum.spec.remark import Remark, remark
from fulcrum.spec.run import RunSpec
from fulcrum.studies.plan import BasedArm, InsteadArm, Plan

# --------------------------------------------------------------------------------------------------
# The design of a study: which arms a plan asks for, and what each is held against.


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


def trunks(plan: Plan) -> dict[str, Wanted]:
    """Scale -> the run that its arms branch from."""
    if plan.trunk is None:
        return {}
    runs = {}
    for scale in plan.scales or (None,):
        label = scale.name if scale else ""
        settings = (
            *plan.settings,
            *(scale.settings if scale else ()),
            f"budget.images={plan.trunk_images}",
        )
        runs[label] = Wanted(at_scale("trunk", label), plan.trunk, "", label, settings)
    return runs


class _Held(NamedTuple):
    phrase: str
    against: str = BASELINE


def _phrases(plan: Plan) -> dict[str, _Held]:
    """Arm -> what it is and is held against, at one scale; the baseline first, every other base
    before its arms."""
    if plan.design == "leave_one_out":
        arms = {BASELINE: _Held(" + ".join([plan.baseline, *plan.stack]))}
        for left_out in plan.stack:
            rest = (one for one in plan.stack if one != left_out)
            arms[f"without {left_out}"] = _Held(" + ".join([plan.baseline, *rest]))
        return arms
    if plan.design == "fractional":
        names = fraction_of(plan).names()
        return {
            name or BASELINE: _Held(" + ".join(filter(None, [plan.baseline, name])))
            for name in names
        }
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


# --------------------------------------------------------------------------------------------------
# Proof that every arm differs from its baseline in what its levers declare, and in nothing else.


class Arm(NamedTuple):
    """An arm of a study, resolved."""

    name: str
    phrase: Phrase
    run: RunSpec
    changes: list[Change]
    compound: bool  # more than one decision: its effect belongs to them together
    against: str = BASELINE  # name of its baseline; a baseline is held against itself
    scale: str = ""
    added: tuple[Any, ...] = ()  # levers that the baseline has not
    removed: tuple[Any, ...] = ()  # levers that only the baseline has
    labels: tuple[Remark, ...] = ()  # what a reader must know before believing its effect

    @property
    def levers(self) -> tuple[Lever, ...]:
        return self.phrase.levers

    @property
    def is_baseline(self) -> bool:
        return self.name == self.against


def prove(plan: Plan, catalogue: Catalogue) -> list[Arm]:
    """Every arm of the plan with its proven difference, the baseline first."""
    arms: list[Arm] = []
    for asked in wanted(plan):
        arm = _resolve(asked, _parsed(asked, catalogue), arms)
        _check(arm, arms, plan)
        # each lever has an effect
        arms.append(arm._replace(compound=False) if plan.design == "fractional" else arm)
    return arms


def prove_levers(plan: Plan, catalogue: Catalogue) -> list[Arm]:
    """Every lever of a fractional design alone on the baseline, with its proven difference; refused
    with both names where two cannot be in one run, as every pair is in some combination."""
    if plan.design != "fractional":
        return []
    first = wanted(plan)[0]
    base, levers = _resolve(first, _parsed(first, catalogue), ()), list[Arm]()
    for lever in plan.stack:
        asked = first._replace(name=lever, phrase=f"{plan.baseline} + {lever}")
        try:
            arm = _resolve(asked, parse(asked.phrase, catalogue, asked.settings), [base])
        except BadInput as error:
            raise BadInput(
                f"the lever '{lever}' alone, which is '{asked.phrase}': {error.message}",
                error.hint
                or "in a fraction every lever is also without the others; two that need each other "
                "are one: 'a + b'",
            ) from None
        _check(arm, [base, *levers], plan)
        levers.append(arm)
    for one, other in combinations(plan.stack, 2):
        try:
            parse(f"{plan.baseline} + {one} + {other}", catalogue, first.settings)
        except BadInput as error:
            raise BadInput(
                f"'{one}' and '{other}' cannot be in one run, and in a fraction every two are:"
                f" {error.message}",
                "leave one of them out of the stack, or give it a plan of its own",
            ) from None
    return levers


def _parsed(asked: Wanted, catalogue: Catalogue) -> Phrase:
    """The phrase, read; what is wrong with it is said with the arm that it belongs to."""
    try:
        return parse(asked.phrase, catalogue, asked.settings)
    except BadInput as error:
        if asked.name == asked.against:
            raise BadInput(f"the baseline '{asked.phrase}': {error.message}", error.hint) from None
        hint = (
            "an arm adds to the baseline what the baseline has not"
            if "named twice" in error.message
            else error.hint
        )
        raise BadInput(
            f"the arm '{asked.name}', which is '{asked.phrase}': {error.message}", hint
        ) from None


def baseline_of(arm: Arm, arms: Sequence[Arm]) -> Arm:
    return next(one for one in arms if one.name == arm.against)


def bases_of(arm: Arm, arms: Sequence[Arm]) -> list[Arm]:
    """What an arm is held against, what that is held against, and so on to the baseline of its
    scale, which has none."""
    bases = list[Arm]()
    while not arm.is_baseline:
        arm = baseline_of(arm, arms)
        bases.append(arm)
    return bases


def against(run: RunSpec, arm: Arm, base: RunSpec) -> Arm:
    """The same arm with another run, as tuning gives it; its difference is told anew."""
    return arm._replace(run=run, changes=diff(base, run))


def _resolve(asked: Wanted, phrase: Phrase, before: Sequence[Arm]) -> Arm:
    base = next((arm for arm in before if arm.name == asked.against), None)
    if base is None:
        return Arm(asked.name, phrase, phrase.run, [], False, asked.against, asked.scale)
    own, former = (_named(one) for one in (phrase, base.phrase))
    added = tuple(lever for text, lever in own.items() if text not in former)
    removed = tuple(lever for text, lever in former.items() if text not in own)
    changes = diff(base.run, phrase.run)
    carried = _not_carried(base.run, phrase.run, changes)
    return Arm(
        asked.name,
        phrase,
        phrase.run,
        changes,
        # one lever in the place of another is one decision
        max(len(added), len(removed)) > 1 or bool(carried),
        asked.against,
        asked.scale,
        added,
        removed,
        tuple(
            carried
            + _labels(base.run, phrase.run)
            + [
                remark("lever-in-run", text, lever=lever.name)
                for lever in added
                if (text := ask(lever, "in_run", phrase.run))
            ]
        ),
    )


def _named(phrase: Phrase) -> dict[str, Any]:
    return {str(lever): lever for lever in phrase.levers}


def _not_carried(base: RunSpec, run: RunSpec, changes: Sequence[Change]) -> list[Remark]:
    """A filler of another kind that gives a setting of the old one another value: two decisions in
    one."""
    return [
        remark(
            "also-moves",
            f"also moves {path}.{name} from {before} to {after}",
            path=f"{path}.{name}",
        )
        for path, _, _ in changes
        for name, before, after in _unlike(_filler(base, path), _filler(run, path))
    ]


def moves_optimizer(label: Remark) -> bool:
    return label.code == "also-moves" and str(label.values["path"]).startswith("optim.")


def _filler(run: RunSpec, path: str) -> Filler | None:
    try:
        value = get(run, path)
    except BadInput:  # one side may have nothing there
        return None
    return value if isinstance(value, Filler) else None


def _unlike(one: Filler | None, other: Filler | None) -> list[tuple[str, Any, Any]]:
    """Settings that two fillers of different kinds share by name, with different values; what every
    filler of the seam has (a codec's stride) says which filler it is, and is no setting of its
    own."""
    if one is None or other is None or one.kind == other.kind:
        return []
    own = set(slot_of(one).model_fields) | {"name"}
    shared = (type(one).model_fields.keys() & type(other).model_fields.keys()) - own
    return [
        (name, getattr(one, name), getattr(other, name))
        for name in sorted(shared)
        if getattr(one, name) != getattr(other, name)
    ]


def _labels(base: RunSpec, run: RunSpec) -> list[Remark]:
    labels = list[Remark]()
    if (
        run.data.caption != base.data.caption
        and run.sample.prompts == base.sample.prompts != run.data.caption
    ):
        text = f"is trained on {run.data.caption} and judged by prompts of {run.sample.prompts}"
        labels.append(remark("prompts-unlike-captions", text))
    if run.encode.codec.trained != base.encode.codec.trained:
        text = (
            "encodes pictures in every step where the other side reads cached latents: its time"
            " says so"
        )
        labels.append(remark("encodes-every-step", text))
    return labels


def unequal(arms: Sequence[Arm]) -> list[Remark]:
    """Arms that fill one seam with unlike settings of the same name: between them two things
    differ."""
    found = list[Remark]()
    for number, one in enumerate(arms):
        for other in arms[number + 1 :]:
            if one.against != other.against or one.is_baseline or other.is_baseline:
                continue
            for path in sorted(
                {change.path for change in one.changes} & {change.path for change in other.changes}
            ):
                found += [
                    remark(
                        "arms-unequal",
                        f"{one.name} and {other.name} differ in {path} and in its '{name}' ({mine}"
                        f" and {yours}): compare each with the baseline, not with the other.",
                        arms=[one.name, other.name],
                        path=f"{path}.{name}",
                    )
                    for name, mine, yours in _unlike(
                        _filler(one.run, path), _filler(other.run, path)
                    )
                ]
    return found


def _check(arm: Arm, before: Sequence[Arm], plan: Plan) -> None:
    if not arm.is_baseline:
        if not arm.changes:
            raise BadInput(
                f"the arm '{arm.name}' is the baseline: it changes nothing",
                "leave it out of the plan",
            )
        declared = tuple(slot for lever in (*arm.added, *arm.removed) for slot in lever.touches)
        stray = [change.path for change in arm.changes if not inside(change.path, declared)]
        if stray:  # each lever alone was checked when the phrase was read
            raise BadInput(
                f"the arm '{arm.name}' changes {', '.join(stray)}, which its levers do not declare",
                "an effect must belong to its levers: do they change more together than each"
                " alone?",
            )
        guided = [change.path for change in arm.changes if inside(change.path, ("sample.guide",))]
        if guided and plan.guidance == "shared":
            raise BadInput(
                f"the arm '{arm.name}' changes {', '.join(guided)}, and the plan's guidance is"
                " shared",
                'if guidance is what you study, write guidance = "per_arm": the report will'
                " label it",
            )
    same = [other.name for other in before if other.run == arm.run]
    if same:
        raise BadInput(
            f"the arms '{same[0]}' and '{arm.name}' are the same run", "leave one of them out"
        )
