"""The report's four kinds of figures as inline SVG: effects, curves, seed pairs, cost against quality."""

import statistics
from collections import defaultdict
from typing import Literal

from markupsafe import Markup

from fulcrum.report import number, sentences
from fulcrum.report.arm_marks import colour
from fulcrum.report.arm_result import ArmResult, CellResult
from fulcrum.report.schema import ShownMetric, StudyResult
from fulcrum.report.svg import Axis, Canvas, frame
from fulcrum.report.table import mean_sd

Line = list[tuple[float, float]]
Lines = dict[str, list[list[tuple[int, float, float]]]]  # arm -> a curve of (images or bin, x, y) per cell
WIDTH, HEIGHT = 420, 270  # of curves and of cost against quality
SEED_LINES = 150  # more lines than the eye can part: only their means are drawn
SEED_DOTS = 40  # pairs that still have room for dots
AXES = {"images": "images seen", "seconds": "seconds of training", "flops": "FLOPs"}
NAMED = 6  # points of a plot that still have room for their names
LOSS_BINS = 80  # a training loss is averaged in bins: single steps are noise


def effects(result: StudyResult, metric: ShownMetric) -> Markup | None:
    """Bars from zero with their intervals, best first; the shaded band is what the plan calls too small to matter."""
    rows = [(arm, result.effect(arm.name, metric.name)) for arm in result.ranked]
    shown = [(arm, row, row.mean) for arm, row in rows if row is not None and row.mean is not None]
    if not shown:
        return None
    step, bottom = 56, 56 * len(shown)
    margin = result.plan.smallest_effect if metric.name == result.primary.name else 0.0
    ends = [end for _, row, mean in shown for end in (mean, row.low, row.high) if end is not None]
    x = Axis.over([*ends, 0.0, -margin, margin], 8, WIDTH - 8, pad=0.03)
    canvas = Canvas(WIDTH, bottom + 40)
    canvas.scale(x, bottom, 5)
    for place, (arm, row, mean) in enumerate(shown):
        y, look = step * place + 28, colour(result, arm)
        change = number.change(mean, row.low, row.high)
        if margin:  # band and zero line stop at each row, so that they cross no words
            canvas.add(
                "rect",
                x=x(-margin),
                y=float(y - 10),
                width=x(margin) - x(-margin),
                height=20.0,
                class_="band",
                tip=f"±{number.plain(margin)}: too small to matter, says the plan",
            )
        canvas.text(x.start, y - 16, _clip(arm.label, 22), "label")
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
    desc = "; ".join(f"{arm.label} {number.change(mean, row.low, row.high)}" for arm, row, mean in shown)
    return canvas.finish(
        f"effects-{_place(result, metric)}", f"Difference from the baseline in {sentences.lowered(metric.label)}", desc
    )


def curves(
    result: StudyResult, metric: ShownMetric, axis: Literal["images", "seconds", "flops"] = "images"
) -> Markup | None:
    """A thin line per seed, a thick one for their mean, against images seen, time or FLOPs."""
    if metric.name not in result.with_curves:
        return None
    return _curves(
        result,
        _lines(result, metric, axis),
        f"curves-{_place(result, metric)}-{axis}",
        f"{metric.label} over {AXES[axis]}",
        AXES[axis],
        metric,
    )


def panels(result: StudyResult, metric: ShownMetric) -> list[Markup]:
    """Over images seen: each arm beside its baseline, to the same scale, best first."""
    lines, ident = _lines(result, metric, "images"), f"curves-{_place(result, metric)}-images"
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
    last = max((point.images for arm in result.arms for cell in arm.cells for point in cell.loss), default=0)
    if not last:
        return None
    lines = {arm.name: [_binned(cell, last) for cell in arm.cells] for arm in result.arms}
    return _curves(result, lines, "losses", "Training loss over images seen", AXES["images"], None)


def _lines(result: StudyResult, metric: ShownMetric, axis: str) -> Lines:
    return {arm.name: [_points(cell, metric.name, axis) for cell in arm.cells] for arm in result.arms}


def _axes(lines: Lines) -> tuple[Axis, Axis] | None:
    """Axes that hold all lines; None where there is nothing to draw."""
    flat = [point for seeds in lines.values() for seed in seeds for point in seed]
    if len({x for _, x, _ in flat}) < 2:
        return None
    return (
        Axis.over([point[1] for point in flat], 50, WIDTH - 24, pad=0.01),
        Axis.over([point[2] for point in flat], HEIGHT - 46, 24, may_log=True),
    )


def _points(cell: CellResult, metric: str, axis: str) -> list[tuple[int, float, float]]:
    readings = ((point.images, getattr(point, axis), point.values.get(metric)) for point in cell.curve)
    return [(images, float(x), y) for images, x, y in readings if x is not None and y is not None]


