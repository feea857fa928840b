"""The ranking as an SVG file of its own, wide or narrow: every decision's effect with its interval,
best first.

It is shown as a picture on pages that are not ours, so it brings its style, its background, and
both colour schemes.
"""

import re
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from fulcrum.advice.decisions import (
    RECIPE,
    SAME_TIME,
    TABLE,
    TIMING_ERROR,
    Decision,
    Studies,
    all_decisions,
    asked_again,
    best_first,
    in_table,
    lever_of,
    named,
    ordered,
    same_order,
    same_way,
    trained_longer,
)
from fulcrum.judge import figures as range_figure
from fulcrum.judge import schema as certainty
from fulcrum.judge import schema as number
from fulcrum.judge import sections as design_tables
from fulcrum.judge import sentences, tables
from fulcrum.judge.figures import Axis, Canvas, clip
from fulcrum.judge.page import code, escaped
from fulcrum.judge.schema import Effect, StudyResult
from fulcrum.judge.tables import Table, mean_sd
from tools.evidence import decisions as ranked_decisions
from tools.evidence import words as arm_sheet
from tools.evidence.decisions import table
from tools.evidence.words import folded, notes_by_names, row_lines

# --------------------------------------------------------------------------------------------------
# The ranking as an SVG file of its own, wide or narrow: every decision's effect with its interval,
# best first.
#
# It is shown as a picture on pages that are not ours, so it brings its style, its background, and
# both colour schemes.


STYLE = """
:root{--page:#fff;--line:#d9d5cd;--ink:#1d1c1a;--soft:#5c5852;--band:#f1eee7;\
--better:#1f63ad;--worse:#b8500f;--even:#6a6761}
@media (prefers-color-scheme:dark){:root{--page:#16181c;--line:#3a3c41;--ink:#eceae5;\
--soft:#a9a59d;--band:#24262b;
--better:#74b0f2;--worse:#f0985a;--even:#a5a19a}}
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,\
"Helvetica Neue","Liberation Sans",sans-serif;
fill:var(--ink);font-size:13px}
.page{fill:var(--page);stroke:var(--line)}.band{fill:var(--band)}\
.zero{stroke:var(--soft)}.axis,.rule{stroke:var(--line)}
.title{font-size:19px;font-weight:650}.soft,.tick{fill:var(--soft);font-size:12px}\
.value{font-variant-numeric:tabular-nums;font-size:12px}
.small{font-size:11px}.strong{font-weight:600}.better{--c:var(--better)}\
.worse{--c:var(--worse)}.tie,.undecided,.other{--c:var(--even)}
.bar{fill:var(--c);opacity:.2}.whisker{stroke:var(--c);stroke-width:2;fill:none}.dot{fill:var(--c)}
.ring{fill:var(--page);stroke:var(--c);stroke-width:2}.torn{stroke:var(--page);stroke-width:3}
"""
LEGEND = (
    ("better", "better"),
    ("worse", "worse"),
    ("tie", "too small a difference to matter"),
    ("undecided", "undecided"),
)
BESIDE = "Held against another baseline: not to be compared with those above"
APART = 38  # room between the two groups
LETTER = 6.3  # width of a letter of the legend


@dataclass(frozen=True)
class FigureLayout:
    """Where things stand; a narrow picture puts the words above the strip."""

    width: int
    edge: int  # room at both sides
    step: int  # height of a row
    strip: tuple[int, int]  # the strip's left and right end
    letters: int  # of a name
    line: int  # letters of a line of the subtitle


WIDE = FigureLayout(width=880, edge=22, step=25, strip=(288, 606), letters=35, line=126)
NARROW = FigureLayout(width=420, edge=14, step=40, strip=(14, 406), letters=36, line=58)


