"""The ranking as an SVG file of its own, wide or narrow: every decision's effect with its interval, best first.

It is shown as a picture on pages that are not ours, so it brings its style, its background, and both colour schemes.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from fulcrum.judge import schema as certainty
from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.figures import Axis, Canvas, clip
from fulcrum.judge.schema import StudyResult
from fulcrum.report.evidence.decisions.decision import Decision

STYLE = """
:root{--page:#fff;--line:#d9d5cd;--ink:#1d1c1a;--soft:#5c5852;--band:#f1eee7;--better:#1f63ad;--worse:#b8500f;--even:#6a6761}
@media (prefers-color-scheme:dark){:root{--page:#16181c;--line:#3a3c41;--ink:#eceae5;--soft:#a9a59d;--band:#24262b;
--better:#74b0f2;--worse:#f0985a;--even:#a5a19a}}
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Liberation Sans",sans-serif;
fill:var(--ink);font-size:13px}
.page{fill:var(--page);stroke:var(--line)}.band{fill:var(--band)}.zero{stroke:var(--soft)}.axis,.rule{stroke:var(--line)}
.title{font-size:19px;font-weight:650}.soft,.tick{fill:var(--soft);font-size:12px}.value{font-variant-numeric:tabular-nums;font-size:12px}
.small{font-size:11px}.strong{font-weight:600}.better{--c:var(--better)}.worse{--c:var(--worse)}.tie,.undecided,.other{--c:var(--even)}
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


def forest(decisions: Sequence[Decision], beside: Sequence[Decision] = (), layout: FigureLayout = WIDE) -> str:
    """The SVG file's text; needs at least one decision with a number. Those `beside` stand below a line: they were held
    against something else."""
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
    canvas.add("rect", x=0.5, y=0.5, width=layout.width - 1.0, height=canvas.height - 1.0, rx=10, class_="page")
    margin = result.plan.smallest_effect
    width = axis(margin) - axis(-margin)
    tip = f"±{number.plain(margin)}: too small to matter"
    for start, end in ((body, middle), (lower, bottom)):
        if end > start:
            canvas.add("rect", x=axis(-margin), y=start - 4, width=width, height=end - start + 4, class_="band", tip=tip)
            canvas.line(axis(0.0), start - 4, axis(0.0), end, "zero")
    canvas.parts += parts
    if layout is WIDE:
        canvas.text(layout.strip[1] + 20, top + 14, f"change [{certainty.level(result)}]", "soft")
        canvas.text(layout.width - layout.edge, top + 14, "time", "soft", "end")
    for place, decision in enumerate(decisions):
        _row(canvas, decision, axis, body + layout.step * (place + 0.5), layout)
    if beside:
        canvas.line(layout.edge, middle + 8, layout.width - layout.edge, middle + 8, "rule")
        canvas.text(layout.edge, middle + 26, BESIDE if layout is WIDE else BESIDE.partition(":")[0], "soft strong")
    for place, decision in enumerate(beside):
        _row(canvas, decision, axis, lower + layout.step * (place + 0.5), layout)
    canvas.scale(axis, bottom + 4, 6 if layout is WIDE else 4)
    desc = "; ".join(f"{one.name} {one.change}, {one.verdict}" for one in (*decisions, *beside))
    return canvas.document(f"{title}: change in {sentences.lowered(result.primary.label)}", desc, STYLE)


def _subtitle(decisions: Sequence[Decision]) -> str:
    """What was measured, over how many pairs, on what."""
    result, pairs = decisions[0].result, sorted({one.pairs for one in decisions if one.pairs})
    seeds = f"{pairs[0]} to {pairs[-1]}" if pairs[1:] else str(pairs[0])
    return (
        f"Change in {sentences.lowered(result.primary.label)} ({sentences.direction(result.primary)}) against the same "
        f"training without it: {seeds} paired seeds, {certainty.level(result)} intervals. Recipe {result.plan.baseline}, "
        f"{result.plan.images:,} images each."
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


def _directions(canvas: Canvas, x: Axis, y: float, result: StudyResult, layout: FigureLayout) -> float:
    left, right = ("← worse", "better →") if result.primary.better == "higher" else ("← better", "worse →")
    canvas.text(layout.strip[0], y, left, "soft")
    canvas.text(layout.strip[1], y, right, "soft", "end")
    return y


def _axis(decisions: Sequence[Decision], layout: FigureLayout) -> Axis:
    """A few wild effects, beyond two and a half times what nine decisions of ten need, are cut off rather than flattening
    all others."""
    rows = [one.effect for one in decisions if one.effect is not None and one.effect.mean is not None]
    margin = decisions[0].result.plan.smallest_effect
    ends = sorted(max(abs(end) for end in (row.mean, row.low, row.high) if end is not None) for row in rows)
    most = max(2.5 * ends[len(ends) - 1 - len(ends) // 10], 3 * margin)
    reach = max((end for end in ends if end <= most), default=most)
    values = [max(-reach, min(reach, end)) for row in rows for end in (row.mean, row.low, row.high) if end is not None]
    return Axis.over([*values, -2 * margin, 2 * margin], layout.strip[0] + 4, layout.strip[1] - 4, pad=0.02)


def _row(canvas: Canvas, decision: Decision, x: Axis, y: float, layout: FigureLayout) -> None:
    effect, narrow = decision.effect, layout is NARROW
    look = decision.verdict if decision.verdict in dict(LEGEND) else "other"
    words, strip = (y - 4, y + 7) if narrow else (y + 4, y)
    _name(canvas, decision, words, layout)
    cost = number.ratio(decision.time)
    if effect is None or effect.mean is None:
        canvas.text(layout.strip[0] + (0 if narrow else 4), strip + 4, _without_number(decision), "soft")
        return
    _strip(canvas, decision, x, strip, look)
    if narrow:
        canvas.text(layout.width - layout.edge, words, decision.change.split(" [")[0], "value strong", "end")
    else:
        canvas.text(layout.strip[1] + 20, words, decision.change, "value" + " strong" * decision.decided)
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
    return ": ".join(part for part in (decision.verdict, certainty.failures(decision.result, decision.arm)) if part)


def _strip(canvas: Canvas, decision: Decision, x: Axis, y: float, look: str) -> None:
    effect = decision.effect
    assert effect is not None and effect.mean is not None
    at, tip = max(x.start, min(x.end, x(effect.mean))), f"{decision.name}: {decision.change}, {decision.verdict}"
    canvas.add("rect", x=min(at, x(0)), y=y - 5, width=abs(at - x(0)), height=10.0, rx=2, class_=f"bar {look}", tip=tip)
    if at != x(effect.mean):  # torn: it goes on beyond the picture
        outward = 1 if at > x(0) else -1
        for gap in (16, 22):
            canvas.line(at - outward * gap - 3, y + 7, at - outward * gap + 3, y - 7, "torn")
        canvas.path([(at - 6 * outward, y - 5), (at, y), (at - 6 * outward, y + 5)], f"whisker {look}")
        return
    if effect.low is not None and effect.high is not None:
        low, high = (max(x.start, min(x.end, x(end))) for end in (effect.low, effect.high))
        canvas.line(low, y, high, y, f"whisker {look}")
    canvas.dot(at, y, 4.5, f"{'ring' if decision.verdict == 'undecided' else 'dot'} {look}", tip)
