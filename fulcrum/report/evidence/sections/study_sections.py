"""The page's sections that need a study of their own: what they show where it is kept."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fulcrum.judge import schema as certainty
from fulcrum.judge import schema as number
from fulcrum.judge import sections as design_tables
from fulcrum.judge import sentences, tables
from fulcrum.judge.page import code, escaped
from fulcrum.judge.schema import StudyResult
from fulcrum.judge.tables import Table
from fulcrum.report.evidence.decisions import ranked_decisions
from fulcrum.report.evidence.decisions.asked_again import asked_again, same_order, same_way
from fulcrum.report.evidence.decisions.decision import SAME_TIME, Decision, all_decisions, best_first, named
from fulcrum.report.evidence.decisions.known_studies import RECIPE, TABLE, Studies, in_table, ordered
from fulcrum.report.evidence.sections.over_scales import starts, turned_back

SKEPTIC = "skeptic"  # how the names begin of studies that ask the same again in other circumstances
FEWEST = 3  # decisions that have an order worth counting


class Section(NamedTuple):
    title: str
    lead: str  # what it asks, and how to read it, as Markdown
    lines: list[str]  # sentences, as text
    tables: list[Table]


def sections(studies: Studies) -> list[Section]:
    """Those whose studies are kept, in the page's order."""
    rows = ranked_decisions.table(studies)
    made = list[Section]()
    skeptic = {name: result for name, result in ordered(studies).items() if name.startswith(SKEPTIC)}
    for name, result in ordered(studies).items():
        if in_table(name, result):
            continue
        if name in skeptic:
            made += [_skeptic(skeptic, rows)] if name == next(iter(skeptic)) else []
            continue
        kind = next((one for one in KINDS if name == one or name.startswith(f"{one}_")), "")
        made.append(KINDS[kind](name, result, rows) if kind else _other(name, result, rows))
    return made


