"""The ranking as a section of the page: its table, the decisions beside it, and what to know before believing them."""

from collections.abc import Sequence

from fulcrum.judge import figures as range_figure
from fulcrum.judge import schema as certainty
from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.page import escaped
from fulcrum.judge.schema import Effect, StudyResult
from fulcrum.judge.tables import Table
from fulcrum.report.evidence.decisions.decision import SAME_TIME, TIMING_ERROR, Decision
from fulcrum.report.evidence.decisions.known_studies import RECIPE
from fulcrum.report.evidence.decisions.measured_rows import lever_of
from fulcrum.report.evidence.page_text import notes_by_names, row_lines

DISTANCE, LOSS = "frechet", "validation_loss"  # what columns are kept for beside the primary metric
# Remarks that the tables say themselves: by their columns, or by standing where they stand.
SAID_THERE = ("decided at ", "compared with ", "every arm with ", "judged by other prompts")


def ranking_lines(rows: Sequence[Decision], searched: Sequence[Decision]) -> list[str]:
    result, timed = most_rows(rows), _timed(rows)
    metric = result.primary
    shown = [one.by(DISTANCE) for one in rows]
    at_time = [one.at_equal_time(timed) if timed else None for one in rows]
    by_distance = metric.name != DISTANCE and any(shown)
    level = certainty.level(result)
    body = tuple(
        (
            str(place) if one.gain is not None else number.NONE,
            one.name,
            *_cells(one),
            *([_change(then)] if timed else []),
            *([_change(distance)] if by_distance else []),
            one.worth,
        )
        for place, (one, then, distance) in enumerate(zip(rows, at_time, shown, strict=True), 1)
    )
    columns = (
        "", "decision", f"{sentences.lowered(metric.label)} [{level}]", "pairs", "verdict", "time", "FLOPs",
        *([f"{sentences.lowered(result.metric(timed).label)} at equal time"] if timed else []),
        *([result.metric(DISTANCE).label] if by_distance else []),
        "what it buys",
    )  # fmt: skip
    texts = (1, 2, 4, *range(7, len(columns)))
    return [
        "## The ranking",
        "",
        f"Every decision alone against the same training without it, on `{RECIPE}`, best first. How to read the columns:",
        "",
        *_reading(result, timed, by_distance, at_time),
        "",
        *_linked(row_lines(Table("", columns, body, texts)), rows),
        "",
        *_remarks(rows, searched),
        *_standing(result),
    ]


def beside_lines(rows: Sequence[Decision]) -> list[str]:
    """Decisions that were held against something else: a table of their own, without places."""
    if not rows:
        return []
    result = most_rows(rows)
    body = tuple(
        (one.name.partition(", with ")[0], one.held_against, *_cells(one), _change(one.by(DISTANCE))) for one in rows
    )
    change = f"{sentences.lowered(result.primary.label)} [{certainty.level(result)}]"
    distance = next((one.result.metric(DISTANCE).label for one in rows if one.by(DISTANCE)), DISTANCE)
    columns = ("decision", "held against", change, "pairs", "verdict", "time", "FLOPs", distance)
    return [
        "## Held against another baseline",
        "",
        f"Also alone, on `{RECIPE}`, but against something else than the recipe as it is: each effect is the difference to "
        "what stands beside it, where there may be more to gain or to lose. So these have no place in the ranking, and are "
        "not to be compared with it or with each other.",
        "",
        *_linked(row_lines(Table("", columns, body, (0, 1, 2, 4, 7))), rows),
        "",
        *_remarks(rows, ()),
    ]


def _linked(lines: Sequence[str], rows: Sequence[Decision]) -> list[str]:
    """The lines of a table, in which each decision's name leads to the page of its lever: what it is, and its settings."""
    head, rule, *body = lines
    for place, one in enumerate(rows):
        if lever := lever_of(one):
            name = escaped(one.name.partition(", with ")[0])
            body[place] = body[place].replace(f"| {name} |", f"| [{name}](../levers/{lever}.md) |", 1)
    return [head, rule, *body]


def most_rows(rows: Sequence[Decision]) -> StudyResult:
    """The study that most decisions come from: its baseline is the one to describe."""
    results = {id(one.result): one.result for one in rows}
    return max(results.values(), key=lambda result: sum(one.result is result for one in rows))


