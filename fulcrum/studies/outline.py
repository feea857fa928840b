"""A plan in words, for a terminal."""

import re
from collections import Counter
from collections.abc import Iterator

from fulcrum.judge.card import METRICS
from fulcrum.judge.design import BASELINE, at_scale, fraction_of
from fulcrum.judge.fraction import alias_strings, alias_words, named
from fulcrum.judge.looks import spending
from fulcrum.judge.power import one_at_a_time
from fulcrum.judge.sequence import enough_points
from fulcrum.judge.statistics import pairs_needed
from fulcrum.measure.evaluation import can_measure
from fulcrum.spec.errors import shown
from fulcrum.spec.progress import clock
from fulcrum.spec.record import Change
from fulcrum.spec.words import in_brief
from fulcrum.studies.arms import Arm, baseline_of
from fulcrum.studies.cell import Layout
from fulcrum.studies.estimate import Estimate, judged_together
from fulcrum.studies.judging import telling_share
from fulcrum.studies.plan import Plan, Sweep
from fulcrum.studies.runner import Room

# --------------------------------------------------------------------------------------------------
# A fractional plan in words, for a terminal: its combinations, what cannot be told apart, what it
# can see.


def combination_lines(plan: Plan) -> Iterator[str]:
    """Levers down, combinations across, the baseline first."""
    table = fraction_of(plan)
    width = max(map(len, table.levers))
    yield (
        f"  {len(table.on)} of {2 ** len(table.levers)} combinations, x where a lever is on; the"
        " first is the baseline"
    )
    for lever, column in zip(table.levers, table.on.T, strict=True):
        yield f"      {lever:<{width}}  " + " ".join("x" if on else "." for on in column)
    yield from (f"  {sentence}" for sentence in alias_words(table))
    others = alias_strings(table)[len(table.chosen) :]
    if others:
        yield "  of the other pairs, those in a line cannot be told apart"
        yield from ("      " + " = ".join(map(named, string)) for string in others)


def sight_lines(plan: Plan, estimate: Estimate) -> Iterator[str]:
    """What the fraction can see, beside one lever at a time."""
    combinations, levers = fraction_of(plan).on.shape
    seeds, cells = len(plan.seeds), combinations * len(plan.seeds)
    with_these = (
        f"{combinations} combinations under {seeds} seeds and {levers} levers judged together at"
        f" {plan.alpha:g}"
    )
    if estimate.scatters is None:
        yield (
            f"  with {with_these}, no effect gets a verdict in four studies of five: name more"
            " seeds"
        )
        return
    if estimate.detectable is None:
        yield f"  {estimate.noise}"
        size = f"{estimate.scatters:.2g} times the scatter of cells about their seed"
    else:
        size = f"{estimate.detectable:.2g} on {plan.primary}"
    yield (
        f"  with {with_these}, a lever's true effect of {size} gets its verdict in four studies of"
        " five;"
    )
    if plan.interactions:
        yield "  what a chosen pair does beyond the sum of its levers must be about twice as large"
    if estimate.detectable is not None:
        yield f"  {estimate.noise}, which makes it smaller"
    alone, visible = one_at_a_time(plan)
    sees = (
        f"see only effects {visible / estimate.scatters:.1f} times as large"
        if visible
        else "decide nothing"
    )
    yield f"  one lever at a time, as many cells ({cells}) are {alone} seeds of each, and {sees}"
    if seeds < pairs_needed(plan.alpha):
        yield (
            f"  note: {seeds} seeds decide by normal theory, on the scatter of all levers together;"
            f" {pairs_needed(plan.alpha)} need no such assumption"
        )


# --------------------------------------------------------------------------------------------------
# A plan in words, for a terminal: what will run, how the arms differ, what it costs, what it can
# see.


KINDS = {
    "trunk": ("trunk", "trunks"),
    "rate": ("try of a learning rate", "tries of learning rates"),
}


def outline(plan: Plan, layout: Layout, estimate: Estimate, space: Room) -> str:
    return "\n".join(
        [
            f"{shown(plan.title)} (plan {plan.hash})",
            *_what(plan, layout, estimate),
            "",
            "levers" if layout.levers else "arms",
            *_arms(plan, layout),
            "",
            "cost",
            *_cost(plan, estimate, space),
            "",
            "what it can see",
            *_sight(plan, layout, estimate),
        ]
    )


