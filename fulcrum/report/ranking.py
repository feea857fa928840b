"""The ranking that opens the page: a row per lever with its verdict, every seed and the interval to one scale, its cost."""

from typing import NamedTuple

from markupsafe import Markup

from fulcrum.report.arm_result import ArmResult
from fulcrum.report.figures.arm_marks import colour
from fulcrum.report.figures.svg import Axis, Canvas
from fulcrum.report.finding import Effect
from fulcrum.report.schema import StudyResult
from fulcrum.report.wording import certainty, number, sentences

WIDTH, HEIGHT = 360, 34
MIDDLE, SEEDS = 12.0, 26.0  # heights of the interval, and of the row of seeds below it


class Row(NamedTuple):
    arm: ArmResult
    base: bool
    mark: str  # its place in the ranking; figures use the same mark
    verdict: str
    change: str
    strip: Markup
    time: str
    other: str  # the verdict with something else held equal, or the difference where it is exploratory
    remarks: list[str]  # what must stand beside the verdict: failures, missing pairs, warnings


class Group(NamedTuple):
    scale: str
    rows: list[Row]


class Ranking(NamedTuple):
    groups: list[Group]
    ruler: Markup | None  # None: nothing was compared yet
    other: str  # what the second comparison holds equal; empty: there is none
    seeds: bool  # single seeds are drawn


def ranking(result: StudyResult) -> Ranking:
    """All arms, scale by scale, best first; baselines stand at zero among them."""
    axis, order = _axis(result), result.ranked
    made = {row.unit for row in result.effects if row.metric == result.primary.name}
    unit = next((unit for unit in ("time", "seconds", "flops") if unit in made), "")
    rows = [_row(result, arm, axis, place, unit) for place, arm in enumerate(order)]
    scales = [scale.name for scale in result.scales] or [""]
    groups = [Group(scale, [row for row in rows if row.arm.scale == scale]) for scale in scales]
    if result.scales:  # an arm without a scale in a study that has some is not lost
        groups.append(Group("", [row for row in rows if not row.arm.scale]))
    return Ranking(
        [group for group in groups if group.rows],
        _ruler(result, axis) if axis else None,
        sentences.held_equal(unit) if unit else "",
        axis is not None and any(_differences(result, arm) for arm in result.compared),
    )


def _axis(result: StudyResult) -> Axis | None:
    """One axis for all rows, so that the eye can compare. A wild interval or seed is cut off rather than shrinking the
    rest."""
    rows = [effect for arm in result.compared if (effect := result.effect(arm.name, result.primary.name))]
    means = [row.mean for row in rows if row.mean is not None]
    if not means:
        return None
    margin = result.plan.smallest_effect
    reach = 3 * max(*(abs(mean) for mean in means), margin)
    seeds = [value for arm in result.compared for value in _differences(result, arm).values()]
    ends = [end for row in rows for end in (row.low, row.high) if end is not None]
    ends = [max(-reach, min(reach, end)) for end in (*ends, *seeds)]
    return Axis.over([*means, *ends, 0.0, -margin, margin], 6, WIDTH - 6, pad=0.03)


def _row(result: StudyResult, arm: ArmResult, axis: Axis | None, place: int, unit: str) -> Row:
    effect, base = result.effect(arm.name, result.primary.name), result.is_base(arm)
    others = [row for row in result.effects_of(arm) if (row.metric, row.unit) == (result.primary.name, unit)]
    return Row(
        arm,
        base,
        result.marks[arm.name],
        "" if base else sentences.verdict_of(result, arm),
        number.change(effect.mean, effect.low, effect.high) if effect else number.NONE,
        _strip(result, arm, effect, axis, place) if axis else Markup(""),
        number.ratio(1.0 if base else arm.cost.time_ratio),
        _other(others[0]) if others else "",
        [] if base else certainty.remarks(result, arm),
    )


def _other(effect: Effect) -> str:
    return number.change(effect.mean, effect.low, effect.high) if effect.exploratory else effect.verdict


def _differences(result: StudyResult, arm: ArmResult) -> dict[int, float]:
    """Seed -> arm minus what it is compared with, on the primary metric."""
    if result.fraction is not None:
        return result.fraction.by_seed.get(arm.name, {})
    before, after = (one.finals(result.primary.name) for one in (result.base_of(arm), arm))
    return {seed: after[seed] - before[seed] for seed in sorted(before.keys() & after.keys())}


def _strip(result: StudyResult, arm: ArmResult, effect: Effect | None, x: Axis, place: int) -> Markup:
    canvas, y, margin = Canvas(WIDTH, HEIGHT), MIDDLE, result.plan.smallest_effect
    canvas.add("rect", x=x(-margin), y=0.0, width=x(margin) - x(-margin), height=float(HEIGHT), class_="band")
    canvas.line(x(0), 0, x(0), HEIGHT, "zero")
    title = f"{arm.label}: the baseline" if result.is_base(arm) else f"{arm.label}: no answer yet"
    if effect is not None and effect.mean is not None:
        title = f"{arm.label}: {number.change(effect.mean, effect.low, effect.high)}, {effect.verdict}"
        look = colour(result, arm)
        if effect.low is not None and effect.high is not None:
            for end, outward in ((effect.low, -1), (effect.high, 1)):
                at = max(x.start, min(x.end, x(end)))
                canvas.line(x(effect.mean), y, at, y, f"whisker {look}")
                if at == x(end):
                    canvas.line(at, y - 6, at, y + 6, f"whisker {look}")
                else:  # an arrow: the interval goes on beyond the picture
                    canvas.path([(at - 6 * outward, y - 5), (at, y), (at - 6 * outward, y + 5)], f"whisker open-end {look}")
        canvas.dot(x(effect.mean), y, 5.5, f"{'dot' if effect.verdict in sentences.DECIDED else 'ring'} {look}")
    seeds = {} if result.is_base(arm) else _differences(result, arm)
    for seed, value in seeds.items():
        at, tip = x(value), f"seed {seed}: {number.change(value, None, None)}"
        if x.start <= at <= x.end:
            canvas.dot(at, SEEDS, 3.0, f"seed {colour(result, arm)}", tip)
        else:  # beyond the picture
            at, outward = max(x.start, min(x.end, at)), 1 if at > x.end else -1
            canvas.path(
                [(at - 5 * outward, SEEDS - 4), (at, SEEDS), (at - 5 * outward, SEEDS + 4)],
                f"whisker open-end {colour(result, arm)}",
                tip,
            )
    desc = "; ".join(f"seed {seed} {number.change(value, None, None)}" for seed, value in seeds.items())
    return canvas.finish(f"strip-{place}", title, desc)


def _ruler(result: StudyResult, x: Axis) -> Markup:
    canvas = Canvas(WIDTH, 40)
    canvas.scale(x, 1, 5)
    canvas.directions(x, 36, result.primary.better == "higher")
    label, direction = sentences.lowered(result.primary.label), sentences.direction(result.primary)
    title = f"Scale of the strips: difference in {label}, {direction}"
    return canvas.finish("strip-ruler", title, "")
