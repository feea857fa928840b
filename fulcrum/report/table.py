"""The report's tables as rows of text, and their Markdown and CSV forms."""

import csv
import io
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fulcrum.report import number, sentences
from fulcrum.report.arm_result import ArmResult
from fulcrum.report.finding import Effect
from fulcrum.report.schema import StudyResult

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
        change = number.change(effect.mean, effect.low, effect.high) if effect else number.NONE
        rows.append(
            (
                arm.label,
                number.spread(*mean_sd(arm, metric.name)),
                "baseline" if base else change,
                str(effect.n) if effect else str(len(arm.finals(metric.name))),
                number.probability(effect.p_adjusted if effect else None),
                number.ratio(1.0 if base else arm.cost.time_ratio),
                "" if base else sentences.verdict_of(result, arm),
            )
        )
    columns = (
        "arm",
        f"{sentences.lowered(metric.label)} (mean ± sd)",
        "difference [interval]",
        "seeds",
        "p",
        "time",
        "verdict",
    )
    return Table(f"{metric.label}, {sentences.direction(metric)}; best first", columns, tuple(rows), (0, 6))


def readings(result: StudyResult) -> Table:
    """Every arm on every metric."""
    rows = tuple(
        (arm.label, *(number.spread(*mean_sd(arm, metric.name)) for metric in result.metrics)) for arm in result.ranked
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
                number.change(effect.mean, effect.low, effect.high),
                str(effect.n),
                number.plain(effect.correlation, 2),
                number.probability(effect.p_adjusted),
                effect.verdict,
                effect.claim_verdict or number.NONE,
            )
        )
    columns = ("metric", "at", "difference [interval]", "pairs", "correlation", "p", "verdict", "against the claim")
    return Table(f"Everything compared for {arm.label}", columns, tuple(rows), (0, 1, 6, 7))


def noise(result: StudyResult) -> Table:
    rows = []
    for row in result.noise:
        metric = result.metric(row.metric)
        cv = number.NONE if row.cv is None else f"{number.plain(100 * row.cv, 1)} %"
        rows.append(
            (
                metric.label,
                number.plain(row.mean),
                number.plain(row.sd),
                cv,
                str(row.n),
                number.plain(result.detectable.get(row.metric)),
            )
        )
    columns = ("metric", "baseline mean", "sd over seeds", "sd / mean", "seeds", "detectable, noisiest lever")
    return Table("The baseline, repeated: what changes when only the seed does", columns, tuple(rows))


def markdown(result: StudyResult, more: Sequence[tuple[str, Table]] = ()) -> str:
    """The report as Markdown: answers, ranking, all metrics, noise, `more` tables, levers, remarks, how to reproduce."""
    lines = [f"# {_md(result.title)}", ""]
    if result.state != "finished":
        lines += [f"*{result.state.capitalize()}: {result.progress.done} of {result.progress.total} cells done.*", ""]
    lines += [line for headline in sentences.headlines(result) for line in (f"**{_md(headline)}**", "")]
    lines += [f"- {_md(sentences.answer(result, arm))}" for arm in result.best_first]
    for title, table in (("Ranking", ranking(result)), ("All metrics", readings(result)), ("Noise", noise(result)), *more):
        if table.rows:
            lines += ["", f"## {title}", "", f"{_md(table.caption)}.", "", *_md_rows(table)]
    for arm in result.compared:
        table = comparisons(result, arm)
        lines += ["", f"## {_md(arm.label)}", "", f"{_code(arm.phrase)}: {_md(arm.says)}", ""]
        lines += [
            f"- {_code(change.path)}: {_code(number.literal(change.before))} → {_code(number.literal(change.after))}"
            for change in arm.diff
        ]
        lines += [f"- costs {_md(sentences.cost(arm))}"] if sentences.cost(arm) else []
        lines += [f"- {_md(sentences.parts(arm))}"] if sentences.parts(arm) else []
        lines += [
            f"- claimed: {_md(sentences.claimed(claim))}, {_md(claim.scope)} ({_md(claim.source)})"
            + (f": {_md(claim.verdict)}" if claim.verdict else "")
            + (f". {_md(sentences.seen_of(result, arm, claim))}" if sentences.seen_of(result, arm, claim) else "")
            for claim in arm.claims
        ]
        lines += ["", *_md_rows(table)] if table.rows else []
    if result.remarks:
        lines += ["", "## Remarks", "", *(f"- {_md(remark)}" for remark in result.remarks)]
    lines += [
        "",
        "## Reproduce",
        "",
        _code(result.made.command),
        "",
        f"Fulcrum {_md(result.made.version)}, {_md(result.made.date)}, {_md(result.made.machine)}, "
        f"plan {_code(result.plan.hash)}.",
    ]
    return "\n".join(lines) + "\n"


def _md_rows(table: Table) -> list[str]:
    rule = ["---" if i in table.text_columns else "---:" for i in range(len(table.columns))]
    body = [[_md(value) for value in row] for row in (table.columns, *table.rows)]
    return ["| " + " | ".join(row) + " |" for row in (body[0], rule, *body[1:])]


def _md(text: str) -> str:
    """Text of the study is text, not markup: neither a table's bar nor a tag nor a link may come from it."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """A code span whose fence is longer than any run of backticks inside."""
    flat = " ".join(text.split()).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", flat)), default=0))
    return f"{fence}{flat}{fence}" if len(fence) == 1 else f"{fence} {flat} {fence}"


def csv_text(result: StudyResult) -> str:
    """One line per arm and comparison, full precision, with the final value of every seed beside it."""
    seeds = sorted({cell.seed for arm in result.arms for cell in arm.cells})
    head = [
        "arm",
        "label",
        "metric",
        "unit",
        "n",
        "mean",
        "low",
        "high",
        "correlation",
        "p_adjusted",
        "verdict",
        "claim_verdict",
        "arm_mean",
        "arm_sd",
        *COSTS,
        *(f"seed_{seed}" for seed in seeds),
    ]
    rows: list[list[object]] = []
    for arm in result.arms:
        costs = [getattr(arm.cost, name) for name in COSTS]
        for metric in result.metrics:
            finals, headline = arm.finals(metric.name), result.effect(arm.name, metric.name)
            made = [row for row in result.effects_of(arm) if row.metric == metric.name]
            either: list[Effect | None] = [*made] or [None]
            for effect in either:
                # Final values belong to equal images; beside another comparison they would mislead.
                own = effect is headline
                values = [finals.get(seed) if own else None for seed in seeds]
                stats = (
                    [
                        effect.unit,
                        effect.n,
                        effect.mean,
                        effect.low,
                        effect.high,
                        effect.correlation,
                        effect.p_adjusted,
                        effect.verdict,
                        effect.claim_verdict,
                    ]
                    if effect
                    else [None, len(finals), *[None] * 7]
                )
                means = mean_sd(arm, metric.name) if own else (None, None)
                rows.append([arm.name, arm.label, metric.name, *stats, *means, *costs, *values])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([head, *([_csv(value) for value in row] for row in rows)])
    return out.getvalue()


def _csv(value: object) -> object:
    """A text that a spreadsheet would run as a formula gets an apostrophe; numbers stay numbers."""
    return "'" + value if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