def forest(
    decisions: Sequence[Decision], beside: Sequence[Decision] = (), layout: FigureLayout = WIDE
) -> str:
    """The SVG file's text; needs at least one decision with a number. Those `beside` stand below a
    line: they were held against something else."""
    result, axis = decisions[0].result, _axis([*decisions, *beside], layout)
    title = f"{len(decisions)} training decisions, one at a time"
    lines = textwrap.wrap(_subtitle(decisions), layout.line)
    canvas = Canvas(layout.width, 0)
    y = _head(canvas, layout, title, lines)
    top = y
    y = _directions(canvas, axis, y + 14, result, layout)
    body = float(y + 6)
    middle = body + layout.step * len(decisions)
    lower = middle + (APART if beside else 0)  # where the second group begins
    bottom = lower + layout.step * len(beside)
    canvas.height = bottom + 34
    parts, canvas.parts = canvas.parts, []
    canvas.add(
        "rect",
        x=0.5,
        y=0.5,
        width=layout.width - 1.0,
        height=canvas.height - 1.0,
        rx=10,
        class_="page",
    )
    margin = result.plan.smallest_effect
    width = axis(margin) - axis(-margin)
    tip = f"±{number.plain(margin)}: too small to matter"
    for start, end in ((body, middle), (lower, bottom)):
        if end > start:
            canvas.add(
                "rect",
                x=axis(-margin),
                y=start - 4,
                width=width,
                height=end - start + 4,
                class_="band",
                tip=tip,
            )
            canvas.line(axis(0.0), start - 4, axis(0.0), end, "zero")
    canvas.parts += parts
    if layout is WIDE:
        canvas.text(layout.strip[1] + 20, top + 14, f"change [{certainty.level(result)}]", "soft")
        canvas.text(layout.width - layout.edge, top + 14, "time", "soft", "end")
    for place, decision in enumerate(decisions):
        _row(canvas, decision, axis, body + layout.step * (place + 0.5), layout)
    if beside:
        canvas.line(layout.edge, middle + 8, layout.width - layout.edge, middle + 8, "rule")
        canvas.text(
            layout.edge,
            middle + 26,
            BESIDE if layout is WIDE else BESIDE.partition(":")[0],
            "soft strong",
        )
    for place, decision in enumerate(beside):
        _row(canvas, decision, axis, lower + layout.step * (place + 0.5), layout)
    canvas.scale(axis, bottom + 4, 6 if layout is WIDE else 4)
    desc = "; ".join(f"{one.name} {one.change}, {one.verdict}" for one in (*decisions, *beside))
    return canvas.document(
        f"{title}: change in {sentences.lowered(result.primary.label)}", desc, STYLE
    )


def _subtitle(decisions: Sequence[Decision]) -> str:
    """What was measured, over how many pairs, on what."""
    result, pairs = decisions[0].result, sorted({one.pairs for one in decisions if one.pairs})
    seeds = f"{pairs[0]} to {pairs[-1]}" if pairs[1:] else str(pairs[0])
    return (
        f"Change in {sentences.lowered(result.primary.label)}"
        f" ({sentences.direction(result.primary)}) against the same training without it: {seeds}"
        f" paired seeds, {certainty.level(result)} intervals. Recipe {result.plan.baseline},"
        f" {result.plan.images:,} images each."
    )


def _head(canvas: Canvas, layout: FigureLayout, title: str, lines: Sequence[str]) -> float:
    y = 34.0
    canvas.text(layout.edge, y, title, "title")
    for line in lines:
        y += 17
        canvas.text(layout.edge, y, line, "soft")
    x, y = float(layout.edge), y + 24
    for kind, words in LEGEND:
        if x + 16 + LETTER * len(words) > layout.width - layout.edge:
            x, y = float(layout.edge), y + 18
        canvas.dot(x + 5, y - 4, 4.5, f"{'ring' if kind == 'undecided' else 'dot'} {kind}")
        canvas.text(x + 16, y, words, "soft")
        x += 34 + LETTER * len(words)
    canvas.line(layout.edge, y + 12, layout.width - layout.edge, y + 12, "rule")
    return y + 12


def _directions(
    canvas: Canvas, x: Axis, y: float, result: StudyResult, layout: FigureLayout
) -> float:
    left, right = (
        ("← worse", "better →") if result.primary.better == "higher" else ("← better", "worse →")
    )
    canvas.text(layout.strip[0], y, left, "soft")
    canvas.text(layout.strip[1], y, right, "soft", "end")
    return y


