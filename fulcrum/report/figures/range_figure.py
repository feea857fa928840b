"""Where the baseline stands on a metric, between pictures that show nothing and real ones: a bar as SVG, and words."""

from typing import NamedTuple

from markupsafe import Markup

from fulcrum.report.figures.arm_marks import colour
from fulcrum.report.figures.svg import Axis, Canvas
from fulcrum.report.schema import ShownMetric, StudyResult
from fulcrum.report.table import mean_sd
from fulcrum.report.wording import number, sentences

RANGE_WIDTH, RANGE_HEIGHT = 420, 74
NAMES = {"another scene": "another scene's picture", "noise": "noise", "grey": "a grey picture"}
LETTER = 6.6  # width of a letter of a label


class Bound(NamedTuple):
    name: str
    value: float


def floors(metric: ShownMetric) -> list[Bound]:
    """What pictures that show nothing get, the best of them first: below it nothing was learned."""
    known = [Bound(NAMES.get(name, name), value) for name, value in metric.floors.items() if value is not None]
    return sorted(known, key=lambda bound: bound.value, reverse=metric.better == "higher")


def standing(result: StudyResult, metric: ShownMetric) -> str:
    """'The baseline, 0.50, stands 38 % of the way from another scene's picture (0.23) to real pictures (0.93).'"""
    known, mean = floors(metric), mean_sd(result.baseline, metric.name)[0]
    if not known or mean is None:
        return ""
    best, places = known[0], _places(metric, mean)
    here, floor = number.plain(mean, places), f"{best.name} ({number.plain(best.value, places)})"
    unlearned = any(row.metric == metric.name and row.verdict == "not learned" for row in result.effects)
    if unlearned or mean == best.value or (mean > best.value) != (metric.better == "higher"):
        return f"The baseline, {here}, is no better than {floor}: it has not learned this yet."
    if metric.ceiling is None or metric.ceiling == best.value:
        return f"The baseline, {here}, is better than {floor}."
    share = 100 * (mean - best.value) / (metric.ceiling - best.value)
    real = number.plain(metric.ceiling, places)
    return f"The baseline, {here}, stands {share:.0f} % of the way from {floor} to real pictures ({real})."


def _places(metric: ShownMetric, mean: float) -> int:
    """Decimals that the eye can tell apart on the bar."""
    ends = [mean, *(bound.value for bound in floors(metric)), *([] if metric.ceiling is None else [metric.ceiling])]
    return number.decimals((max(ends) - min(ends)) / 30)


def beside(metric: ShownMetric) -> str:
    """What the other pictures that show nothing get, and how far a second judge agrees."""
    rest = [f"{bound.name} gets {number.plain(bound.value)}" for bound in floors(metric)[1:]]
    marks = f"Of the bar's other marks, {sentences.listed(rest)}." if rest else ""
    second = f"A second judge checks the first: {metric.agreement.removesuffix('.')}." if metric.agreement else ""
    return " ".join(part for part in (marks, second) if part)


def bar(result: StudyResult, metric: ShownMetric) -> Markup | None:
    """Floor, baseline, ceiling on one axis, worse to the left whatever the metric's sign; every arm's mean as a mark."""
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
        tip = f"{name}: {number.plain(value)}"
        canvas.add("line", x1=x(value), y1=y - 7, x2=x(value), y2=y + 11, class_="bound", tip=tip)
    for arm, value in means[1:]:
        canvas.dot(x(value), y, 3.5, f"seed {colour(result, arm)}", f"{arm.label}: {number.plain(value)}")
    canvas.line(reached, y - 11, reached, y + 11, "zero")
    _label(canvas, reached, 16, f"baseline {number.plain(mean, places)}", "label")
    low = f"{known[0].name} {number.plain(known[0].value, places)}"
    if metric.ceiling is None:
        _label(canvas, floor, 64, low, "name")
    else:
        high = f"real pictures {number.plain(metric.ceiling, places)}"
        _label(canvas, min(floor, right - LETTER * (len(low) / 2 + len(high)) - 16), 64, low, "name")
        _label(canvas, right, 64, high, "name")
    title = f"{metric.label}: the baseline between floor and ceiling"
    return canvas.finish(f"range-{result.metrics.index(metric)}", title, standing(result, metric))


def _label(canvas: Canvas, x: float, y: float, words: str, class_: str) -> None:
    """Centred on its place, but never beyond the picture."""
    half = LETTER * len(words) / 2
    anchor = "start" if x < half else "end" if x > RANGE_WIDTH - half else "middle"
    canvas.text(
        max(0.0, min(RANGE_WIDTH, x if anchor == "middle" else 0 if anchor == "start" else RANGE_WIDTH)),
        y,
        words,
        class_,
        anchor,
    )