def _timed(rows: Sequence[Decision]) -> str:
    """Which metric has numbers at equal time: the primary, else the validation loss; empty: none."""
    primary = rows[0].result.primary.name
    return next((name for name in (primary, LOSS) if any(one.at_equal_time(name) for one in rows)), "")


def _cells(one: Decision) -> tuple[str, ...]:
    """What both tables say of a decision: change, pairs, verdict, time and FLOPs."""
    return one.change, str(one.pairs), one.verdict, number.ratio(one.time), number.ratio(one.flops)


def _change(effect: Effect | None) -> str:
    return number.NONE if effect is None else number.change(effect.mean, effect.low, effect.high)


def _reading(result: StudyResult, timed: str, by_distance: bool, at_time: Sequence[Effect | None]) -> list[str]:
    """How to read the columns, a line each; what is exploratory decides nothing."""
    metric, looks, more = result.primary, result.plan.looks, ""
    if looks[1:]:
        more = (
            f" An arm gets {looks[0]} pairs, and up to {looks[-1]} while it is undecided; its interval holds over all "
            "these looks and is wider than that of its pairs alone."
        )
    lines = [
        f"- **{escaped(metric.label)}** ({sentences.direction(metric)}): {escaped(metric.explain)}",
        f"- **Verdict**: asks an interval without zero and a corrected p below {number.plain(result.plan.alpha)} over all "
        f"arms of a study; a *tie*, which is asked first, a {certainty.tie_level(result)} interval, narrower than "
        f"that, within ±{number.plain(result.plan.smallest_effect)}.{more} [How verdicts are made](../statistics.md)",
        "- **Time and FLOPs**: of a step, over the baseline's. Times come from steps taken in turns and are good to "
        f"{100 * SAME_TIME:.0f} to {TIMING_ERROR:.0%}: less than {SAME_TIME:.0%} more is called free, up to "
        f"{TIMING_ERROR:.0%} hardly dearer, up to {2 * TIMING_ERROR:.0%} dearer, and beyond that a price is told, in one "
        "digit.",
    ]
    if timed:
        loss, notes = result.metric(timed), dict.fromkeys(row.note for row in at_time if row is not None and row.note)
        early = "".join(
            f"It is {note}; the slower side is the one that is read so, which counts against it." for note in notes
        )
        lines.append(
            f"- **{escaped(loss.label)} at equal time** ({sentences.direction(loss)}; exploratory): what is left when both "
            "sides get the same time, where both have the same objective and times differ by more than "
            f"{TIMING_ERROR:.0%}. {escaped(early)}".rstrip()
        )
    if by_distance:
        distance = result.metric(DISTANCE)
        lines.append(
            f"- **{escaped(distance.label)}** ({sentences.direction(distance)}; exploratory): how near drawn pictures are "
            "to real ones, whatever the prompt was."
        )
    return lines


def _remarks(rows: Sequence[Decision], searched: Sequence[Decision]) -> list[str]:
    """What must stand beside some verdicts, below the table: in it, a column would be wider than all others."""
    noted = [(one.name, [line for line in one.remarks if not line.startswith(SAID_THERE)]) for one in rows]
    noted += [(one.name.removesuffix(", own rates"), [_at_own_rate(one, rows)]) for one in searched]
    lines = [
        f"- {', '.join(f'**{escaped(name)}**' for name in names)}: {escaped('; '.join(said))}"
        for names, said in notes_by_names(noted)
    ]
    return ["To know before believing them:", "", *lines, ""] if lines else []


def _at_own_rate(one: Decision, rows: Sequence[Decision]) -> str:
    found = f"{one.change}, {one.verdict}, {one.pairs} pairs"
    if one.is_among(row.keys for row in rows):
        return f"at a learning rate of its own {found}: none was better for it than the recipe's"
    return f"at a learning rate of its own {found}"


def _standing(result: StudyResult) -> list[str]:
    noise = next((row for row in result.noise if row.metric == result.primary.name), None)
    scatter = ""
    if noise is not None and noise.sd is not None:
        size = number.plain(noise.sd, number.decimals(noise.sd))
        scatter = f" Over {noise.n} seeds the baseline scatters by {size} (standard deviation)."
    agreed = result.primary.agreement.removesuffix(".")
    second = f" A second judge checks the first: {agreed}." if agreed else ""
    return [f"{escaped(range_figure.standing(result, result.primary) + scatter + second)}", ""]
