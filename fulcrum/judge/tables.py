"""The tables of the report as rows of text and as CSV."""

import csv
import io
import math
import statistics
from dataclasses import dataclass

from fulcrum.judge import schema, sentences
from fulcrum.judge.schema import ArmResult, Effect, StudyResult
from fulcrum.spec.errors import inert

COSTS = tuple(sentences.COSTS)


@dataclass(frozen=True)
class Table:
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: tuple[int, ...] = (0,)  # the others hold numbers and stand to the right


def mean_sd(arm: ArmResult, metric: str) -> tuple[float | None, float | None]:
    values = list(arm.finals(metric).values())
    if not values:
        return None, None
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None  # not `statistics.stdev`: it reckons in fractions, fifty times slower
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def ranking(result: StudyResult) -> Table:
    metric, rows = result.primary, []
    for arm in result.ranked:
        effect, base = result.effect(arm.name, metric.name), result.is_base(arm)
        change = schema.change(effect.mean, effect.low, effect.high) if effect else schema.NONE
        rows.append(
            (
                arm.label,
                schema.spread(*mean_sd(arm, metric.name)),
                "baseline" if base else change,
                _shrunk(effect),
                _pairs(effect) if effect else str(len(arm.finals(metric.name))),
                schema.probability(effect.p_adjusted if effect else None),
                schema.ratio(1.0 if base else arm.cost.time_ratio),
                "" if base else sentences.verdict_of(result, arm),
                "" if base else "; ".join(schema.remarks(result, arm)),
            )
        )
    columns = (
        "arm",
        f"{sentences.lowered(metric.label)} (mean ± sd)",
        f"difference [{schema.level(result)} interval]",
        "shrunk",
        "pairs",
        "p",
        "time",
        "verdict",
        "remarks",
    )
    # differences to other things
    several = any(not result.is_base(result.base_of(arm)) for arm in result.ranked)
    order = (
        "the best difference first, each to what its remark names, or else to the baseline"
        if several
        else "best first"
    )
    return Table(
        f"{metric.label}, {sentences.direction(metric)}; {order}", columns, tuple(rows), (0, 7, 8)
    )


def _pairs(effect: Effect) -> str:
    return f"{effect.n} of {effect.planned}" if effect.n < effect.planned else str(effect.n)


def _shrunk(effect: Effect | None) -> str:
    if effect is None or effect.shrunk is None:
        return schema.NONE
    return schema.change(effect.shrunk, effect.low, effect.high).split(" [")[0]


def readings(result: StudyResult) -> Table:
    """Every arm on every metric."""
    rows = tuple(
        (arm.label, *(schema.spread(*mean_sd(arm, metric.name)) for metric in result.metrics))
        for arm in (result.ranked if result.fraction is None else result.trained)
    )
    heads = tuple(f"{metric.label} ({metric.better})" for metric in result.metrics)
    return Table("Mean ± standard deviation over the finished seeds", ("arm", *heads), rows)


def comparisons(result: StudyResult, arm: ArmResult) -> Table:
    """Every comparison that was made for one arm."""
    rows = []
    for effect in result.effects_of(arm):
        metric = result.metric(effect.metric)
        rows.append(
            (
                metric.label,
                sentences.held_equal(effect.unit),
                schema.change(effect.mean, effect.low, effect.high),
                schema.NONE if effect.margin is None else f"±{schema.plain(effect.margin)}",
                _pairs(effect),
                schema.plain(effect.correlation, 2),
                schema.probability(effect.p_adjusted),
                "exploratory" if effect.exploratory else effect.verdict,
                effect.claim_verdict or schema.NONE,
            )
        )
    columns = (
        "metric",
        "at",
        f"difference [{schema.level(result)} interval]",
        "too small to matter",
        "pairs",
        "correlation",
        "p",
        "verdict",
        "against the claim",
    )
    return Table(f"Everything compared for {arm.label}", columns, tuple(rows), (0, 1, 7, 8))


def failed(result: StudyResult) -> Table:
    """Every cell that failed, and why: an outcome of its arm."""
    rows = tuple(
        (arm.label, seeds, why) for arm in result.trained for seeds, why in schema.reasons(arm)
    )
    caption = (
        "A failed cell is an outcome, which counts against its arm; --retry-failed runs it again"
    )
    return Table(caption, ("arm", "seeds", "why"), rows, (0, 1, 2))


def noise(result: StudyResult) -> Table:
    rows = []
    for row in result.noise:
        metric = result.metric(row.metric)
        cv = schema.NONE if row.cv is None else f"{schema.plain(100 * row.cv, 1)} %"
        rows.append(
            (
                metric.label,
                schema.plain(row.mean),
                schema.plain(row.sd),
                cv,
                str(row.n),
                schema.plain(result.detectable.get(row.metric)),
            )
        )
    columns = (
        "metric",
        "baseline mean",
        "sd over seeds",
        "sd / mean",
        "seeds",
        "detectable, noisiest lever",
    )
    return Table(
        "The baseline, repeated: what changes when only the seed does", columns, tuple(rows)
    )


# Columns of a comparison in the CSV, each a field of its record, in the order in which they were
# added.
FIELDS = (
    "unit",
    "n",
    "mean",
    "low",
    "high",
    "correlation",
    "p_adjusted",
    "verdict",
    "claim_verdict",
    "shrunk",
    "tie_low",
    "tie_high",
    "margin",
    "planned",
    "failed",
    "unlike",
    "exploratory",
    "detectable",
)


def csv_text(result: StudyResult) -> str:
    """One line per arm and comparison, full precision, with the final value of every seed beside
    it."""
    seeds = sorted({cell.seed for arm in result.arms for cell in arm.cells})
    head = [
        "arm",
        "label",
        "against",
        "metric",
        *FIELDS,
        "warnings",
        "note",
        "arm_mean",
        "arm_sd",
        *COSTS,
    ]
    rows: list[list[object]] = []
    for arm in result.arms:
        costs = [getattr(arm.cost, name) for name in COSTS]
        against = "" if result.is_base(arm) else result.base_of(arm).name
        for metric in result.metrics:
            finals, headline = arm.finals(metric.name), result.effect(arm.name, metric.name)
            made = [row for row in result.effects_of(arm) if row.metric == metric.name]
            either: list[Effect | None] = [*made] or [None]
            for effect in either:
                # Final values belong to equal images; beside another comparison they would mislead.
                own = effect is headline
                values = [finals.get(seed) if own else None for seed in seeds]
                if effect:
                    stats = [
                        *(getattr(effect, name) for name in FIELDS),
                        "; ".join(effect.warnings),
                        effect.note,
                    ]
                else:
                    stats = [len(finals) if name == "n" else None for name in FIELDS] + ["", ""]
                means = mean_sd(arm, metric.name) if own else (None, None)
                rows.append(
                    [arm.name, arm.label, against, metric.name, *stats, *means, *costs, *values]
                )
    out = io.StringIO()
    head += [f"seed_{seed}" for seed in seeds]
    csv.writer(out, lineterminator="\n").writerows(
        [head, *([_csv(value) for value in row] for row in rows)]
    )
    return out.getvalue()


def _csv(value: object) -> object:
    """A text that a spreadsheet would run as a formula gets an apostrophe; numbers stay numbers."""
    if not isinstance(value, str):
        return value
    safe = "'" + value if value[:1] in "=+-@\t\r" and value else value
    return safe if safe.isprintable() else inert(safe)
