"""Quality against cost as inline SVG, with the front that no other arm beats on both."""

import statistics
from typing import Literal

from markupsafe import Markup

from fulcrum.report.figures.arm_marks import colour
from fulcrum.report.figures.svg import Axis, Canvas, clip, frame
from fulcrum.report.schema import ShownMetric, StudyResult
from fulcrum.report.table import mean_sd
from fulcrum.report.wording import number, sentences

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
    y = Axis.over([mean + k * sd for _, _, mean, sd in points for k in (-1, 1)], HEIGHT - 46, 24, pad=0.14)
    canvas = Canvas(WIDTH, HEIGHT)
    canvas.text(0, 12, metric.label, "label")
    canvas.text(WIDTH - 10, 12, sentences.direction(metric), "name", "end")
    frame(canvas, x, y, f"{sentences.COSTS[ratio]}, baseline = 1; cheaper to the left")
    chosen = next((one for one in result.pareto if (one.metric, one.cost) == (metric.name, ratio)), None)
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
        canvas.dot(px, py, 5.5, f"dot {look}", f"{arm.label}: {number.spread(mean, sd)} at {number.ratio(cost)}")
    desc = "; ".join(f"{arm.label} {number.spread(mean, sd)} at {number.ratio(cost)}" for arm, cost, mean, sd in points)
    title = f"{metric.label} against {sentences.COSTS[ratio]}"
    return canvas.finish(f"pareto-{ratio}-{result.metrics.index(metric)}", title, desc)


def front_scale(result: StudyResult) -> str:
    """Where quality against cost is shown: the study's choice, else the largest scale, which is nearest to real use."""
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
    """Places for marks to the right of points: those that crowd share a column, in the points' own order, top to bottom."""
    columns = list[list[int]]()
    for k in sorted(range(len(points)), key=lambda k: points[k]):
        near = [
            column
            for column in columns
            if any(abs(points[k][0] - points[j][0]) < 24 and abs(points[k][1] - points[j][1]) < 26 for j in column)
        ]
        columns = [column for column in columns if column not in near] + [[k, *(j for column in near for j in column)]]
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
