"""Differences as inline SVG: the effects on a metric, and every seed of one arm beside its baseline."""

import statistics

from markupsafe import Markup

from fulcrum.report.arm_result import ArmResult
from fulcrum.report.figures.arm_marks import colour
from fulcrum.report.figures.svg import Axis, Canvas, clip
from fulcrum.report.schema import ShownMetric, StudyResult
from fulcrum.report.wording import number, sentences

DIFFERENCE_WIDTH = 420
SEED_DOTS = 40  # pairs that still have room for dots


def effects(result: StudyResult, metric: ShownMetric) -> Markup | None:
    """Bars from zero with their intervals, best first; the shaded band is what the plan calls too small to matter."""
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
        change = number.change(mean, row.low, row.high)
        if margin:  # band and zero line stop at each row, so that they cross no words
            canvas.add(
                "rect",
                x=x(-margin),
                y=float(y - 10),
                width=x(margin) - x(-margin),
                height=20.0,
                class_="band",
                tip=f"±{number.plain(margin)}: too small to matter",
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
    desc = "; ".join(f"{arm.label} {number.change(mean, row.low, row.high)}" for arm, row, mean in shown)
    return canvas.finish(
        f"effects-{result.metrics.index(metric)}",
        f"Difference from the baseline in {sentences.lowered(metric.label)}",
        desc,
    )


def pairs(result: StudyResult, arm: ArmResult, metric: ShownMetric) -> Markup | None:
    """Every seed as a line from the baseline's value to the arm's: do all seeds agree on the direction?"""
    before, after = result.base_of(arm).finals(metric.name), arm.finals(metric.name)
    both = sorted(before.keys() & after.keys())
    if not both:
        return None
    width, height, left, right = 320, 230, 110.0, 250.0
    y = Axis.over([*(before[seed] for seed in both), *(after[seed] for seed in both)], height - 30, 26)
    canvas, base = Canvas(width, height), sentences.base_name(result, arm)
    look, base_look = colour(result, arm), colour(result, result.base_of(arm))
    canvas.text(0, 12, f"{metric.label}, seed by seed", "label")
    canvas.grid(y, 56, width - 6)
    for seed in both:
        tip = f"seed {seed}: {number.plain(before[seed])} to {number.plain(after[seed])}"
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
        f"seed {seed} {number.plain(before[seed])} to {number.plain(after[seed])}" for seed in both
    )
    return canvas.finish(
        f"pairs-{result.place_of(arm)}-{result.metrics.index(metric)}",
        f"{metric.label} of {base.removeprefix('the ')} and {arm.label} for every seed",
        desc,
    )