def _axis(decisions: Sequence[Decision], layout: FigureLayout) -> Axis:
    """A few wild effects, beyond two and a half times what nine decisions of ten need, are cut off
    rather than flattening all others."""
    rows = [
        one.effect for one in decisions if one.effect is not None and one.effect.mean is not None
    ]
    margin = decisions[0].result.plan.smallest_effect
    ends = sorted(
        max(abs(end) for end in (row.mean, row.low, row.high) if end is not None) for row in rows
    )
    most = max(2.5 * ends[len(ends) - 1 - len(ends) // 10], 3 * margin)
    reach = max((end for end in ends if end <= most), default=most)
    values = [
        max(-reach, min(reach, end))
        for row in rows
        for end in (row.mean, row.low, row.high)
        if end is not None
    ]
    return Axis.over(
        [*values, -2 * margin, 2 * margin], layout.strip[0] + 4, layout.strip[1] - 4, pad=0.02
    )


def _row(canvas: Canvas, decision: Decision, x: Axis, y: float, layout: FigureLayout) -> None:
    effect, narrow = decision.effect, layout is NARROW
    look = decision.verdict if decision.verdict in dict(LEGEND) else "other"
    words, strip = (y - 4, y + 7) if narrow else (y + 4, y)
    _name(canvas, decision, words, layout)
    cost = number.ratio(decision.time)
    if effect is None or effect.mean is None:
        canvas.text(
            layout.strip[0] + (0 if narrow else 4), strip + 4, _without_number(decision), "soft"
        )
        return
    _strip(canvas, decision, x, strip, look)
    if narrow:
        canvas.text(
            layout.width - layout.edge, words, decision.change.split(" [")[0], "value strong", "end"
        )
    else:
        canvas.text(
            layout.strip[1] + 20, words, decision.change, "value" + " strong" * decision.decided
        )
        canvas.text(layout.width - layout.edge, words, cost, "value soft", "end")


def _name(canvas: Canvas, decision: Decision, y: float, layout: FigureLayout) -> None:
    """In one line, or small in two: a long name says in which circumstances it was judged."""
    look = "strong" if decision.decided else ""
    if len(decision.name) <= layout.letters:
        canvas.text(layout.edge, y, decision.name, look)
        return
    first, *more = textwrap.wrap(decision.name, layout.letters)
    canvas.text(layout.edge, y - 6, first, f"small {look}")
    canvas.text(layout.edge, y + 6, clip(" ".join(more), layout.letters), f"small {look}")


def _without_number(decision: Decision) -> str:
    """'failed: 8 of 8 seeds failed', 'no answer yet'"""
    return ": ".join(
        part
        for part in (decision.verdict, certainty.failures(decision.result, decision.arm))
        if part
    )


def _strip(canvas: Canvas, decision: Decision, x: Axis, y: float, look: str) -> None:
    effect = decision.effect
    assert effect is not None and effect.mean is not None
    at, tip = (
        max(x.start, min(x.end, x(effect.mean))),
        f"{decision.name}: {decision.change}, {decision.verdict}",
    )
    canvas.add(
        "rect",
        x=min(at, x(0)),
        y=y - 5,
        width=abs(at - x(0)),
        height=10.0,
        rx=2,
        class_=f"bar {look}",
        tip=tip,
    )
    if at != x(effect.mean):  # torn: it goes on beyond the picture
        outward = 1 if at > x(0) else -1
        for gap in (16, 22):
            canvas.line(at - outward * gap - 3, y + 7, at - outward * gap + 3, y - 7, "torn")
        canvas.path(
            [(at - 6 * outward, y - 5), (at, y), (at - 6 * outward, y + 5)], f"whisker {look}"
        )
        return
    if effect.low is not None and effect.high is not None:
        low, high = (max(x.start, min(x.end, x(end))) for end in (effect.low, effect.high))
        canvas.line(low, y, high, y, f"whisker {look}")
    canvas.dot(at, y, 4.5, f"{'ring' if decision.verdict == 'undecided' else 'dot'} {look}", tip)


# --------------------------------------------------------------------------------------------------
# What a small world cannot tell about a large model, plainly: the page's own doubts.


# steps and batch of a row of the published study (docs/published.md)
PUBLISHED_IMAGES = 100_000 * 256
TITLE = "What a 32 px world cannot tell about a 1.2 B model"


def _longer(studies: Studies, rows: list[Decision]) -> list[str]:
    """What is left of the gains where both sides are trained longer."""
    longer = trained_longer(studies, rows)
    if longer is None or not longer.shrunk:
        return []
    first = longer.shrunk[0][0]
    mean = mean_sd(first.base, first.result.primary.name)[0]
    stands = "" if mean is None else f"the baseline gets {number.plain(mean, 2)}, "
    less, listed = (
        len(longer.shrunk),
        sentences.listed([f"{one.name} {one.change}" for one, _ in longer.shrunk]),
    )
    shares = [
        f"{one.name} {one.removed:.0%} ({before.removed:.0%} in the ranking)"
        for one, before in longer.shrunk
        if one.removed is not None and before.removed is not None
    ]
    removed = escaped(sentences.listed(shares)) if shares else ""
    errors = (
        f" Of what is then missing to real pictures they still remove: {removed}."
        if removed
        else ""
    )
    return [
        f"**Gains shrink where training is longer.** With {number.plain(longer.times)} times the"
        f" images {stands}and of {longer.gains} gains that were asked again {less}"
        f" {'is' if less == 1 else 'are'} less than half as large ({escaped(listed)}).{errors}"
        " Whether such decisions learn better or only sooner, a score so near to its end cannot"
        " tell."
    ]


def limits(studies: Studies) -> list[str]:
    rows = table(studies)
    plan = rows[0].result.plan if rows else None
    here = ""
    if plan is not None:
        more = number.plain(PUBLISHED_IMAGES / plan.images, 0)
        here = (
            f"A training here sees {plan.images:,} images, the published ones saw {more} times as"
            " many. "
        )
    return [
        *_longer(studies, rows),
        (
            f"{here}What is scarce for a small model is not for one of a billion parameters."
            " **Sizes do not carry over; directions may, or may not.** We compare directions only."
        ),
        (
            "The ranking's pictures are of one made-up world with few words. A caption there says"
            " everything that a picture shows, so captions weigh more here than they could on"
            " photographs, and nothing here speaks of faces, hands, text or style."
        ),
        (
            "Its codec, text encoder, teachers and judges are small networks that learned this"
            " world or one like it. A better autoencoder here says nothing about FLUX.2's, a"
            " teacher here nothing about DINO."
        ),
        (
            "A picture has few tokens. Routing saves less where there is little to save, and its"
            " published gains are at many."
        ),
        (
            "The learning rate is high and the training short: rounding loses fewer updates than it"
            " does in a long training at a low rate, so a precision that costs nothing here may"
            " cost there. The levers' pages tell the dose."
        ),
        (
            "What pays late (averages, a curated end, alignment switched off) has little time to"
            " pay in a short training."
        ),
        (
            "Our judges score attributes that were asked for. They do not see beauty, and what they"
            " agree on may be what only such networks see ([judges](../judges.md))."
        ),
        (
            "Hyperparameters were chosen for the baseline. Where a decision did not get a rate of"
            " its own, its verdict holds at the baseline's rate only."
        ),
        (
            "The published study has one seed for each row and faults of its own ([the"
            " list](../published.md)). *Replicated* means that we saw the same direction, not that"
            " its number is right; *opposite here* does not mean it is wrong."
        ),
    ]


# --------------------------------------------------------------------------------------------------
# A study at several scales in words: where its baselines begin, and effects that fade only a part
# of the way.


def starts(result: StudyResult) -> str:
    """'The baselines have 0.83 at 16, 0.72 at 64 and 0.62 at 256.'"""
    bases = [arm for arm in result.arms if result.is_base(arm)]
    means = [
        f"{number.plain(mean_sd(arm, result.primary.name)[0], 2)} at {arm.scale}" for arm in bases
    ]
    return f"The baselines have {sentences.listed(means)}."


def turned_back(result: StudyResult) -> list[str]:
    """A sentence for each decision whose effect fades over all scales, and yet is no smaller at the
    last than at the one before: a straight line through three points does not see that."""
    scales = [scale.name for scale in result.scales]
    fading = {
        row.arm
        for row in result.trends
        if row.metric == result.primary.name and row.verdict == "fades"
    }
    lines = []
    for root in (root for root in result.decisions if root in fading):
        arms = {arm.scale: arm for arm in result.compared if arm.root == root}
        effects = {
            scale: result.effect(arms[scale].name, result.primary.name)
            for scale in scales
            if scale in arms
        }
        sizes = [
            abs(row.mean) for row in effects.values() if row is not None and row.mean is not None
        ]
        if len(sizes) == len(scales) > 2 and sizes[-1] >= sizes[-2]:
            first, before, last = scales[0], scales[-2], scales[-1]
            name = sentences.plain(arms[last])
            lines.append(
                f"The effect of {name} is smaller at {before} than at {first}, and no smaller at"
                f" {last} than at {before}: it does not fade all the way."
            )
    return lines


# --------------------------------------------------------------------------------------------------
# The pictures as a section of the page: the ranking's own sheet, and behind a line those of all
# other studies.


def picture_lines(studies: Studies, beside: frozenset[str]) -> list[str]:
    """`beside`: the files that the page is written with."""
    shown = [(name, result) for name, result in ordered(studies).items() if f"{name}.png" in beside]
    if not shown:
        return []
    prompts = {name: _prompts_of(result) for name, result in shown}
    usual = max(prompts.values(), key=len)
    first, *more = [_sheet(name, result, prompts[name], usual) for name, result in shown]
    many = "another study" if len(more) == 1 else f"{len(more)} more studies"
    return [
        "",
        "## Pictures",
        "",
        (
            "One row for each arm, best first; a column has one prompt and one noise, so what"
            " differs in it is the decision. One seed, none picked, enlarged without smoothing."
        ),
        "",
        *_prompts("The prompts, left to right, of every sheet that has no others", usual),
        *first,
        *(
            ["", *folded(f"The sheets of {many}", [line for lines in more for line in lines])]
            if more
            else []
        ),
    ]


def _sheet(name: str, result: StudyResult, own: Sequence[str], usual: Sequence[str]) -> list[str]:
    lines = [
        "",
        f"### {escaped(result.title[:1].upper() + result.title[1:])}",
        "",
        f"![Pictures of {escaped(name)}, a row for each arm]({name}.png)",
    ]
    return lines if own == usual[: len(own)] else [*lines, "", *_prompts("Its prompts", own)]


def _prompts_of(result: StudyResult) -> tuple[str, ...]:
    assert result.grids is not None
    return tuple(result.grids.prompts[: arm_sheet.columns(result)])


def _prompts(title: str, prompts: Sequence[str]) -> list[str]:
    return folded(title, [f"1. {escaped(one)}" for one in prompts])


# --------------------------------------------------------------------------------------------------
# Where the numbers come from: for each study its plan, command, cells, pairs, versions, machines
# and dates.


def command(result: StudyResult) -> str:
    """What a person types to run it again, without where someone else's machine keeps things."""
    try:
        words = shlex.split(result.made.command)
    except ValueError:  # a quote that is never closed: shown as it is
        return result.made.command
    kept, skip = list[str](), False
    for word in words:
        if not skip and word != "--out" and not word.startswith("--out="):
            kept.append(PurePath(word).name if word.startswith("/") else word)
        skip = word == "--out"
    return shlex.join(kept)


def study_table(studies: Studies) -> Table:
    rows = tuple(
        (
            name,
            result.plan.hash,
            command(result),
            _pairs(result),
            f"{result.progress.done} of {result.progress.total}"
            + (f", {result.progress.failed} failed" if result.progress.failed else ""),
            f"{result.plan.images:,}",
            result.plan.learning_rate_policy,
            f"Fulcrum {result.made.version}",
            result.made.date,
        )
        for name, result in ordered(studies).items()
    )
    columns = (
        "study",
        "plan",
        "command",
        "pairs",
        "cells",
        "images",
        "learning rates",
        "made by",
        "last",
    )
    return Table("Every study that stands on this page", columns, rows, (0, 1, 2, 6, 7, 8))


def _pairs(result: StudyResult) -> str:
    pairs = sorted(
        {
            row.n
            for arm in result.compared
            if (row := result.effect(arm.name, result.primary.name)) and row.n
        }
    )
    return (
        number.NONE
        if not pairs
        else str(pairs[0])
        if not pairs[1:]
        else f"{pairs[0]} to {pairs[-1]}"
    )


def machines(studies: Studies) -> list[str]:
    """Every kind of machine that cells ran on, with its versions, and how many cells of which
    study."""
    ran: dict[str, list[str]] = {}
    for name, result in ordered(studies).items():
        for line in certainty.machines(result) or [result.made.machine]:
            kind, cells = (
                re.sub(r" \(\d+ cells?\)$", "", line),
                re.findall(r" \(\d+ cells?\)$", line),
            )
            ran.setdefault(kind, []).append("".join([name, *cells]))
    return [f"{kind}: {', '.join(names)}" for kind, names in ran.items()]


def remarks(studies: Studies) -> list[str]:
    """What studies remark on their own arms, each once with all that it is about."""
    noted = list[tuple[str, list[str]]]()
    for result in ordered(studies).values():
        roots = {arm.name: arm.root for arm in (*result.arms, *result.combinations)}
        for remark in result.remarks:
            noted += [(arm, [text]) for arm, text in _about(remark, roots)]
    return [
        f"{', '.join(names)}: {text}" if names != [""] else text
        for names, texts in notes_by_names(noted)
        for text in texts
    ]


def _about(remark: str, roots: Mapping[str, str]) -> list[tuple[str, str]]:
    """Which arms a remark is about, and what it says of each; an arm at several scales is one."""
    if loss := re.fullmatch(r"The validation loss of (.+) is not compared: (.+)", remark):
        arms = loss[1].split(", ")
        if all(arm in roots for arm in arms):
            return [(roots[arm], f"the validation loss is not compared: {loss[2]}") for arm in arms]
    for arm in sorted(roots, key=len, reverse=True):
        rest = remark.removeprefix(arm)
        if rest != remark and rest[:1] in (":", " ") and not rest.startswith(" and "):
            return [(roots[arm], rest.lstrip(": "))]
    return [("", remark)]


# --------------------------------------------------------------------------------------------------
# The ranking as a section of the page: its table, the decisions beside it, and what to know before
# believing them.


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
        "",
        "decision",
        f"{sentences.lowered(metric.label)} [{level}]",
        "pairs",
        "verdict",
        "time",
        "FLOPs",
        *([f"{sentences.lowered(result.metric(timed).label)} at equal time"] if timed else []),
        *([result.metric(DISTANCE).label] if by_distance else []),
        "what it buys",
    )
    texts = (1, 2, 4, *range(7, len(columns)))
    return [
        "## The ranking",
        "",
        (
            f"Every decision alone against the same training without it, on `{RECIPE}`, best first."
            " How to read the columns:"
        ),
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
        (
            one.name.partition(", with ")[0],
            one.held_against,
            *_cells(one),
            _change(one.by(DISTANCE)),
        )
        for one in rows
    )
    change = f"{sentences.lowered(result.primary.label)} [{certainty.level(result)}]"
    distance = next(
        (one.result.metric(DISTANCE).label for one in rows if one.by(DISTANCE)), DISTANCE
    )
    columns = ("decision", "held against", change, "pairs", "verdict", "time", "FLOPs", distance)
    return [
        "## Held against another baseline",
        "",
        (
            f"Also alone, on `{RECIPE}`, but against something else than the recipe as it is: each"
            " effect is the difference to what stands beside it, where there may be more to gain"
            " or to lose. So these have no place in the ranking, and are not to be compared with"
            " it or with each other."
        ),
        "",
        *_linked(row_lines(Table("", columns, body, (0, 1, 2, 4, 7))), rows),
        "",
        *_remarks(rows, ()),
    ]


def _linked(lines: Sequence[str], rows: Sequence[Decision]) -> list[str]:
    """The lines of a table, in which each decision's name leads to the page of its lever: what it
    is, and its settings."""
    head, rule, *body = lines
    for place, one in enumerate(rows):
        if lever := lever_of(one):
            name = escaped(one.name.partition(", with ")[0])
            body[place] = body[place].replace(
                f"| {name} |", f"| [{name}](../levers/{lever}.md) |", 1
            )
    return [head, rule, *body]


def most_rows(rows: Sequence[Decision]) -> StudyResult:
    """The study that most decisions come from: its baseline is the one to describe."""
    results = {id(one.result): one.result for one in rows}
    return max(results.values(), key=lambda result: sum(one.result is result for one in rows))


def _timed(rows: Sequence[Decision]) -> str:
    """Which metric has numbers at equal time: the primary, else the validation loss; empty:
    none."""
    primary = rows[0].result.primary.name
    return next(
        (name for name in (primary, LOSS) if any(one.at_equal_time(name) for one in rows)), ""
    )


def _cells(one: Decision) -> tuple[str, ...]:
    """What both tables say of a decision: change, pairs, verdict, time and FLOPs."""
    return one.change, str(one.pairs), one.verdict, number.ratio(one.time), number.ratio(one.flops)


def _change(effect: Effect | None) -> str:
    return number.NONE if effect is None else number.change(effect.mean, effect.low, effect.high)


def _reading(
    result: StudyResult, timed: str, by_distance: bool, at_time: Sequence[Effect | None]
) -> list[str]:
    """How to read the columns, a line each; what is exploratory decides nothing."""
    metric, looks, more = result.primary, result.plan.looks, ""
    if looks[1:]:
        more = (
            f" An arm gets {looks[0]} pairs, and up to {looks[-1]} while it is undecided; its"
            " interval holds over all these looks and is wider than that of its pairs alone."
        )
    lines = [
        f"- **{escaped(metric.label)}** ({sentences.direction(metric)}): {escaped(metric.explain)}",
        (
            "- **Verdict**: asks an interval without zero and a corrected p below"
            f" {number.plain(result.plan.alpha)} over all arms of a study; a *tie*, which is asked"
            f" first, a {certainty.tie_level(result)} interval, narrower than that, within"
            f" ±{number.plain(result.plan.smallest_effect)}.{more} [How verdicts are"
            " made](../statistics.md)"
        ),
        (
            "- **Time and FLOPs**: of a step, over the baseline's. Times come from steps taken in"
            f" turns and are good to {100 * SAME_TIME:.0f} to {TIMING_ERROR:.0%}: less than"
            f" {SAME_TIME:.0%} more is called free, up to {TIMING_ERROR:.0%} hardly dearer, up to"
            f" {2 * TIMING_ERROR:.0%} dearer, and beyond that a price is told, in one digit."
        ),
    ]
    if timed:
        loss, notes = (
            result.metric(timed),
            dict.fromkeys(row.note for row in at_time if row is not None and row.note),
        )
        early = "".join(
            f"It is {note}; the slower side is the one that is read so, which counts against it."
            for note in notes
        )
        lines.append(
            f"- **{escaped(loss.label)} at equal time** ({sentences.direction(loss)}; exploratory):"
            " what is left when both sides get the same time, where both have the same objective"
            f" and times differ by more than {TIMING_ERROR:.0%}. {escaped(early)}".rstrip()
        )
    if by_distance:
        distance = result.metric(DISTANCE)
        lines.append(
            f"- **{escaped(distance.label)}** ({sentences.direction(distance)}; exploratory): how"
            " near drawn pictures are to real ones, whatever the prompt was."
        )
    return lines


def _remarks(rows: Sequence[Decision], searched: Sequence[Decision]) -> list[str]:
    """What must stand beside some verdicts, below the table: in it, a column would be wider than
    all others."""
    noted = [
        (one.name, [line for line in one.remarks if not line.startswith(SAID_THERE)])
        for one in rows
    ]
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


# --------------------------------------------------------------------------------------------------
# The page's sections that need a study of their own: what they show where it is kept.


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
    skeptic = {
        name: result for name, result in ordered(studies).items() if name.startswith(SKEPTIC)
    }
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
    lead = (
        "Decisions with large effects, and those that came out opposite, again on"
        f" {code(result.plan.baseline)}."
    )
    return Section("Again on a larger recipe", lead, _order(own, rows), [_again(own, rows)])


def _resolution(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = "The same decisions at several numbers of tokens, each against a baseline of its own"
    first = name == "resolution"
    lead += (
        ": the articles' central reversal is that routing hurts at few tokens and pays at many."
        if first
        else "."
    )
    units = list(
        dict.fromkeys(row.unit for row in result.effects if row.metric == result.primary.name)
    )
    if all(abs((arm.cost.time_ratio or 1.0) - 1.0) <= SAME_TIME for arm in result.compared):
        units = units[:1]  # the others would say the same once more
    by_scale = [_by_scale(result, unit) for unit in units]
    asked = result.model_copy(
        update={"trends": [row for row in result.trends if row.metric == result.primary.name]}
    )
    return Section(
        "Resolution dependence" if first else result.title,
        f"{lead} {starts(result)}",
        [*sentences.headlines(result), *turned_back(result)],
        [*by_scale, design_tables.trend_table(asked)],
    )


def _by_scale(result: StudyResult, unit: str) -> Table:
    """A row for each decision, a column for each scale."""
    scales = [scale.name for scale in result.scales]
    effects = {
        row.arm: row
        for row in result.effects
        if (row.metric, row.unit) == (result.primary.name, unit)
    }
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
                number.NONE
                if row is None
                else f"{number.change(row.mean, row.low, row.high)}{word}, {row.n} pairs{cost}"
            )
        label = next(sentences.plain(arm) for arm in arms.values())
        rows.append((label, *cells))
    caption = f"Change in {sentences.lowered(result.primary.label)} at {sentences.held_equal(unit)}"
    return Table(
        f"{caption}, {sentences.direction(result.primary)}", ("decision", *scales), tuple(rows)
    )


def _late(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = (
        "What does a change do that comes late? Until it comes, two arms of a seed are one"
        " training, to the bit; each is held against the arm that goes on as before. Baseline:"
        f" {code(result.plan.baseline)}."
    )
    return Section("Late decisions", lead, sentences.headlines(result), [tables.ranking(result)])


def _stack_at_equal_time(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = (
        "All of the stack against the plain recipe. It costs more for each image, so the same"
        " trainings were measured on the way too: what it gives when both have had the same time,"
        " or the same FLOPs, and what it needs to get where the recipe ends."
    )
    lines, notes = [*sentences.headlines(result)], dict[str, None]()
    for arm in result.compared:
        for row in (
            row
            for row in result.effects_of(arm)
            if row.metric == result.primary.name and row.exploratory
        ):
            size = number.change(row.mean, row.low, row.high)
            lines.append(
                f"{sentences.plain(arm)}, at {sentences.held_equal(row.unit)}: {size}"
                " (exploratory)."
            )
            notes |= {row.note: None} if row.note else {}
    lines += [f"{note[:1].upper()}{note[1:]}." for note in notes]
    reached = [row for row in result.time_to_target if row.metric == result.primary.name]
    asked = result.model_copy(update={"time_to_target": reached})
    shown = [tables.ranking(result), design_tables.target_table(asked)]
    return Section("What compounds: all of it, at equal time", lead, lines, shown)


def _stack(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = (
        f"The baseline has all of {code(result.baseline.phrase)}, every arm all but one: a decision"
        " that the stack misses makes the arm worse. What costs and brings nothing here can go."
    )
    return Section(
        "What compounds: one left out", lead, sentences.headlines(result), [tables.ranking(result)]
    )


def _fraction(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    lead = (
        "Several decisions at once, in few of all combinations: each effect is a mean over"
        " settings of the others, and pairs that do more or less together than the sum of each"
        f" alone are read from the same trainings. {_rule(result)}"
    )
    primary = [row for row in result.interactions if row.metric == result.primary.name]
    asked = result.model_copy(update={"interactions": primary})
    shown = [
        tables.ranking(result),
        design_tables.interaction_table(asked),
        design_tables.string_table(result),
    ]
    names = {arm.root: sentences.plain(arm) for arm in result.compared}
    together = [
        f"{names[row.a]} and {sentences.lowered(names[row.b])} are {row.verdict}: "
        f"{number.change(row.mean, row.low, row.high)} beyond the sum of the two."
        for row in primary
        if row.verdict.endswith("together")
    ]
    return Section(
        "What compounds: pairs", lead.strip(), [*sentences.headlines(result), *together], shown
    )


def _rule(result: StudyResult) -> str:
    return "" if result.fraction is None else f"{escaped(result.fraction.aliased.rstrip('.'))}."


def _emoji(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    own, metric = all_decisions(name, result), result.primary
    lead = (
        "Does the ordering hold? Five of the decisions with large effects, on drawings by other"
        f" people with captions of their own, on {code(result.plan.baseline)}. {_from(own)}A change"
        f" of {number.plain(result.plan.smallest_effect)} would matter."
    )
    lines = _order(own, rows)
    if rows and metric.name != rows[0].result.primary.name:
        there = rows[0].result.primary
        lines.append(
            "The metric is another one, so only directions and order may be compared, no sizes:"
            f" here {sentences.lowered(metric.label)} ({sentences.direction(metric)}) by networks"
            f" that were trained elsewhere, in the ranking {sentences.lowered(there.label)}"
            f" ({sentences.direction(there)}) by judges that learned the embedded world. A decision"
            " may move one of them and not the other."
        )
    return Section("On pictures that no one here drew: emoji", lead, lines, [_again(own, rows)])


def _skeptic(studies: Studies, rows: Sequence[Decision]) -> Section:
    """All of the skeptic's questions in one table: a row for each decision, a column for each
    question."""
    asked = [(result.title, all_decisions(name, result)) for name, result in studies.items()]
    roots = dict.fromkeys(one.arm.root for _, own in asked for one in own)
    ranks = {one.arm.root: place for place, one in reversed(list(enumerate(rows)))}
    body = []
    for root in sorted(roots, key=lambda root: ranks.get(root, len(rows))):
        cells = [named(rows, root), *(named(own, root) for _, own in asked)]
        name = next(sentences.plain(one.arm) for one in cells if one is not None)
        body.append((name, *(_short(one) for one in cells)))
    lead = (
        "The decisions that moved quality most, again where one thing about the comparison is"
        " another: every column is a study of its own, with its own trainings unless only the judge"
        " differs, and with its own baseline."
    )
    lines = [
        f"{title[:1].upper()}{title[1:]}: {_from(own)}{' '.join(_order(own, rows))}"
        for title, own in asked
    ]
    columns = ("decision", f"in the ranking ({RECIPE})", *(title for title, _ in asked))
    metric = next(iter(studies.values())).primary
    caption = (
        f"Change in {sentences.lowered(metric.label).split(',')[0]}, {sentences.direction(metric)}"
    )
    return Section(
        "The skeptic asks",
        lead,
        lines,
        [Table(caption, columns, tuple(body), tuple(range(len(columns))))],
    )


def _from(own: Sequence[Decision]) -> str:
    """Where the baseline stands there: nearer to the end of the scale every gain is smaller. 'The
    baseline has 0.95. '"""
    if not own:
        return ""
    result = own[0].result
    mean = tables.mean_sd(result.baseline, result.primary.name)[0]
    return "" if mean is None else f"The baseline has {number.plain(mean, 2)}. "


def _short(one: Decision | None) -> str:
    return number.NONE if one is None else f"{one.change}, {one.verdict}, {one.pairs} pairs"


def _other(name: str, result: StudyResult, rows: Sequence[Decision]) -> Section:
    return Section(
        result.title, "", sentences.headlines(result), [tables.ranking(result), *_designed(result)]
    )


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
                (
                    f"{before.change}, {before.verdict}, {before.pairs} pairs"
                    if before
                    else number.NONE
                ),
                _agrees(one, before),
                "; ".join(
                    remark
                    for remark in one.remarks
                    if before is None or remark not in before.remarks
                ),
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
        return (
            "undecided or too small in one of them"
            if one.verdict != before.verdict
            else f"both {one.verdict}"
        )
    return "the same" if one.verdict == before.verdict else "the other way"


def _order(own: Sequence[Decision], rows: Sequence[Decision]) -> list[str]:
    """How many decisions keep their direction, and how many pairs of them their order."""
    pairs = asked_again(own, rows)
    if not pairs:
        return ["None of its decisions has a number in the ranking to be set beside."]
    decided, same = same_way(pairs)
    lines = [
        f"Of {len(pairs)} decision{'' if len(pairs) == 1 else 's'}, {decided}"
        f" {'is' if decided == 1 else 'are'} decided in both; {same} of these"
        f" {'goes' if same == 1 else 'go'} the same way."
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
