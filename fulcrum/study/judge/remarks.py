"""What a reader must know before believing a study's effects, in sentences."""

from collections.abc import Sequence

from fulcrum.report.finding import RateSearch
from fulcrum.study.judge.pairing import Measurements, may_differ, other_loss
from fulcrum.study.judge.statistics.rank import pairs_needed
from fulcrum.study.plan.arms import Arm, baseline_of, bases_of, unequal
from fulcrum.study.plan.plan import Plan


def remarks(plan: Plan, arms: Sequence[Arm], searches: Sequence[RateSearch] = ()) -> list[str]:
    """What a reader must know before believing the effects."""
    lines = [*_rates(plan, searches)]
    if len(plan.seeds) < pairs_needed(plan.alpha) and plan.design != "fractional":
        lines.append(
            f"{len(plan.seeds)} pairs cannot reach significance at {plan.alpha:g}: it takes "
            f"{pairs_needed(plan.alpha)}. Read the intervals, not the verdicts."
        )
    lines += [f"{arm.name}: {lever.card.warns}" for arm in arms for lever in arm.added if lever.card.warns]
    for arm in arms:
        count = len(arm.added) + len(arm.removed)
        if arm.compound and count > 1:
            lines.append(f"{arm.name} is a compound of {count} levers: its effect belongs to them together.")
        lines += [f"{arm.name} {label}." for label in arm.labels]
    lines += [
        f"{arm.name} is compared with {arm.against}, not with the baseline: its effect is the difference to that."
        for arm in arms
        if len(bases_of(arm, arms)) > 1
    ]
    apart = [arm.name for arm in arms if other_loss(arm, baseline_of(arm, arms))]
    lines += (
        [
            f"The validation loss of {', '.join(apart)} is not compared: the objective, the latent space or the prompts "
            "are not those of what it would be compared with."
        ]
        if apart
        else []
    )
    labelled = {arm.name: may_differ(arm) for arm in arms if may_differ(arm)}
    lines += [
        f"{name} is evaluated with other {', '.join(fields)} than what it is compared with."
        for name, fields in labelled.items()
    ]
    lines += unequal(arms)
    if plan.design == "leave_one_out":
        lines.append(
            "Each arm is the whole stack without one lever: a lever that helps makes its arm worse. Published "
            "claims are about adding a lever to a plain recipe, and are not held against this."
        )
    if plan.design == "fractional":
        lines.append(
            "A lever's effect is its mean over the settings of the others: published claims are about adding it to a plain "
            "recipe, and are not held against this. Effects at equal time or FLOPs are not read off a fraction."
        )
    if plan.trunk is not None:
        lines.append(
            f"All arms branch from '{plan.trunk}' trained for {plan.trunk_images:,} images with the same seed: the "
            "effects are those of a late change, not of training with it from the start."
        )
    return lines


def disturbed(measured: Measurements) -> list[str]:
    """Cells that are not the trainings that were asked for: steps of theirs were left out, or they were rolled back."""
    lines = []
    for arm, cells in measured.items():
        for seed, cell in sorted(cells.items()):
            result = cell.get("result", {})
            backs, skipped = len(result.get("rolled_back") or ()), result.get("skipped") or 0
            if backs or skipped:
                rolled = f" and it was rolled back {backs} time{'s' * (backs > 1)}" if backs else ""
                lines.append(
                    f"{arm}, seed {seed}: {skipped} of its steps were left out{rolled}; its pair counts all the same."
                )
    return lines


def _rates(plan: Plan, searches: Sequence[RateSearch]) -> list[str]:
    if isinstance(plan.learning_rates, str):
        return [
            f"Learning rates: {plan.learning_rates}. Every arm ran at the recipe's rate; no arm was tuned, so a "
            "verdict on an optimizer or a precision holds at this rate only."
        ]
    lines = [
        f"Learning rates: {plan.learning_rates}; the validation loss has seen this choice, the other metrics have not."
    ]
    edge = [search.arm for search in searches if search.note]
    return lines + (
        [f"The best rate of {', '.join(edge)} lies at the edge of the sweep: a wider one may find a better."]
        if edge
        else []
    )
