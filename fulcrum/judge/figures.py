"""The figures of the report as inline SVG."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup, escape

from fulcrum.judge import schema, sentences
from fulcrum.judge.schema import ArmResult, CellResult, ShownMetric, StudyResult
from fulcrum.judge.tables import mean_sd

# --------------------------------------------------------------------------------------------------
# A small canvas for inline SVG, and the axes that figures share; colours come from the page's style
# sheet.


def attributes(values: dict[str, object]) -> Markup:
    """`x1=3 class_="grid"` -> ` x1="3" class="grid"`, escaped; names lose a trailing _ and turn _
    into -."""
    return Markup(
        "".join(
            f' {name.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
            for name, value in values.items()
            if value is not None
        )
    )


def _short(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


class Canvas:
    """Collects shapes; `finish` wraps them with the title and the description that a screen reader
    speaks."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height, self.parts = width, height, list[Markup]()

    def add(
        self, tag: str, inner: str | None = None, *, tip: str | None = None, **values: object
    ) -> None:
        body = (f"<title>{escape(tip)}</title>" if tip else "") + (
            escape(inner) if inner is not None else ""
        )
        self.parts.append(Markup(f"<{tag}{attributes(values)}>{body}</{tag}>"))

    def line(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> None:
        self.add("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)

    def text(self, x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> None:
        self.add("text", words, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor)

    def dot(self, x: float, y: float, radius: float, class_: str, tip: str | None = None) -> None:
        self.add("circle", cx=float(x), cy=float(y), r=float(radius), class_=class_, tip=tip)

    def path(
        self, points: Iterable[tuple[float, float]], class_: str, tip: str | None = None
    ) -> None:
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.add("path", d=d, class_=class_, tip=tip)

    def scale(self, x: "Axis", y: float, about: int) -> None:
        """A horizontal axis with its ticks and their values below."""
        self.line(x.start, y, x.end, y, "axis")
        for value in x.ticks(about) if about else []:
            self.line(x(value), y, x(value), y + 4, "axis")
            self.text(x(value), y + 17, schema.short(round(value, 12)), "tick", "middle")

    def grid(self, y: "Axis", left: float, right: float, about: int = 4) -> None:
        """Horizontal lines with their values to the left."""
        for value in y.ticks(about):
            self.line(left, y(value), right, y(value), "grid")
            self.text(left - 6, y(value) + 4, schema.short(round(value, 12)), "tick", "end")

    def directions(self, x: "Axis", y: float, higher: bool) -> None:
        """Which end of an axis of differences is better."""
        self.text(x.start, y, "← worse" if higher else "← better", "name")
        self.text(x.end, y, "better →" if higher else "worse →", "name", "end")

    def document(self, title: str, desc: str, style: str) -> str:
        """A file of its own, with the style sheet that a page would bring."""
        return str(
            Markup(
                '<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w}'
                ' {h}" role="img" aria-labelledby="title desc"><title id="title">{t}</title><desc'
                ' id="desc">{d}</desc><style>{s}</style>\n{body}\n</svg>\n'
            ).format(
                w=_short(self.width),
                h=_short(self.height),
                t=title,
                d=desc,
                s=Markup(style),
                body=Markup("\n").join(self.parts),
            )
        )

    def finish(self, ident: str, title: str, desc: str) -> Markup:
        return Markup(
            '<svg viewBox="0 0 {w} {h}" role="img" aria-labelledby="{i}-title {i}-desc">'
            '<title id="{i}-title">{t}</title><desc id="{i}-desc">{d}</desc>{body}</svg>'
        ).format(
            w=_short(self.width),
            h=_short(self.height),
            i=ident,
            t=title,
            d=desc,
            body=Markup("").join(self.parts),
        )


@dataclass(frozen=True)
class Axis:
    """Maps a value to a place between `start` and `end`; a logarithm when the data span more than a
    factor of 20."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(
        cls,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        pad: float = 0.06,
        may_log: bool = False,
    ) -> "Axis":
        known = list(values) or [0.0, 1.0]
        low, high = min(known), max(known)
        log = may_log and low > 0 and high / low > 20
        if log:
            low, high = math.log10(low), math.log10(high)
        if high == low:
            margin = abs(low) * 0.1 or 1.0
            low, high = low - margin, high + margin
        room = (high - low) * pad
        return cls(low - room, high + room, start, end, log)

    def __call__(self, value: float) -> float:
        inner = math.log10(value) if self.log else value
        return self.start + (inner - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        if self.log:
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            steps = (1, 2, 5) if self.high - self.low < 3 else (1,)
            marks = [step * 10.0**decade for decade in decades for step in steps]
            return [value for value in marks if self.low <= math.log10(value) <= self.high]
        raw = (self.high - self.low) / about
        size = 10.0 ** math.floor(math.log10(raw))
        step = next((size * k for k in (1, 2, 2.5, 5) if size * k >= raw), size * 10)
        first = math.ceil(self.low / step)
        return [k * step + 0.0 for k in range(first, math.floor(self.high / step) + 1)]


def frame(canvas: Canvas, x: Axis, y: Axis, x_name: str, *, x_ticks: int = 4) -> None:
    """Horizontal grid lines with their values, a base line with ticks, the name of the x axis."""
    bottom = max(y.start, y.end)
    canvas.grid(y, x.start, x.end)
    canvas.scale(x, bottom, x_ticks)
    canvas.text(x.end, bottom + 33, x_name, "name", "end")


def clip(label: str, most: int) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


# --------------------------------------------------------------------------------------------------
# How an arm is recognised in every figure, beside its mark: a hue, and a dash where hues repeat.


COLOURS = 7  # hues of the style sheet beside the baseline's grey


def colour(result: StudyResult, arm: ArmResult) -> str:
    """The style-sheet classes of an arm: grey for a baseline, then hues in the order of the plan;
    one decision keeps its hue at every scale."""
    # a combination of levers has none of its own
    if result.is_base(arm) or arm.root not in result.decisions:
        return "arm-0"
    place = result.decisions.index(arm.root)
    return f"arm-{1 + place % COLOURS}" + (" again" if place >= COLOURS else "")


# --------------------------------------------------------------------------------------------------
# Quality against cost as inline SVG, with the front that no other arm beats on both.


Line = list[tuple[float, float]]
WIDTH, HEIGHT = 420, 270
NAMED = 6  # points of a plot that still have room for their names


def pareto(
    result: StudyResult,
    metric: ShownMetric,
    ratio: Literal["time_ratio", "flops_ratio"] = "time_ratio",
) -> Markup | None:
    """Quality against cost; the line joins the arms that no other arm beats on both."""
    scale, points = front_scale(result), []
    for arm in result.arms:
        mean, sd = mean_sd(arm, metric.name)
        cost = getattr(arm.cost, ratio) if not result.is_base(arm) else 1.0
        if mean is not None and cost is not None and arm.scale == scale:
            points.append((arm, cost, mean, sd or 0.0))
    if len(points) < 2:
        return None
    x = Axis.over([cost for _, cost, _, _ in points], 50, WIDTH - 10, pad=0.18)
    y = Axis.over(
        [mean + k * sd for _, _, mean, sd in points for k in (-1, 1)], HEIGHT - 46, 24, pad=0.14
    )
    canvas = Canvas(WIDTH, HEIGHT)
    canvas.text(0, 12, metric.label, "label")
    canvas.text(WIDTH - 10, 12, sentences.direction(metric), "name", "end")
    frame(canvas, x, y, f"{sentences.COSTS[ratio]}, baseline = 1; cheaper to the left")
    chosen = next(
        (one for one in result.pareto if (one.metric, one.cost) == (metric.name, ratio)), None
    )
    names = {point.arm for point in chosen.points if point.front} if chosen else None
    front = (
        sorted((cost, mean) for arm, cost, mean, _ in points if arm.name in names)
        if names is not None
        else _front([(cost, mean) for _, cost, mean, _ in points], metric.better == "higher")
    )
    if len(front) > 1:
        canvas.path([(x(cost), y(mean)) for cost, mean in front], "front")
    places = _apart([(x(cost), y(mean)) for _, cost, mean, _ in points])
    for (arm, cost, mean, sd), (tx, ty) in zip(points, places, strict=True):
        look, px, py = colour(result, arm), x(cost), y(mean)
        name = result.marks[arm.name] + (f"  {clip(arm.label, 20)}" if len(points) <= NAMED else "")
        left = tx + 7.5 * len(name) > WIDTH  # no room to the right
        tx = px - 9 - (tx - px - 9) if left else tx
        if abs(ty - py) > 3:
            canvas.line(px + (-4 if left else 4), py, tx + (2 if left else -2), ty, "lead")
        canvas.text(tx, ty + 4, name, "mark halo", "end" if left else "start")
        canvas.line(px, y(mean - sd), px, y(mean + sd), f"whisker {look}")
        canvas.dot(
            px,
            py,
            5.5,
            f"dot {look}",
            f"{arm.label}: {schema.spread(mean, sd)} at {schema.ratio(cost)}",
        )
    desc = "; ".join(
        f"{arm.label} {schema.spread(mean, sd)} at {schema.ratio(cost)}"
        for arm, cost, mean, sd in points
    )
    title = f"{metric.label} against {sentences.COSTS[ratio]}"
    return canvas.finish(f"pareto-{ratio}-{result.metrics.index(metric)}", title, desc)


def front_scale(result: StudyResult) -> str:
    """Where quality against cost is shown: the study's choice, else the largest scale, which is
    nearest to real use."""
    on_front = {point.arm for front in result.pareto for point in front.points}
    chosen = next((arm.scale for arm in result.arms if arm.name in on_front), None)
    return chosen if chosen is not None else result.scales[-1].name if result.scales else ""


def _front(points: Line, higher: bool) -> Line:
    """Points that no cheaper (or equally dear) point matches, cheapest first."""
    sign, best, front = (1 if higher else -1), float("-inf"), []
    for cost, mean in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if sign * mean > best:
            best = sign * mean
            front.append((cost, mean))
    return front


def _apart(points: Line) -> Line:
    """Places for marks to the right of points: those that crowd share a column, in the points' own
    order, top to bottom."""
    columns = list[list[int]]()
    for k in sorted(range(len(points)), key=lambda k: points[k]):
        near = [
            column
            for column in columns
            if any(
                abs(points[k][0] - points[j][0]) < 24 and abs(points[k][1] - points[j][1]) < 26
                for j in column
            )
        ]
        columns = [column for column in columns if column not in near] + [
            [k, *(j for column in near for j in column)]
        ]
    placed: dict[int, tuple[float, float]] = {}
    for column in columns:
        rows = sorted(column, key=lambda k: points[k][1])
        heights = [points[k][1] for k in rows]
        for i in range(1, len(rows)):  # downwards, then the whole column back to its middle
            heights[i] = max(heights[i], heights[i - 1] + 13)
        shift = statistics.fmean(points[k][1] for k in rows) - statistics.fmean(heights)
        right = max(points[k][0] for k in rows) + (9 if len(rows) == 1 else 16)
        placed |= {k: (right, height + shift) for k, height in zip(rows, heights, strict=True)}
    return [placed[k] for k in range(len(points))]


# --------------------------------------------------------------------------------------------------
# Differences as inline SVG: the effects on a metric, and every seed of one arm beside its baseline.


DIFFERENCE_WIDTH = 420
SEED_DOTS = 40  # pairs that still have room for dots


def effects(result: StudyResult, metric: ShownMetric) -> Markup | None:
    """Bars from zero with their intervals, best first; the shaded band is what the plan calls too
    small to matter."""
    rows = [(arm, result.effect(arm.name, metric.name)) for arm in result.ranked]
    shown = [(arm, row, row.mean) for arm, row in rows if row is not None and row.mean is not None]
    if not shown:
        return None
    step, bottom = 56, 56 * len(shown)
    own = next((row.margin for _, row, _ in shown if row.margin is not None), 0.0)
    margin = result.plan.smallest_effect if metric.name == result.primary.name else own
    ends = [end for _, row, mean in shown for end in (mean, row.low, row.high) if end is not None]
    x = Axis.over([*ends, 0.0, -margin, margin], 8, DIFFERENCE_WIDTH - 8, pad=0.03)
    canvas = Canvas(DIFFERENCE_WIDTH, bottom + 40)
    canvas.scale(x, bottom, 5)
    for place, (arm, row, mean) in enumerate(shown):
        y, look = step * place + 28, colour(result, arm)
        change = schema.change(mean, row.low, row.high)
        if margin:  # band and zero line stop at each row, so that they cross no words
            canvas.add(
                "rect",
                x=x(-margin),
                y=float(y - 10),
                width=x(margin) - x(-margin),
                height=20.0,
                class_="band",
                tip=f"±{schema.plain(margin)}: too small to matter",
            )
        canvas.text(x.start, y - 16, clip(arm.label, 22), "label")
        canvas.text(x.end, y - 16, change, "value", "end")
        canvas.add(
            "rect",
            x=min(x(0), x(mean)),
            y=float(y - 6),
            width=abs(x(mean) - x(0)),
            height=12.0,
            class_=f"bar {look}",
            tip=f"{arm.label}: {change}",
        )
        if row.low is not None and row.high is not None:
            canvas.line(x(row.low), y, x(row.high), y, f"whisker {look}")
            for end in (row.low, row.high):
                canvas.line(x(end), y - 5, x(end), y + 5, f"whisker {look}")
        canvas.line(x(0), y - 11, x(0), y + 11, "zero")
        canvas.dot(x(mean), y, 4, f"dot {look}")
    canvas.directions(x, bottom + 34, metric.better == "higher")
    desc = "; ".join(
        f"{arm.label} {schema.change(mean, row.low, row.high)}" for arm, row, mean in shown
    )
    return canvas.finish(
        f"effects-{result.metrics.index(metric)}",
        f"Difference from the baseline in {sentences.lowered(metric.label)}",
        desc,
    )


def pairs(result: StudyResult, arm: ArmResult, metric: ShownMetric) -> Markup | None:
    """Every seed as a line from the baseline's value to the arm's: do all seeds agree on the
    direction?"""
    before, after = result.base_of(arm).finals(metric.name), arm.finals(metric.name)
    both = sorted(before.keys() & after.keys())
    if not both:
        return None
    width, height, left, right = 320, 230, 110.0, 250.0
    y = Axis.over(
        [*(before[seed] for seed in both), *(after[seed] for seed in both)], height - 30, 26
    )
    canvas, base = Canvas(width, height), sentences.base_name(result, arm)
    look, base_look = colour(result, arm), colour(result, result.base_of(arm))
    canvas.text(0, 12, f"{metric.label}, seed by seed", "label")
    canvas.grid(y, 56, width - 6)
    for seed in both:
        tip = f"seed {seed}: {schema.plain(before[seed])} to {schema.plain(after[seed])}"
        canvas.path([(left, y(before[seed])), (right, y(after[seed]))], f"pair {look}", tip)
        if len(both) > SEED_DOTS:
            continue
        canvas.dot(left, y(before[seed]), 3.5, f"dot {base_look}", tip)
        canvas.dot(right, y(after[seed]), 3.5, f"dot {look}", tip)
    for place, values, kind in ((left, before, base_look), (right, after, look)):
        middle = y(statistics.fmean(values[seed] for seed in both))
        outer = -1 if place == left else 1
        canvas.line(place + 8 * outer, middle, place + 26 * outer, middle, f"mean {kind}")
    canvas.text(left, height - 8, clip(base.removeprefix("the "), 16), "name", "middle")
    canvas.text(right, height - 8, clip(arm.label, 22), "name", "middle")
    up = sum(after[seed] > before[seed] for seed in both)
    desc = f"{len(both)} seeds, {up} higher with {arm.label}. " + "; ".join(
        f"seed {seed} {schema.plain(before[seed])} to {schema.plain(after[seed])}" for seed in both
    )
    return canvas.finish(
        f"pairs-{result.place_of(arm)}-{result.metrics.index(metric)}",
        f"{metric.label} of {base.removeprefix('the ')} and {arm.label} for every seed",
        desc,
    )


# --------------------------------------------------------------------------------------------------
# Where the baseline stands on a metric, between pictures that show nothing and real ones: a bar as
# SVG, and words.


RANGE_WIDTH, RANGE_HEIGHT = 420, 74
NAMES = {"another scene": "another scene's picture", "noise": "noise", "grey": "a grey picture"}
LETTER = 6.6  # width of a letter of a label


class Bound(NamedTuple):
    name: str
    value: float


def floors(metric: ShownMetric) -> list[Bound]:
    """What pictures that show nothing get, the best of them first: below it nothing was learned."""
    known = [
        Bound(NAMES.get(name, name), value)
        for name, value in metric.floors.items()
        if value is not None
    ]
    return sorted(known, key=lambda bound: bound.value, reverse=metric.better == "higher")


def standing(result: StudyResult, metric: ShownMetric) -> str:
    """'The baseline, 0.50, stands 38 % of the way from another scene's picture (0.23) to real
    pictures (0.93).'"""
    known, mean = floors(metric), mean_sd(result.baseline, metric.name)[0]
    if not known or mean is None:
        return ""
    best, places = known[0], _places(metric, mean)
    here, floor = schema.plain(mean, places), f"{best.name} ({schema.plain(best.value, places)})"
    unlearned = any(
        row.metric == metric.name and row.verdict == "not learned" for row in result.effects
    )
    if unlearned or mean == best.value or (mean > best.value) != (metric.better == "higher"):
        return f"The baseline, {here}, is no better than {floor}: it has not learned this yet."
    if metric.ceiling is None or metric.ceiling == best.value:
        return f"The baseline, {here}, is better than {floor}."
    share = 100 * (mean - best.value) / (metric.ceiling - best.value)
    real = schema.plain(metric.ceiling, places)
    return (
        f"The baseline, {here}, stands {share:.0f} % of the way from {floor} to real pictures"
        f" ({real})."
    )


def _places(metric: ShownMetric, mean: float) -> int:
    """Decimals that the eye can tell apart on the bar."""
    ends = [
        mean,
        *(bound.value for bound in floors(metric)),
        *([] if metric.ceiling is None else [metric.ceiling]),
    ]
    return schema.decimals((max(ends) - min(ends)) / 30)


def beside(metric: ShownMetric) -> str:
    """What the other pictures that show nothing get, and how far a second judge agrees."""
    rest = [f"{bound.name} gets {schema.plain(bound.value)}" for bound in floors(metric)[1:]]
    marks = f"Of the bar's other marks, {sentences.listed(rest)}." if rest else ""
    second = (
        f"A second judge checks the first: {metric.agreement.removesuffix('.')}."
        if metric.agreement
        else ""
    )
    return " ".join(part for part in (marks, second) if part)


def bar(result: StudyResult, metric: ShownMetric) -> Markup | None:
    """Floor, baseline, ceiling on one axis, worse to the left whatever the metric's sign; every
    arm's mean as a mark."""
    known, mean = floors(metric), mean_sd(result.baseline, metric.name)[0]
    if not known or mean is None:
        return None
    readings = [(arm, mean_sd(arm, metric.name)[0]) for arm in result.arms]
    means = [(arm, value) for arm, value in readings if value is not None]
    ends = [*(bound.value for bound in known), *(value for _, value in means)]
    ends += [] if metric.ceiling is None else [metric.ceiling]
    start, end = (4, RANGE_WIDTH - 4) if metric.better == "higher" else (RANGE_WIDTH - 4, 4)
    x, y = Axis.over(ends, start, end, pad=0.02), 36.0
    floor, places = x(known[0].value), _places(metric, mean)
    right = RANGE_WIDTH - 4 if metric.ceiling is None else x(metric.ceiling)
    canvas = Canvas(RANGE_WIDTH, RANGE_HEIGHT)
    canvas.add("rect", x=4.0, y=y - 7, width=max(0.0, right - 4), height=14.0, rx=3, class_="track")
    canvas.add("rect", x=4.0, y=y - 7, width=max(0.0, floor - 4), height=14.0, rx=3, class_="floor")
    reached = x(mean)
    if reached > floor:
        canvas.add("rect", x=floor, y=y - 7, width=reached - floor, height=14.0, class_="learned")
    ceiling = [Bound("real pictures", metric.ceiling)] if metric.ceiling is not None else []
    for name, value in (*known, *ceiling):
        tip = f"{name}: {schema.plain(value)}"
        canvas.add("line", x1=x(value), y1=y - 7, x2=x(value), y2=y + 11, class_="bound", tip=tip)
    for arm, value in means[1:]:
        canvas.dot(
            x(value), y, 3.5, f"seed {colour(result, arm)}", f"{arm.label}: {schema.plain(value)}"
        )
    canvas.line(reached, y - 11, reached, y + 11, "zero")
    _label(canvas, reached, 16, f"baseline {schema.plain(mean, places)}", "label")
    low = f"{known[0].name} {schema.plain(known[0].value, places)}"
    if metric.ceiling is None:
        _label(canvas, floor, 64, low, "name")
    else:
        high = f"real pictures {schema.plain(metric.ceiling, places)}"
        _label(
            canvas, min(floor, right - LETTER * (len(low) / 2 + len(high)) - 16), 64, low, "name"
        )
        _label(canvas, right, 64, high, "name")
    title = f"{metric.label}: the baseline between floor and ceiling"
    return canvas.finish(f"range-{result.metrics.index(metric)}", title, standing(result, metric))


def _label(canvas: Canvas, x: float, y: float, words: str, class_: str) -> None:
    """Centred on its place, but never beyond the picture."""
    half = LETTER * len(words) / 2
    anchor = "start" if x < half else "end" if x > RANGE_WIDTH - half else "middle"
    canvas.text(
        max(
            0.0,
            min(RANGE_WIDTH, x if anchor == "middle" else 0 if anchor == "start" else RANGE_WIDTH),
        ),
        y,
        words,
        class_,
        anchor,
    )


# --------------------------------------------------------------------------------------------------
# Curves of metrics and of the training loss as inline SVG: over images seen, time or FLOPs.


CurvePoints = list[tuple[float, float]]
# arm -> a curve of (images or bin, x, y) per cell
Lines = dict[str, list[list[tuple[int, float, float]]]]
CURVE_WIDTH, CURVE_HEIGHT = 420, 270
SEED_LINES = 150  # more lines than the eye can part: only their means are drawn
AXES = {"images": "images seen", "seconds": "seconds of training", "flops": "FLOPs"}
LOSS_BINS = 80  # a training loss is averaged in bins: single steps are noise


def curves(
    result: StudyResult, metric: ShownMetric, axis: Literal["images", "seconds", "flops"] = "images"
) -> Markup | None:
    """A thin line per seed, a thick one for their mean, against images seen, time or FLOPs."""
    if metric.name not in result.with_curves:
        return None
    return _curves(
        result,
        _lines(result, metric, axis),
        f"curves-{result.metrics.index(metric)}-{axis}",
        f"{metric.label} over {AXES[axis]}",
        AXES[axis],
        metric,
    )


def panels(result: StudyResult, metric: ShownMetric) -> list[Markup]:
    """Over images seen: each arm beside its baseline, to the same scale, best first."""
    lines, ident = _lines(result, metric, "images"), f"curves-{result.metrics.index(metric)}-images"
    axes = _axes(lines)
    drawn = [
        _curves(
            result,
            lines,
            f"{ident}-{result.place_of(arm)}",
            f"{metric.label} over {AXES['images']}: {arm.label} and its baseline",
            AXES["images"],
            metric,
            arm,
            axes,
        )
        for arm in result.best_first
        if any(lines[arm.name])
    ]
    return [one for one in drawn if one is not None]


def losses(result: StudyResult) -> Markup | None:
    """The training loss, averaged in bins of images."""
    last = max(
        (point.images for arm in result.arms for cell in arm.cells for point in cell.loss),
        default=0,
    )
    if not last:
        return None
    lines = {arm.name: [_binned(cell, last) for cell in arm.cells] for arm in result.arms}
    return _curves(result, lines, "losses", "Training loss over images seen", AXES["images"], None)


def _lines(result: StudyResult, metric: ShownMetric, axis: str) -> Lines:
    return {
        arm.name: [_points(cell, metric.name, axis) for cell in arm.cells] for arm in result.arms
    }


def _axes(lines: Lines) -> tuple[Axis, Axis] | None:
    """Axes that hold all lines; None where there is nothing to draw."""
    flat = [point for seeds in lines.values() for seed in seeds for point in seed]
    if len({x for _, x, _ in flat}) < 2:
        return None
    return (
        Axis.over([point[1] for point in flat], 50, CURVE_WIDTH - 24, pad=0.01),
        Axis.over([point[2] for point in flat], CURVE_HEIGHT - 46, 24, may_log=True),
    )


def _points(cell: CellResult, metric: str, axis: str) -> list[tuple[int, float, float]]:
    readings = (
        (point.images, getattr(point, axis), point.values.get(metric)) for point in cell.curve
    )
    return [(images, float(x), y) for images, x, y in readings if x is not None and y is not None]


def _binned(cell: CellResult, last: int) -> list[tuple[int, float, float]]:
    bins: defaultdict[int, list[float]] = defaultdict(list)
    for point in cell.loss:
        if point.loss is not None:
            bins[min(LOSS_BINS - 1, point.images * LOSS_BINS // last)].append(point.loss)
    return [
        (k, (k + 0.5) * last / LOSS_BINS, statistics.fmean(values))
        for k, values in sorted(bins.items())
    ]


def _curves(
    result: StudyResult,
    lines: Lines,
    ident: str,
    title: str,
    x_name: str,
    metric: ShownMetric | None,
    only: ArmResult | None = None,
    axes: tuple[Axis, Axis] | None = None,
) -> Markup | None:
    shown, axes = (
        result.arms if only is None else (result.base_of(only), only),
        axes or _axes(lines),
    )
    if axes is None:
        return None
    x, y = axes
    canvas = Canvas(CURVE_WIDTH, CURVE_HEIGHT)
    name = metric.label if metric else "Training loss"
    canvas.text(
        0,
        12,
        name if only is None else f"{result.marks[only.name]}  {clip(only.label, 26)}",
        "label",
    )
    note = [sentences.direction(metric) if metric else "", "log scale" if y.log else ""]
    canvas.text(CURVE_WIDTH - 10, 12, ", ".join(part for part in note if part), "name", "end")
    frame(canvas, x, y, x_name)
    if metric is not None:
        _bounds(canvas, metric, x, y)
    ends_at, crowded = [], sum(len(lines[arm.name]) for arm in shown) > SEED_LINES
    for arm in shown:
        for cell, points in zip(arm.cells, lines[arm.name], strict=True):
            if len(points) > 1 and not crowded:
                canvas.path(
                    [(x(a), y(b)) for _, a, b in points],
                    f"thin {colour(result, arm)}",
                    f"{arm.label}, seed {cell.seed}",
                )
    ends: CurvePoints = []
    for arm in reversed(shown):  # means lie on top, and the baseline's over all
        mean = _mean(_lasting(arm, lines[arm.name]))
        if len(mean) > 1:
            canvas.path(
                [(x(a), y(b)) for a, b in mean],
                f"thick {colour(result, arm)}",
                f"{arm.label}, mean",
            )
        if mean:
            px, py = x(mean[-1][0]), y(mean[-1][1])
            canvas.dot(px, py, 3.5, f"dot {colour(result, arm)}")
            canvas.text(px + 6, _free(px, py + 4, ends, 60), result.marks[arm.name], "mark halo")
            ends_at.append(f"{arm.label} ends at {schema.plain(mean[-1][1])}")
    kind = "Means over seeds" if crowded else "Thin lines are seeds, thick lines their mean"
    return canvas.finish(ident, title, f"{kind}. " + "; ".join(reversed(ends_at)))


def _bounds(canvas: Canvas, metric: ShownMetric, x: Axis, y: Axis) -> None:
    """Lines at the best that pictures without a meaning get and at what real ones get, where the
    picture reaches them."""
    known = [("shows nothing", floors(metric)[0].value)] if floors(metric) else []
    known += [("real pictures", metric.ceiling)] if metric.ceiling is not None else []
    for name, value in known:
        if (value > 0 or not y.log) and min(y.start, y.end) <= y(value) <= max(y.start, y.end):
            canvas.line(x.start, y(value), x.end, y(value), "front")
            canvas.text(x.end, y(value) - 4, name, "name halo", "end")


def _lasting(
    arm: ArmResult, lines: list[list[tuple[int, float, float]]]
) -> list[list[tuple[int, float, float]]]:
    """Curves that a mean may be taken of: those of failed cells end early, and are left out unless
    all failed."""
    begun = [(cell.state, points) for cell, points in zip(arm.cells, lines, strict=True) if points]
    return [points for state, points in begun if state != "failed"] or [
        points for _, points in begun
    ]


def _mean(seeds: list[list[tuple[int, float, float]]]) -> CurvePoints:
    """The mean at every point that all started seeds have reached: a mean over changing seeds would
    jump."""
    at: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for points in seeds:
        for key, x, y in points:
            at[key].append((x, y))
    return [
        (statistics.fmean(p[0] for p in at[key]), statistics.fmean(p[1] for p in at[key]))
        for key in sorted(at)
        if len(at[key]) == len(seeds)
    ]


def _free(x: float, y: float, taken: CurvePoints, width: float) -> float:
    """The nearest height where a label does not lie on one that is already there."""
    for shift in (0, -14, 14, -28, 28, -42, 42):
        if all(abs(y + shift - other) >= 13 or abs(x - place) > width for place, other in taken):
            y += shift
            break
    taken.append((x, y))
    return y
