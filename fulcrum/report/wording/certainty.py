"""How far a reader may trust a comparison: its level, its pairs, what failed, what scatters, what could have been seen."""

import math

from fulcrum.report.arm_result import ArmResult
from fulcrum.report.finding import Effect
from fulcrum.report.schema import StudyResult
from fulcrum.report.wording import number

LOOKED = ("decided at ", "stopped at ", "undecided at ", "undecided after ")  # how notes on a look begin


def question(result: StudyResult) -> str:
    """What the plan set out to decide, and what the rest is; empty where nothing is exploratory."""
    if not any(row.exploratory for row in result.effects):
        return ""
    joint = any(not row.exploratory and row.metric != result.primary.name for row in result.effects)
    asked = "every metric, in one joint test over arms and metrics," if joint else "the primary metric"
    return (
        f"The plan's question is {asked} at equal images; everything else is exploratory, for reading: where nothing "
        "is true, some of so many intervals still miss zero."
    )


def level(result: StudyResult) -> str:
    """'95 %': the one level of all intervals of a study, which is the plan's."""
    return f"{number.plain(round(100 * (1 - result.plan.alpha), 6))} %"


def tie_level(result: StudyResult) -> str:
    """'90 %': of the interval that a tie is asked of, as equivalence tests at the plan's level take it."""
    return f"{number.plain(round(100 * (1 - 2 * result.plan.alpha), 6))} %"


def pairs(effect: Effect) -> str:
    """'6 pairs'; '4 of 6 pairs' where the plan asks for more."""
    of = f" of {effect.planned}" if effect.n < effect.planned else ""
    return f"{effect.n}{of} pair" + ("" if effect.n == 1 and not of else "s")


def fewest(result: StudyResult) -> int:
    """The fewest pairs whose sign flips can give a p as small as the plan asks: the smallest of n pairs is 2 / 2^n. A plan
    that takes fewer seeds of a fraction is decided without sign flips."""
    if result.fraction is not None and len(result.plan.seeds) < math.ceil(1 - math.log2(result.plan.alpha)):
        return 2
    return math.ceil(1 - math.log2(result.plan.alpha))


def too_few(result: StudyResult, effect: Effect) -> str:
    """'5 pairs cannot be decided (p ≥ 0.062): one more seed can'; empty where pairs are enough."""
    missing = fewest(result) - effect.n
    if effect.n < 1 or missing < 1:
        return ""
    more = "one more seed" if missing == 1 else f"{missing} more seeds"
    floor = number.probability(2.0 ** (1 - effect.n))
    pair = "1 pair" if effect.n == 1 else f"{effect.n} pairs"
    return f"{pair} cannot be decided (p ≥ {floor}): {more} can"


def failures(result: StudyResult, arm: ArmResult) -> str:
    """'2 of 6 seeds failed'; empty where none did."""
    failed, total = arm.count("failed"), len(arm.cells) - arm.count("stopped")  # without seeds that it was spared
    effect = result.effect(arm.name, result.primary.name)
    if not failed and effect is not None:
        failed, total = effect.failed, max(effect.planned, effect.n + effect.failed)
    return f"{failed} of {total} seeds failed" if failed else ""


def survivors(result: StudyResult, arm: ArmResult) -> str:
    """What the seeds are that are left of an arm some of whose seeds failed."""
    failed, effect = failures(result, arm), result.effect(arm.name, result.primary.name)
    if not failed or effect is None or not effect.n:
        return ""
    left = "the one that is" if effect.n == 1 else f"the {effect.n} that are"
    return f"{failed}; {left} compared survived, and survivors alone never make an arm better, nor a tie."


def reasons(arm: ArmResult) -> list[tuple[str, str]]:
    """(which seeds, why they failed): ('2, 5', 'the loss was not finite')."""
    by: dict[str, list[int]] = {}
    for cell in arm.cells:
        if cell.state == "failed":
            by.setdefault(cell.failure or "no reason was recorded", []).append(cell.seed)
    return [(", ".join(map(str, seeds)), why) for why, seeds in by.items()]


def failed_cells(result: StudyResult) -> str:
    """'8 cells failed'"""
    failed = sum(arm.count("failed") for arm in result.arms)
    return f"{failed} cell{'' if failed == 1 else 's'} failed"


def look(effect: Effect) -> str:
    """Where a plan that decides at several looks ended an arm, as its judge noted it: 'decided at 12 of 16 pairs'."""
    return next((part for part in notes(effect) if part.startswith(LOOKED)), "")


