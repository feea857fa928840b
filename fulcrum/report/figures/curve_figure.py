"""Curves of metrics and of the training loss as inline SVG: over images seen, time or FLOPs."""

import statistics
from collections import defaultdict
from typing import Literal

from markupsafe import Markup

from fulcrum.report.arm_result import ArmResult, CellResult
from fulcrum.report.figures.arm_marks import colour
from fulcrum.report.figures.range_figure import floors
from fulcrum.report.figures.svg import Axis, Canvas, clip, frame
from fulcrum.report.schema import ShownMetric, StudyResult
from fulcrum.report.wording import number, sentences

CurvePoints = list[tuple[float, float]]
Lines = dict[str, list[list[tuple[int, float, float]]]]  # arm -> a curve of (images or bin, x, y) per cell
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
        Axis.over([point[1] for point in flat], 50, CURVE_WIDTH - 24, pad=0.01),
        Axis.over([point[2] for point in flat], CURVE_HEIGHT - 46, 24, may_log=True),
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
    canvas = Canvas(CURVE_WIDTH, CURVE_HEIGHT)
    name = metric.label if metric else "Training loss"
    canvas.text(0, 12, name if only is None else f"{result.marks[only.name]}  {clip(only.label, 26)}", "label")
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
                    [(x(a), y(b)) for _, a, b in points], f"thin {colour(result, arm)}", f"{arm.label}, seed {cell.seed}"
                )
    ends: CurvePoints = []
    for arm in reversed(shown):  # means lie on top, and the baseline's over all
        mean = _mean(_lasting(arm, lines[arm.name]))
        if len(mean) > 1:
            canvas.path([(x(a), y(b)) for a, b in mean], f"thick {colour(result, arm)}", f"{arm.label}, mean")
        if mean:
            px, py = x(mean[-1][0]), y(mean[-1][1])
            canvas.dot(px, py, 3.5, f"dot {colour(result, arm)}")
            canvas.text(px + 6, _free(px, py + 4, ends, 60), result.marks[arm.name], "mark halo")
            ends_at.append(f"{arm.label} ends at {number.plain(mean[-1][1])}")
    kind = "Means over seeds" if crowded else "Thin lines are seeds, thick lines their mean"
    return canvas.finish(ident, title, f"{kind}. " + "; ".join(reversed(ends_at)))


def _bounds(canvas: Canvas, metric: ShownMetric, x: Axis, y: Axis) -> None:
    """Lines at the best that pictures without a meaning get and at what real ones get, where the picture reaches them."""
    known = [("shows nothing", floors(metric)[0].value)] if floors(metric) else []
    known += [("real pictures", metric.ceiling)] if metric.ceiling is not None else []
    for name, value in known:
        if (value > 0 or not y.log) and min(y.start, y.end) <= y(value) <= max(y.start, y.end):
            canvas.line(x.start, y(value), x.end, y(value), "front")
            canvas.text(x.end, y(value) - 4, name, "name halo", "end")


def _lasting(arm: ArmResult, lines: list[list[tuple[int, float, float]]]) -> list[list[tuple[int, float, float]]]:
    """Curves that a mean may be taken of: those of failed cells end early, and are left out unless all failed."""
    begun = [(cell.state, points) for cell, points in zip(arm.cells, lines, strict=True) if points]
    return [points for state, points in begun if state != "failed"] or [points for _, points in begun]


def _mean(seeds: list[list[tuple[int, float, float]]]) -> CurvePoints:
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


def _free(x: float, y: float, taken: CurvePoints, width: float) -> float:
    """The nearest height where a label does not lie on one that is already there."""
    for shift in (0, -14, 14, -28, 28, -42, 42):
        if all(abs(y + shift - other) >= 13 or abs(x - place) > width for place, other in taken):
            y += shift
            break
    taken.append((x, y))
    return y