def _binned(cell: CellResult, last: int) -> list[tuple[int, float, float]]:
    bins: defaultdict[int, list[float]] = defaultdict(list)
    for point in cell.loss:
        if point.loss is not None:
            bins[min(LOSS_BINS - 1, point.images * LOSS_BINS // last)].append(point.loss)
    return [(k, (k + 0.5) * last / LOSS_BINS, statistics.fmean(values)) for k, values in sorted(bins.items())]


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
    shown, axes = result.arms if only is None else (result.base_of(only), only), axes or _axes(lines)
    if axes is None:
        return None
    x, y = axes
    canvas = Canvas(WIDTH, HEIGHT)
    name = metric.label if metric else "Training loss"
    canvas.text(0, 12, name if only is None else f"{result.marks[only.name]}  {_clip(only.label, 26)}", "label")
    note = [sentences.direction(metric) if metric else "", "log scale" if y.log else ""]
    canvas.text(WIDTH - 10, 12, ", ".join(part for part in note if part), "name", "end")
    frame(canvas, x, y, x_name)
    ends_at, crowded = [], sum(len(lines[arm.name]) for arm in shown) > SEED_LINES
    for arm in shown:
        for cell, points in zip(arm.cells, lines[arm.name], strict=True):
            if len(points) > 1 and not crowded:
                canvas.path(
                    [(x(a), y(b)) for _, a, b in points], f"thin {colour(result, arm)}", f"{arm.label}, seed {cell.seed}"
                )
    ends: Line = []
    for arm in reversed(shown):  # means lie on top, and the baseline's over all
        mean = _mean([points for points in lines[arm.name] if points])
        if len(mean) > 1:
            canvas.path([(x(a), y(b)) for a, b in mean], f"thick {colour(result, arm)}", f"{arm.label}, mean")
        if mean:
            px, py = x(mean[-1][0]), y(mean[-1][1])
            canvas.dot(px, py, 3.5, f"dot {colour(result, arm)}")
            canvas.text(px + 6, _free(px, py + 4, ends, 60), result.marks[arm.name], "mark halo")
            ends_at.append(f"{arm.label} ends at {number.plain(mean[-1][1])}")
    kind = "Means over seeds" if crowded else "Thin lines are seeds, thick lines their mean"
    return canvas.finish(ident, title, f"{kind}. " + "; ".join(reversed(ends_at)))


def _mean(seeds: list[list[tuple[int, float, float]]]) -> Line:
    """The mean at every point that all started seeds have reached: a mean over changing seeds would jump."""
    at: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    for points in seeds:
        for key, x, y in points:
            at[key].append((x, y))
    return [
        (statistics.fmean(p[0] for p in at[key]), statistics.fmean(p[1] for p in at[key]))
        for key in sorted(at)
        if len(at[key]) == len(seeds)
    ]


def pairs(result: StudyResult, arm: ArmResult, metric: ShownMetric) -> Markup | None:
    """Every seed as a line from the baseline's value to the arm's: do all seeds agree on the direction?"""
    before, after = result.base_of(arm).finals(metric.name), arm.finals(metric.name)
    both = sorted(before.keys() & after.keys())
    if not both:
        return None
    width, height, left, right = 320, 230, 110.0, 250.0
    y = Axis.over([*(before[seed] for seed in both), *(after[seed] for seed in both)], height - 30, 26)
    canvas, look = Canvas(width, height), colour(result, arm)
    canvas.text(0, 12, f"{metric.label}, seed by seed", "label")
    canvas.grid(y, 56, width - 6)
    for seed in both:
        tip = f"seed {seed}: {number.plain(before[seed])} to {number.plain(after[seed])}"
        canvas.path([(left, y(before[seed])), (right, y(after[seed]))], f"pair {look}", tip)
        if len(both) > SEED_DOTS:
            continue
        canvas.dot(left, y(before[seed]), 3.5, "dot arm-0", tip)
        canvas.dot(right, y(after[seed]), 3.5, f"dot {look}", tip)
    for place, values, kind in ((left, before, "arm-0"), (right, after, look)):
        middle = y(statistics.fmean(values[seed] for seed in both))
        outer = -1 if place == left else 1
        canvas.line(place + 8 * outer, middle, place + 26 * outer, middle, f"mean {kind}")
    canvas.text(left, height - 8, "baseline", "name", "middle")
    canvas.text(right, height - 8, _clip(arm.label, 22), "name", "middle")
    up = sum(after[seed] > before[seed] for seed in both)
    desc = f"{len(both)} seeds, {up} higher with {arm.label}. " + "; ".join(
        f"seed {seed} {number.plain(before[seed])} to {number.plain(after[seed])}" for seed in both
    )
    return canvas.finish(
        f"pairs-{result.place_of(arm)}-{_place(result, metric)}",
        f"{metric.label} of baseline and {arm.label} for every seed",
        desc,
    )


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
        name = result.marks[arm.name] + (f"  {_clip(arm.label, 20)}" if len(points) <= NAMED else "")
        left = tx + 7.5 * len(name) > WIDTH  # no room to the right
        tx = px - 9 - (tx - px - 9) if left else tx
        if abs(ty - py) > 3:
            canvas.line(px + (-4 if left else 4), py, tx + (2 if left else -2), ty, "lead")
        canvas.text(tx, ty + 4, name, "mark halo", "end" if left else "start")
        canvas.line(px, y(mean - sd), px, y(mean + sd), f"whisker {look}")
        canvas.dot(px, py, 5.5, f"dot {look}", f"{arm.label}: {number.spread(mean, sd)} at {number.ratio(cost)}")
    desc = "; ".join(f"{arm.label} {number.spread(mean, sd)} at {number.ratio(cost)}" for arm, cost, mean, sd in points)
    title = f"{metric.label} against {sentences.COSTS[ratio]}"
    return canvas.finish(f"pareto-{ratio}-{_place(result, metric)}", title, desc)


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


def _free(x: float, y: float, taken: Line, width: float) -> float:
    """The nearest height where a label does not lie on one that is already there."""
    for shift in (0, -14, 14, -28, 28, -42, 42):
        if all(abs(y + shift - other) >= 13 or abs(x - place) > width for place, other in taken):
            y += shift
            break
    taken.append((x, y))
    return y


def _clip(label: str, most: int) -> str:
    return label if len(label) <= most else label[: most - 1] + "…"


def _place(result: StudyResult, metric: ShownMetric) -> int:
    return result.metrics.index(metric)
