"""Sections of the report: the ranking, effects by scale, interactions, time to target."""

import statistics
from typing import NamedTuple

from markupsafe import Markup

from fulcrum.judge import schema, sentences
from fulcrum.judge.figures import Axis, Canvas, colour, frame
from fulcrum.judge.schema import ArmResult, Effect, StudyResult
from fulcrum.judge.tables import Table, mean_sd

# --------------------------------------------------------------------------------------------------
# The ranking that opens the page: a row per lever with its verdict, every seed and the interval to
# one scale, its cost.


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
    #: the verdict with something else held equal, or the difference where it is exploratory
    other: str
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
    """One axis for all rows, so that the eye can compare. A wild interval or seed is cut off rather
    than shrinking the rest."""
    rows = [
        effect
        for arm in result.compared
        if (effect := result.effect(arm.name, result.primary.name))
    ]
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
    others = [
        row
        for row in result.effects_of(arm)
        if (row.metric, row.unit) == (result.primary.name, unit)
    ]
    return Row(
        arm,
        base,
        result.marks[arm.name],
        "" if base else sentences.verdict_of(result, arm),
        schema.change(effect.mean, effect.low, effect.high) if effect else schema.NONE,
        _strip(result, arm, effect, axis, place) if axis else Markup(""),
        schema.ratio(1.0 if base else arm.cost.time_ratio),
        _other(others[0]) if others else "",
        [] if base else schema.remarks(result, arm),
    )


def _other(effect: Effect) -> str:
    return (
        schema.change(effect.mean, effect.low, effect.high)
        if effect.exploratory
        else effect.verdict
    )


def _differences(result: StudyResult, arm: ArmResult) -> dict[int, float]:
    """Seed -> arm minus what it is compared with, on the primary metric."""
    if result.fraction is not None:
        return result.fraction.by_seed.get(arm.name, {})
    before, after = (one.finals(result.primary.name) for one in (result.base_of(arm), arm))
    return {seed: after[seed] - before[seed] for seed in sorted(before.keys() & after.keys())}


def _strip(
    result: StudyResult, arm: ArmResult, effect: Effect | None, x: Axis, place: int
) -> Markup:
    canvas, y, margin = Canvas(WIDTH, HEIGHT), MIDDLE, result.plan.smallest_effect
    canvas.add(
        "rect",
        x=x(-margin),
        y=0.0,
        width=x(margin) - x(-margin),
        height=float(HEIGHT),
        class_="band",
    )
    canvas.line(x(0), 0, x(0), HEIGHT, "zero")
    title = f"{arm.label}: the baseline" if result.is_base(arm) else f"{arm.label}: no answer yet"
    if effect is not None and effect.mean is not None:
        title = (
            f"{arm.label}: {schema.change(effect.mean, effect.low, effect.high)}, {effect.verdict}"
        )
        look = colour(result, arm)
        if effect.low is not None and effect.high is not None:
            for end, outward in ((effect.low, -1), (effect.high, 1)):
                at = max(x.start, min(x.end, x(end)))
                canvas.line(x(effect.mean), y, at, y, f"whisker {look}")
                if at == x(end):
                    canvas.line(at, y - 6, at, y + 6, f"whisker {look}")
                else:  # an arrow: the interval goes on beyond the picture
                    canvas.path(
                        [(at - 6 * outward, y - 5), (at, y), (at - 6 * outward, y + 5)],
                        f"whisker open-end {look}",
                    )
        canvas.dot(
            x(effect.mean),
            y,
            5.5,
            f"{'dot' if effect.verdict in sentences.DECIDED else 'ring'} {look}",
        )
    seeds = {} if result.is_base(arm) else _differences(result, arm)
    for seed, value in seeds.items():
        at, tip = x(value), f"seed {seed}: {schema.change(value, None, None)}"
        if x.start <= at <= x.end:
            canvas.dot(at, SEEDS, 3.0, f"seed {colour(result, arm)}", tip)
        else:  # beyond the picture
            at, outward = max(x.start, min(x.end, at)), 1 if at > x.end else -1
            canvas.path(
                [(at - 5 * outward, SEEDS - 4), (at, SEEDS), (at - 5 * outward, SEEDS + 4)],
                f"whisker open-end {colour(result, arm)}",
                tip,
            )
    desc = "; ".join(
        f"seed {seed} {schema.change(value, None, None)}" for seed, value in seeds.items()
    )
    return canvas.finish(f"strip-{place}", title, desc)


def _ruler(result: StudyResult, x: Axis) -> Markup:
    canvas = Canvas(WIDTH, 40)
    canvas.scale(x, 1, 5)
    canvas.directions(x, 36, result.primary.better == "higher")
    label, direction = sentences.lowered(result.primary.label), sentences.direction(result.primary)
    title = f"Scale of the strips: difference in {label}, {direction}"
    return canvas.finish("strip-ruler", title, "")


