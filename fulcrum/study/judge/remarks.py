"""What a reader must know before believing a study's effects, as remarks."""

from collections.abc import Sequence

from fulcrum.judge.schema import RateSearch
from fulcrum.judge.statistics import pairs_needed
from fulcrum.spec.remark import Remark, remark
from fulcrum.study.judge.pairing import Measurements, may_differ, other_loss
from fulcrum.study.plan.arms import Arm, baseline_of, bases_of, unequal
from fulcrum.study.plan.plan import Plan


def remarks(plan: Plan, arms: Sequence[Arm], searches: Sequence[RateSearch] = ()) -> list[Remark]:
    """What a reader must know before believing the effects."""
    found = _rates(plan, searches)
    needed = pairs_needed(plan.alpha)
    if len(plan.seeds) < needed and plan.design != "fractional":
        text = (
            f"{len(plan.seeds)} pairs cannot reach significance at {plan.alpha:g}: it takes "
            f"{needed}. Read the intervals, not the verdicts."
        )
        found.append(remark("too-few-seeds", text, pairs=len(plan.seeds), needed=needed))
    found += [
        remark("lever-warns", f"{arm.name}: {lever.card.warns}", arm=arm.name, lever=lever.name)
        for arm in arms
        for lever in arm.added
        if lever.card.warns
    ]
    for arm in arms:
        count = len(arm.added) + len(arm.removed)
        if arm.compound and count > 1:
            text = f"{arm.name} is a compound of {count} levers: its effect belongs to them together."
            found.append(remark("compound", text, arm=arm.name, levers=count))
        found += [remark(label.code, f"{arm.name} {label.text}.", arm=arm.name, **label.values) for label in arm.labels]
    found += [
        remark(
            "other-base",
            f"{arm.name} is compared with {arm.against}, not with the baseline: its effect is the difference to that.",
            arm=arm.name,
            against=arm.against,
        )
        for arm in arms
        if len(bases_of(arm, arms)) > 1
    ]
    apart = [arm.name for arm in arms if other_loss(arm, baseline_of(arm, arms))]
    if apart:
        text = (
            f"The validation loss of {', '.join(apart)} is not compared: the objective, the latent space or the prompts "
            "are not those of what it would be compared with."
        )
        found.append(remark("loss-not-compared", text, arms=apart))
    found += [
        remark(
            "evaluated-otherwise",
            f"{arm.name} is evaluated with other {', '.join(fields)} than what it is compared with.",
            arm=arm.name,
            fields=list(fields),
        )
        for arm in arms
        if (fields := may_differ(arm))
    ]
    return [*found, *unequal(arms), *_design(plan)]


def _design(plan: Plan) -> list[Remark]:
    """What a plan's design does to the meaning of its effects."""
    found = list[Remark]()
    if plan.design == "leave_one_out":
        text = (
            "Each arm is the whole stack without one lever: a lever that helps makes its arm worse. Published "
            "claims are about adding a lever to a plain recipe, and are not held against this."
        )
        found.append(remark("leave-one-out", text))
    if plan.design == "fractional":
        text = (
            "A lever's effect is its mean over the settings of the others: published claims are about adding it to a plain "
            "recipe, and are not held against this. Effects at equal time or FLOPs are not read off a fraction."
        )
        found.append(remark("fractional", text))
    if plan.trunk is not None:
        text = (
            f"All arms branch from '{plan.trunk}' trained for {plan.trunk_images:,} images with the same seed: the "
            "effects are those of a late change, not of training with it from the start."
        )
        found.append(remark("late-change", text, trunk=plan.trunk, images=plan.trunk_images))
    return found


def disturbed(measured: Measurements) -> list[Remark]:
    """Cells that are not the trainings that were asked for: steps of theirs were left out, or they were rolled back."""
    found = []
    for arm, cells in measured.items():
        for seed, cell in sorted(cells.items()):
            result = cell.get("result", {})
            backs, skipped = len(result.get("rolled_back") or ()), result.get("skipped") or 0
            if backs or skipped:
                rolled = f" and it was rolled back {backs} time{'s' * (backs > 1)}" if backs else ""
                text = f"{arm}, seed {seed}: {skipped} of its steps were left out{rolled}; its pair counts all the same."
                found.append(remark("disturbed", text, arm=arm, seed=seed, skipped=skipped, rolled_back=backs))
    return found


def _rates(plan: Plan, searches: Sequence[RateSearch]) -> list[Remark]:
    if isinstance(plan.learning_rates, str):
        text = (
            f"Learning rates: {plan.learning_rates}. Every arm ran at the recipe's rate; no arm was tuned, so a "
            "verdict on an optimizer or a precision holds at this rate only."
        )
        return [remark("rates-not-tuned", text, policy=plan.learning_rates)]
    text = f"Learning rates: {plan.learning_rates}; the validation loss has seen this choice, the other metrics have not."
    found = [remark("rates-swept", text)]
    if edge := [search.arm for search in searches if search.note]:
        text = f"The best rate of {', '.join(edge)} lies at the edge of the sweep: a wider one may find a better."
        found.append(remark("best-rate-at-edge", text, arms=edge))
    return found