def _what(plan: Plan, layout: Layout, estimate: Estimate) -> Iterator[str]:
    scales, run = len(plan.scales) or 1, layout.arms[0].run
    arms = f"{len(layout.arms) // scales} {'combinations' if layout.levers else 'arms'}"
    arms += f" at {scales} scales" if scales > 1 else ""
    seeds, cells = str(len(plan.seeds)), str(estimate.cells)
    if plan.looks:
        seeds, cells = (
            f"{plan.looks[0]} to {seeds}",
            f"{len(layout.arms) * plan.looks[0]} to {cells}",
        )
    yield (
        f"{arms} x {seeds} paired seeds = {cells} cells of {run.budget.images:,} images; "
        f"{estimate.finished or 'none'} {'is' if estimate.finished == 1 else 'are'} finished"
    )
    if plan.looks:
        spent = zip(plan.looks, spending(plan.looks, plan.alpha), strict=True)
        yield "an arm gets more seeds only while it is undecided: looks at " + ", ".join(
            f"{pairs} pairs (error spent: {level:.3f})" for pairs, level in spent
        )
    for kind, times in Counter(cell.kind for cell in layout.before).items():
        images = next(cell.run.budget.images for cell in layout.before if cell.kind == kind)
        if isinstance(plan.learning_rates, Sweep) and kind == "rate":
            images = round(plan.learning_rates.share * run.budget.images)
        yield f"before them {times} {KINDS[kind][times > 1]} of about {images:,} images"
    yield (
        f"trained on {in_brief(run.data.source)}, captions read by {in_brief(run.encode.text)}"
        + (f"; set for every arm: {', '.join(map(shown, plan.settings))}" if plan.settings else "")
    )
    if plan.trunk is not None:
        yield (
            f"every arm begins from its seed's trunk, '{plan.trunk}': the effects are those of a"
            " late change"
        )
    if plan.design == "fractional":
        yield (
            "a lever's effect is the mean of all combinations with it, minus the mean of those"
            " without it"
        )
    if plan.design == "leave_one_out":
        yield (
            "every arm lacks one lever of the baseline's stack: a lever that helps makes its arm"
            " worse"
        )
    shares = ", ".join(f"{share:.0%}" for share in plan.evaluations)
    yield (
        f"judged on {plan.primary} ({METRICS[plan.primary].better} is better) of {plan.samples:,}"
        " pictures"
        + (f", drawn at {shares} of the budget" if len(plan.evaluations) > 1 else "")
        + f"; a difference that stays below {_margin(plan)} counts as a tie"
    )
    usual = Plan.model_fields["primary"].default
    if not can_measure(run, usual):
        yield (
            f"{usual}, the usual primary metric, asks what is seen where: these pictures do not"
            " tell"
        )
    yield "learning rates: " + (
        "the recipe's for every arm; nothing is tuned"
        if plan.rate_policy == "shared"
        else plan.rate_policy
    )
    yield from _never_stopped(plan, layout.arms)


def _never_stopped(plan: Plan, arms: list[Arm]) -> Iterator[str]:
    """Arms that `stop_early` can never end: too few evaluations before the end tell of it."""
    if plan.stop_early is None:
        return
    points, compared = plan.stop_early.successive, [arm for arm in arms if not arm.is_baseline]
    shares = {arm.name: telling_share(arm.run, baseline_of(arm, arms).run) for arm in compared}
    never = [
        name
        for name, share in shares.items()
        if not enough_points(plan.evaluations[:-1], share, points)
    ]
    if never:
        yield (
            "note: stop_early can never end"
            f" {', '.join(never) if len(never) < len(compared) else 'an arm'}: fewer than {points}"
            " of `evaluations` lie between where the learning rate begins to decay and the end,"
            " and earlier ones do not count; name more of them there, or a smaller `successive`"
        )


def _margin(plan: Plan) -> str:
    if plan.smallest_effect is not None:
        return f"{plan.smallest_effect:g}"
    return f"{plan.margin_deviations:g} of the baseline's own deviation over seeds"


def _arms(plan: Plan, layout: Layout) -> Iterator[str]:
    """Every arm with its proven difference; at further scales only what is not as at the first."""
    if plan.design == "fractional":
        for arm in (layout.arms[0], *layout.levers):
            yield from _arm(arm, arm.name)
        yield from combination_lines(plan)
        return
    if plan.scales:
        yield "  each at " + ", ".join(
            f"{scale.name} ({', '.join(scale.settings)})" for scale in plan.scales
        )
    shown_changes: dict[str, list[Change]] = {}
    for arm in layout.arms:
        name = arm.name.removesuffix(f" [{arm.scale}]")
        if shown_changes.get(name) == arm.changes:
            continue
        yield from _arm(arm, name if name not in shown_changes else arm.name)
        shown_changes.setdefault(name, arm.changes)