def _larger(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    own = all_decisions(name, result)
    lead = f"Decisions with large effects, and those that came out opposite, again on {code(result.plan.baseline)}."
    return Section("Again on a larger recipe", lead, _order(own, rows), [_again(own, rows)])


def _resolution(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = "The same decisions at several numbers of tokens, each against a baseline of its own"
    first = name == "resolution"
    lead += ": the articles' central reversal is that routing hurts at few tokens and pays at many." if first else "."
    units = list(dict.fromkeys(row.unit for row in result.effects if row.metric == result.primary.name))
    if all(abs((arm.cost.time_ratio or 1.0) - 1.0) <= SAME_TIME for arm in result.compared):
        units = units[:1]  # the others would say the same once more
    by_scale = [_by_scale(result, unit) for unit in units]
    asked = result.model_copy(update={"trends": [row for row in result.trends if row.metric == result.primary.name]})
    return Section(
        "Resolution dependence" if first else result.title,
        f"{lead} {starts(result)}",
        [*sentences.headlines(result), *turned_back(result)],
        [*by_scale, design_tables.trend_table(asked)],
    )


def _by_scale(result: StudyResult, unit: str) -> Table:
    """A row for each decision, a column for each scale."""
    scales = [scale.name for scale in result.scales]
    effects = {row.arm: row for row in result.effects if (row.metric, row.unit) == (result.primary.name, unit)}
    rows = []
    for root in result.decisions:
        arms = {arm.scale: arm for arm in result.compared if arm.root == root}
        cells = []
        for scale in scales:
            row = effects.get(arms[scale].name) if scale in arms else None
            word = "" if row is None or row.exploratory else f", {row.verdict}"
            time = arms[scale].cost.time_ratio if scale in arms else None
            cost = "" if time is None else f", {number.ratio(time)} time"
            cells.append(
                number.NONE if row is None else f"{number.change(row.mean, row.low, row.high)}{word}, {row.n} pairs{cost}"
            )
        label = next(sentences.plain(arm) for arm in arms.values())
        rows.append((label, *cells))
    caption = f"Change in {sentences.lowered(result.primary.label)} at {sentences.held_equal(unit)}"
    return Table(f"{caption}, {sentences.direction(result.primary)}", ("decision", *scales), tuple(rows))


def _late(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = (
        "What does a change do that comes late? Until it comes, two arms of a seed are one training, to the bit; each is "
        f"held against the arm that goes on as before. Baseline: {code(result.plan.baseline)}."
    )
    return Section("Late decisions", lead, sentences.headlines(result), [tables.ranking(result)])


def _stack_at_equal_time(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = (
        "All of the stack against the plain recipe. It costs more for each image, so the same trainings were measured on "
        "the way too: what it gives when both have had the same time, or the same FLOPs, and what it needs to get where "
        "the recipe ends."
    )
    lines, notes = [*sentences.headlines(result)], dict[str, None]()
    for arm in result.compared:
        for row in (row for row in result.effects_of(arm) if row.metric == result.primary.name and row.exploratory):
            size = number.change(row.mean, row.low, row.high)
            lines.append(f"{sentences.plain(arm)}, at {sentences.held_equal(row.unit)}: {size} (exploratory).")
            notes |= {row.note: None} if row.note else {}
    lines += [f"{note[:1].upper()}{note[1:]}." for note in notes]
    reached = [row for row in result.time_to_target if row.metric == result.primary.name]
    asked = result.model_copy(update={"time_to_target": reached})
    shown = [tables.ranking(result), design_tables.target_table(asked)]
    return Section("What compounds: all of it, at equal time", lead, lines, shown)


def _stack(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = (
        f"The baseline has all of {code(result.baseline.phrase)}, every arm all but one: a decision that the stack misses "
        "makes the arm worse. What costs and brings nothing here can go."
    )
    return Section("What compounds: one left out", lead, sentences.headlines(result), [tables.ranking(result)])


def _fraction(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = (
        "Several decisions at once, in few of all combinations: each effect is a mean over settings of the others, and "
        f"pairs that do more or less together than the sum of each alone are read from the same trainings. {_rule(result)}"
    )
    primary = [row for row in result.interactions if row.metric == result.primary.name]
    asked = result.model_copy(update={"interactions": primary})
    shown = [tables.ranking(result), design_tables.interaction_table(asked), design_tables.string_table(result)]
    names = {arm.root: sentences.plain(arm) for arm in result.compared}
    together = [
        f"{names[row.a]} and {sentences.lowered(names[row.b])} are {row.verdict}: "
        f"{number.change(row.mean, row.low, row.high)} beyond the sum of the two."
        for row in primary
        if row.verdict.endswith("together")
    ]
    return Section("What compounds: pairs", lead.strip(), [*sentences.headlines(result), *together], shown)


def _rule(result: StudyResult) -> str:
    return "" if result.fraction is None else f"{escaped(result.fraction.aliased.rstrip('.'))}."


def _emoji(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    own, metric = all_decisions(name, result), result.primary
    lead = (
        "Does the ordering hold? Five of the decisions with large effects, on drawings by other people with captions of "
        f"their own, on {code(result.plan.baseline)}. {_from(own)}A change of "
        f"{number.plain(result.plan.smallest_effect)} would matter."
    )
    lines = _order(own, rows)
    if rows and metric.name != rows[0].result.primary.name:
        there = rows[0].result.primary
        lines.append(
            f"The metric is another one, so only directions and order may be compared, no sizes: here "
            f"{sentences.lowered(metric.label)} ({sentences.direction(metric)}) by networks that were trained elsewhere, "
            f"in the ranking {sentences.lowered(there.label)} ({sentences.direction(there)}) by judges that learned the "
            "embedded world. A decision may move one of them and not the other."
        )
    return Section("On pictures that no one here drew: emoji", lead, lines, [_again(own, rows)])


def _skeptic(studies: Studies, rows: Sequence[Decision]) -> Section:
    """All of the skeptic's questions in one table: a row for each decision, a column for each question."""
    asked = [(result.title, all_decisions(name, result)) for name, result in studies.items()]
    roots = dict.fromkeys(one.arm.root for _, own in asked for one in own)
    ranks = {one.arm.root: place for place, one in reversed(list(enumerate(rows)))}
    body = []
    for root in sorted(roots, key=lambda root: ranks.get(root, len(rows))):
        cells = [named(rows, root), *(named(own, root) for _, own in asked)]
        name = next(sentences.plain(one.arm) for one in cells if one is not None)
        body.append((name, *(_short(one) for one in cells)))
    lead = (
        "The decisions that moved quality most, again where one thing about the comparison is another: every column is a "
        "study of its own, with its own trainings unless only the judge differs, and with its own baseline."
    )
    lines = [f"{title[:1].upper()}{title[1:]}: {_from(own)}{' '.join(_order(own, rows))}" for title, own in asked]
    columns = ("decision", f"in the ranking ({RECIPE})", *(title for title, _ in asked))
    metric = next(iter(studies.values())).primary
    caption = f"Change in {sentences.lowered(metric.label).split(',')[0]}, {sentences.direction(metric)}"
    return Section("The skeptic asks", lead, lines, [Table(caption, columns, tuple(body), tuple(range(len(columns))))])


def _from(own: Sequence[Decision]) -> str:
    """Where the baseline stands there: nearer to the end of the scale every gain is smaller. 'The baseline has 0.95. '"""
    if not own:
        return ""
    result = own[0].result
    mean = tables.mean_sd(result.baseline, result.primary.name)[0]
    return "" if mean is None else f"The baseline has {number.plain(mean, 2)}. "


def _short(one: Decision | None) -> str:
    return number.NONE if one is None else f"{one.change}, {one.verdict}, {one.pairs} pairs"


def _other(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    return Section(result.title, "", sentences.headlines(result), [tables.ranking(result), *_designed(result)])


def _designed(result: StudyResult) -> list[Table]:
    return [one for _, one in design_tables.tables(result)]


def _again(own: Sequence[Decision], rows: Sequence[Decision]) -> Table:
    """Decisions of another study beside the ranking's own."""
    result = own[0].result if own else None
    body = []
    for one in best_first(own):
        before = named(rows, one.arm.root)
        body.append(
            (
                one.name,
                one.change,
                str(one.pairs),
                one.verdict,
                number.ratio(one.time),
                f"{before.change}, {before.verdict}, {before.pairs} pairs" if before else number.NONE,
                _agrees(one, before),
                "; ".join(remark for remark in one.remarks if before is None or remark not in before.remarks),
            )
        )
    metric = sentences.lowered(result.primary.label) if result else ""
    level = certainty.level(result) if result else ""
    columns = (
        "decision",
        f"{metric} [{level}]",
        "pairs",
        "verdict",
        "time",
        f"in the ranking ({RECIPE})",
        "direction",
        "remarks",
    )
    caption = f"Best first, {sentences.direction(result.primary)}" if result else ""
    return Table(caption, columns, tuple(body), (0, 1, 3, 5, 6, 7))


def _agrees(one: Decision, before: Decision | None) -> str:
    """Whether two studies agree; only what both have decided can."""
    if before is None or one.gain is None or before.gain is None:
        return number.NONE
    if not (one.decided and before.decided):
        return "undecided or too small in one of them" if one.verdict != before.verdict else f"both {one.verdict}"
    return "the same" if one.verdict == before.verdict else "the other way"


def _order(own: Sequence[Decision], rows: Sequence[Decision]) -> list[str]:
    """How many decisions keep their direction, and how many pairs of them their order."""
    pairs = asked_again(own, rows)
    if not pairs:
        return ["None of its decisions has a number in the ranking to be set beside."]
    decided, same = same_way(pairs)
    lines = [
        f"Of {len(pairs)} decision{'' if len(pairs) == 1 else 's'}, {decided} {'is' if decided == 1 else 'are'} decided "
        f"in both; {same} of these {'goes' if same == 1 else 'go'} the same way."
    ]
    if len(pairs) >= FEWEST:
        places, kept = same_order(pairs)
        lines.append(f"Of {places} pairs of decisions, {kept} stand in the same order in both.")
    return lines


KINDS: dict[str, Callable[[str, StudyResult, Sequence[Decision]], Section]] = {
    TABLE: _larger,
    "resolution": _resolution,
    "late": _late,
    "stack_at_equal_time": _stack_at_equal_time,  # before the one whose name its own begins with
    "stack": _stack,
    "fraction": _fraction,
    "emoji": _emoji,
}