# --------------------------------------------------------------------------------------------------
# Figures and tables of what a study may add: effects by scale, interactions, time to target,
# sweeps, probes.


SEES = {"worse": "sees it", "better": "likes it", "stays": "unmoved"}


def trends(result: StudyResult) -> list[Markup]:
    """One panel per decision: its effect with interval at every scale."""
    places = {scale.name: scale.at for scale in result.scales if scale.at is not None}
    points = []
    for arm in result.compared:
        row = result.effect(arm.name, result.primary.name)
        if arm.scale in places and row is not None and row.mean is not None:
            points.append((arm, places[arm.scale], row.mean, row))
    if len({at for _, at, _, _ in points}) < 2:
        return []
    x = Axis.over([at for _, at, _, _ in points], 50, 396, pad=0.1)
    return [
        _trend(result, root, [one for one in points if one[0].root == root], x)
        for root in dict.fromkeys(arm.root for arm, *_ in points)
    ]


def _trend(
    result: StudyResult, root: str, points: list[tuple[ArmResult, float, float, Effect]], x: Axis
) -> Markup:
    ends = [
        end for _, _, mean, row in points for end in (mean, row.low, row.high) if end is not None
    ]
    y = Axis.over([*ends, 0.0], 190, 24)  # each its own: effects of levers differ by orders of size
    canvas, first = Canvas(420, 236), points[0][0]
    look, label = colour(result, first), sentences.plain(first)
    canvas.text(0, 12, label, "label")
    canvas.text(410, 12, f"effect, {sentences.direction(result.primary)}", "name", "end")
    frame(canvas, x, y, "scale", x_ticks=0)
    canvas.line(x.start, y(0), x.end, y(0), "zero")
    readings = []
    if len(points) > 1:
        canvas.path([(x(at), y(mean)) for _, at, mean, _ in points], f"thick {look}")
    for arm, at, mean, row in points:
        if row.low is not None and row.high is not None:
            canvas.line(x(at), y(row.low), x(at), y(row.high), f"whisker {look}")
        canvas.dot(x(at), y(mean), 4.5, f"dot {look}")
        canvas.text(x(at), 207, arm.scale, "tick", "middle")
        readings.append(f"{arm.scale} {schema.change(mean, row.low, row.high)}")
    place = result.decisions.index(root)
    return canvas.finish(f"trend-{place}", f"Effect of {label} by scale", "; ".join(readings))


def trend_table(result: StudyResult) -> Table:
    names = {arm.root: sentences.plain(arm) for arm in result.compared}
    rows = tuple(
        (
            names[row.arm],
            result.metric(row.metric).label,
            schema.change(row.slope, row.low, row.high),
            row.axis,
            str(row.n),
            row.verdict,
        )
        for row in result.trends
    )
    return Table(
        "How each effect moves with scale",
        ("lever", "metric", "change of the effect [interval]", "per", "pairs", "verdict"),
        rows,
        (0, 1, 3, 5),
    )


def scale_table(result: StudyResult) -> Table:
    rows = tuple(
        (
            scale.name,
            ", ".join(scale.settings) or schema.NONE,
            schema.short(scale.parameters) if scale.parameters else schema.NONE,
            str(scale.tokens) if scale.tokens else schema.NONE,
            schema.short(scale.flops) if scale.flops else schema.NONE,
        )
        for scale in result.scales
    )
    return Table(
        "The scales", ("scale", "settings", "parameters", "tokens", "training FLOPs"), rows, (0, 1)
    )


def interaction_table(result: StudyResult) -> Table:
    names = {arm.root: sentences.plain(arm) for arm in result.compared}
    rows = []
    for row in result.interactions:
        effects = [result.effect(name, row.metric) for name in (row.a, row.b)]
        effects += [result.effect(f"{row.a} + {row.b}", row.metric)] * (result.fraction is None)
        rows.append(
            (
                f"{names[row.a]} × {names[row.b]}",
                result.metric(row.metric).label,
                *(schema.change(one.mean, None, None) if one else schema.NONE for one in effects),
                schema.change(row.mean, row.low, row.high),
                str(row.n),
                schema.probability(row.p_adjusted),
                row.verdict,
            )
        )
    heads = (
        ("first alone", "second alone", "both")
        if result.fraction is None
        else ("first, on average", "second, on average")
    )
    columns = ("pair", "metric", *heads, "beyond the sum [interval]", "pairs", "p", "verdict")
    return Table(
        "What two levers do together beyond the sum of each alone; zero means that their effects"
        " add up",
        columns,
        tuple(rows),
        (0, 1, len(columns) - 1),
    )