def _arm(arm: Arm, name: str) -> Iterator[str]:
    notes = ["compound: more than one decision"] * arm.compound
    notes += [f"compared with {arm.against}"] * (arm.against != at_scale(BASELINE, arm.scale))
    yield f"  {name}: {arm.phrase}" + (f"  ({'; '.join(notes)})" if notes else "")
    yield from (f"      {change.path}: {_change(change)}" for change in arm.changes)
    yield from (f"      note: {label.text}" for label in arm.labels)


def _change(change: Change) -> str:
    """'adamw -> muon(momentum=0.95)': of two fillers only the settings that are not the same."""
    before, after = (_parts(side) for side in (change.before, change.after))
    if before is None or after is None:
        return " -> ".join(
            "nothing" if side is None else str(side) for side in (change.before, change.after)
        )
    shared = {setting for setting in before[1] if setting in after[1]}
    sides = []
    for kind, settings in (before, after):
        own = [setting for setting in settings if setting not in shared]
        sides.append(f"{kind}({', '.join(own)})" if own else kind)
    return " -> ".join(sides) + (", the rest alike" if shared else "")


def _parts(value: object) -> tuple[str, list[str]] | None:
    """Kind and settings of a filler's text; None where it is no plain one."""
    match = re.fullmatch(r"(\w+)\(([^()\[\]]+)\)", value) if isinstance(value, str) else None
    return (match[1], match[2].split(", ")) if match else None


def _cost(plan: Plan, estimate: Estimate, space: Room) -> Iterator[str]:
    most = "at most " if plan.looks else ""  # where every arm stays undecided to the last look
    yield (
        f"  {most}{estimate.flops:.3g} FLOPs of training in all; {estimate.images:,} images are"
        " left to train on"
    )
    if estimate.seconds is not None:
        reckoned = "eager" in estimate.by  # finished cells tell all that they took
        what = " of training and drawing" if reckoned else ""
        yield (
            f"  {most}about {clock(estimate.seconds / space.lanes)}{what} left, {space}; reckoned"
            f" from {estimate.by}"
        )
        if reckoned:
            yield (
                "  encoding, starting processes and measuring come on top: minutes, and most of a"
                " short study"
            )


def _sight(plan: Plan, layout: Layout, estimate: Estimate) -> Iterator[str]:
    if plan.design == "fractional":
        yield from sight_lines(plan, estimate)
        return
    pairs, least = len(plan.seeds), pairs_needed(plan.alpha)
    family = judged_together(plan, layout)
    with_these = f"with {pairs} pairs and {family[0]} {'arm' if family[0] == 1 else 'arms'}"
    with_these += (
        f" on {len(family)} metrics" if len(family) > 1 else ""
    ) + f" judged together at {plan.alpha:g}"
    with_these += ", looked at once" if plan.looks else ""
    if pairs < least:
        yield (
            f"  note: {pairs} pairs cannot reach significance at {plan.alpha:g}; {least} can. The"
            " report will show intervals, and its verdicts will be tie or inconclusive"
        )
        return
    if estimate.scatters is None:
        yield (
            f"  {with_these}, no difference gets a verdict in four studies of five: name more seeds"
        )
        return
    if estimate.detectable is None:
        yield f"  {estimate.noise}"
        yield (
            f"  {with_these}, a true difference of {estimate.scatters:.2g} times the scatter of the"
            " paired differences gets its verdict in four studies of five;"
        )
        if plan.smallest_effect is not None:
            yield (
                f"  {plan.smallest_effect:g} on {plan.primary} is seen if the paired differences"
                " have a standard deviation of at most"
                f" {plan.smallest_effect / estimate.scatters:.2g}"
            )
        return
    yield (
        f"  {with_these}, a true difference of {estimate.detectable:.2g} on {plan.primary} gets its"
        " verdict in four studies of five;"
    )
    yield f"  {estimate.noise}, which makes it smaller"
    if plan.smallest_effect is not None and estimate.detectable > plan.smallest_effect:
        yield (
            f"  that is more than the {plan.smallest_effect:g} of interest: what lies between may"
            " end as inconclusive; more seeds see more"
        )