def seeds(result: StudyResult) -> str:
    """'6 paired seeds'; '8 to 16 paired seeds' where the plan adds them while an arm is undecided."""
    first = f"{result.plan.looks[0]} to " if result.plan.looks[1:] else ""
    return f"{first}{len(result.plan.seeds)} paired seeds"


def remarks(result: StudyResult, arm: ArmResult) -> list[str]:
    """What must stand beside a verdict, as short lines: what failed, how few pairs, what looks odd."""
    effect, base = result.effect(arm.name, result.primary.name), result.base_of(arm)
    lines = ["" if result.is_base(base) else f"compared with {base.label}", failures(result, arm)]
    if effect is not None and effect.n:
        missing = pairs(effect) if effect.n < effect.planned else ""
        lines.append(look(effect) or too_few(result, effect) or missing)
        lines += [*effect.warnings, unlike(effect)]
    return [line for line in lines if line]


def unlike(effect: Effect) -> str:
    """'2 of 6 pairs ran on unlike machines'"""
    return f"{effect.unlike} of {effect.n} pairs ran on unlike machines" if effect.unlike else ""


def notes(effect: Effect) -> list[str]:
    """What the statistics noted, without failed seeds and missing pairs, which every answer tells."""
    parts = [part for part in effect.note.split("; ") if part]
    return [part for part in parts if not part.endswith("seeds failed") and "pairs cannot reach" not in part]


def trust(result: StudyResult, effect: Effect) -> list[str]:
    """How far a reader may trust one comparison, as short sentences."""
    sentences, few = [], too_few(result, effect)
    if few:  # of what is undecided, the answer says it
        sentences += [f"{few}."] if effect.verdict != "inconclusive" else []
    elif effect.p_adjusted is not None:
        beats = "below" if effect.p_adjusted <= result.plan.alpha else "not below"
        sentences.append(
            f"p {number.probability(effect.p_adjusted)} over the whole family of arms, {beats} the "
            f"planned {number.plain(result.plan.alpha)}."
        )
    lines = [*notes(effect), *effect.warnings, unlike(effect)]
    sentences += [line[0].upper() + line[1:] + "." for line in lines if line]
    if effect.correlation is not None:
        help_ = "pairing helped" if effect.correlation > 0.3 else "pairing helped little"
        help_ = "pairing did not help" if effect.correlation < -0.1 else help_
        sentences.append(f"Over seeds the two arms correlate at {number.plain(effect.correlation, 2)}: {help_}.")
    if effect.detectable is not None:
        sentences.append(
            f"With the scatter of these pairs, a true difference of {_rough(effect.detectable)} would be "
            "seen in four studies of five."
        )
    return sentences


def visible(result: StudyResult) -> str:
    """What differences on the primary metric this study can see, lever by lever; empty where that is not known."""
    if len(result.plan.seeds) < fewest(result):
        return f"So few seeds cannot decide anything, whatever is found: {fewest(result)} are the fewest that can."
    rows = [result.effect(arm.name, result.primary.name) for arm in result.compared]
    sizes = [row.detectable for row in rows if row is not None and row.detectable is not None]
    loudest = result.detectable.get(result.primary.name)
    if sizes:
        least, most = _rough(min(sizes)), _rough(max(sizes))
        size = least if least == most else f"{least} to {most}, depending on how much a lever scatters over seeds,"
        return f"A true difference of {size} would be seen in four studies of five."
    if loudest is None:
        return ""
    return f"Of the lever that scatters most, a true difference of {_rough(loudest)} would be seen in four studies of five."


def looks(result: StudyResult) -> str:
    """'Decides at 8, 12 and 16 pairs; 0.031, 0.041 and 0.05 of the error may be spent by then'; empty: once, at the end."""
    plan = result.plan
    if not plan.looks:
        return ""
    at = ", ".join(map(str, plan.looks[:-1])) + f" and {plan.looks[-1]}" if plan.looks[1:] else str(plan.looks[0])
    spent = ", ".join(number.plain(share) for share in plan.spending)
    return f"decides at {at} pairs" + (f", having spent at most {spent} of the error by then" if spent else "")


def machines(result: StudyResult) -> list[str]:
    """Every kind of machine that cells ran on, with how many did: 'AMD EPYC, torch 2.13.0 (12 cells)'."""
    counts: dict[str, int] = {}
    for cell in (cell for arm in result.trained for cell in arm.cells if cell.machine):
        counts[cell.machine] = counts.get(cell.machine, 0) + 1
    return [f"{machine} ({count} cell{'s' if count > 1 else ''})" for machine, count in counts.items()]


def _rough(size: float) -> str:
    return number.plain(size, number.decimals(size))