def target_table(result: StudyResult) -> Table:
    names, rows = {arm.name: arm.label for arm in result.arms}, []
    for row in result.time_to_target:
        ratio = schema.NONE if row.ratio is None else schema.ratio(row.ratio)
        if row.low is not None and row.high is not None:
            ratio += f" [{schema.ratio(row.low)}, {schema.ratio(row.high)}]"
        rows.append(
            (
                names[row.arm],
                f"{result.metric(row.metric).label} {schema.plain(row.target)}",
                sentences.EQUAL.get(row.unit, row.unit),
                ratio,
                f"{row.reached} of {row.n}",
            )
        )
    return Table(
        "What an arm needs to get where the baseline ends, against what the baseline needs; below 1"
        " is sooner",
        ("arm", "target", "counted in", "needed [interval]", "seeds that got there"),
        tuple(rows),
        (0, 1, 2),
    )


def combination_table(result: StudyResult) -> Table:
    """Which levers were on in which combination of a fraction, and what each gave."""
    assert result.fraction is not None
    names, metric = {arm.root: sentences.plain(arm) for arm in result.compared}, result.primary
    rows = [
        (
            result.marks[arm.name],
            *("on" if one else "" for one in on),
            schema.spread(*mean_sd(arm, metric.name)),
            f"{arm.count('done')} of {len(arm.cells)}"
            + (f", {arm.count('failed')} failed" if arm.count("failed") else ""),
        )
        for arm, on in zip(result.trained, result.fraction.on, strict=True)
    ]
    heads = (names.get(lever, lever) for lever in result.fraction.levers)
    return Table(
        f"The combinations that were trained, with their {sentences.lowered(metric.label)} (mean ±"
        " sd over seeds)",
        ("combination", *heads, sentences.lowered(metric.label), "seeds done"),
        tuple(rows),
        tuple(range(len(result.fraction.levers) + 1)),
    )


def string_table(result: StudyResult) -> Table:
    """Pairs that were not chosen, those together that a fraction cannot tell apart."""
    names = {arm.root: sentences.plain(arm) for arm in result.compared}
    rows = tuple(
        (
            " or ".join(f"{names[a]} × {names[b]}" for a, b in row.pairs),
            schema.change(row.mean, row.low, row.high),
            str(row.n),
            schema.probability(row.p_adjusted),
        )
        for row in (result.fraction.strings if result.fraction else ())
    )
    return Table(
        "Pairs that were not chosen: the sum of what those in a line do beyond their levers'"
        " effects, for reading",
        ("pairs that stand together", "beyond the sum [interval]", "seeds", "p"),
        rows,
    )


def sweep_table(result: StudyResult) -> Table:
    names, rows = {arm.name: arm.label for arm in result.trained}, []
    rates = sorted({one.rate for row in result.sweeps for one in row.tries})
    for row in result.sweeps:
        values = []
        for rate in rates:
            losses = [one.value for one in row.tries if one.rate == rate and one.value is not None]
            text = schema.plain(statistics.fmean(losses), 4) if losses else schema.NONE
            values.append(f"{text} (chosen)" if rate == row.chosen else text)
        rows.append(
            (
                names[row.arm],
                *values,
                f"{row.images:,}" if row.images else schema.NONE,
                row.note or schema.NONE,
            )
        )
    metric = sentences.lowered(result.sweeps[0].metric.replace("_", " ")) if result.sweeps else ""
    return Table(
        f"The same search for every arm: mean {metric} at multiples of the recipe's learning rate",
        ("arm", *(f"× {schema.plain(rate)}" for rate in rates), "images spent", "note"),
        tuple(rows),
        (0, len(rates) + 2),
    )


def probe_table(result: StudyResult) -> Table | None:
    """Rows are faults, columns metrics; '!' where a metric did not answer as its card declares."""
    if result.probes is None:
        return None
    known = {metric.name: metric.label for metric in result.metrics}
    cells = {(cell.probe, cell.metric): cell for cell in result.probes.cells}
    metrics, rows = [fair.metric for fair in result.probes.fair], []
    for probe, done in result.probes.probes.items():
        row = [done]
        for metric in metrics:
            cell = cells.get((probe, metric))
            odd = cell is not None and cell.declared not in (None, "depends", cell.found)
            row.append(schema.NONE if cell is None else SEES[cell.found] + (" (!)" if odd else ""))
        rows.append(tuple(row))
    heads = (known.get(name, name.replace("_", " ").capitalize()) for name in metrics)
    return Table(
        f"What each metric does when a known fault is put into {result.probes.n:,} pictures of"
        f" {result.probes.pictures}",
        ("fault", *heads),
        tuple(rows),
        tuple(range(len(metrics) + 1)),
    )


def tables(result: StudyResult) -> list[tuple[str, Table]]:
    """All optional tables that have rows, with their titles: for Markdown."""
    probes = probe_table(result)
    titled = [
        ("Scales", scale_table(result)),
        ("Trends", trend_table(result)),
        ("Interactions", interaction_table(result)),
        *(
            [("Combinations", combination_table(result)), ("Other pairs", string_table(result))]
            if result.fraction
            else []
        ),
        ("Time to target", target_table(result)),
        ("Learning rates", sweep_table(result)),
        *([("What each metric sees", probes)] if probes else []),
    ]
    return [(title, table) for title, table in titled if table.rows]
