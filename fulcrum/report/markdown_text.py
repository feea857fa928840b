"""The report as Markdown: for a pull request, a mail, or a terminal."""

import re
from collections.abc import Sequence

from fulcrum.report import run_facts, table
from fulcrum.report.figures import range_figure
from fulcrum.report.schema import StudyResult
from fulcrum.report.wording import certainty, claim_sentences, number, sentences


def markdown(result: StudyResult, more: Sequence[tuple[str, table.Table]] = ()) -> str:
    """The report as Markdown: answers, ranking, all metrics, noise, `more` tables, levers, remarks, how to reproduce."""
    lines = [f"# {_md(result.title)}", ""]
    if result.state != "finished":
        lines += [f"*{result.state.capitalize()}: {result.progress.done} of {result.progress.total} cells done.*", ""]
    lines += [line for headline in sentences.headlines(result) for line in (f"**{_md(headline)}**", "")]
    lines += [f"- {_md(sentences.answer(result, arm))}" for arm in result.best_first]
    more_seeds = sentences.more_seeds(result)
    notes = (
        sentences.shrinkage(result),
        range_figure.standing(result, result.primary),
        range_figure.beside(result.primary),
        certainty.question(result),
        more_seeds,
    )
    lines += [line for note in notes if note for line in ("", _md(note))]
    lines += ["", _code(result.made.command)] if more_seeds else []
    titled = (
        ("Ranking", table.ranking(result)),
        ("Failed", table.failed(result)),
        ("All metrics", table.readings(result)),
        ("Noise", table.noise(result)),
        *more,
    )
    for title, sheet in titled:
        if sheet.rows:
            lines += ["", f"## {title}", "", f"{_md(sheet.caption)}.", "", *_md_rows(sheet)]
    for arm in result.compared:
        made = table.comparisons(result, arm)
        lines += ["", f"## {_md(arm.label)}", "", f"{_code(arm.phrase)}: {_md(arm.says)}", ""]
        lines += [
            f"- {_code(change.path)}: {_code(number.literal(change.before))} → {_code(number.literal(change.after))}"
            for change in arm.diff
        ]
        lines += [f"- costs {_md(sentences.cost(arm))}"] if sentences.cost(arm) else []
        lines += [f"- {_md(sentences.parts(arm))}"] if sentences.parts(arm) else []
        lines += [
            f"- claimed: {_md(claim_sentences.claimed(claim))}, {_md(claim.scope)} ({_md(claim.source)})"
            + (f": {_md(claim.verdict)}" if claim.verdict else "")
            + (f". {_md(seen)}" if (seen := claim_sentences.seen_of(result, arm, claim)) else "")
            for claim in arm.claims
        ]
        lines += [f"- failed: seeds {seeds}: {_md(why)}" for seeds, why in certainty.reasons(arm)]
        lines += ["", *_md_rows(made)] if made.rows else []
    if result.remarks:
        lines += ["", "## Remarks", "", *(f"- {_md(remark)}" for remark in result.remarks)]
    lines += [
        "",
        "## Reproduce",
        "",
        _code(result.made.command),
        "",
        *(f"- {_md(name)}: {_md(value)}" for name, value in run_facts.facts(result)),
    ]
    return "\n".join(lines) + "\n"


def _md_rows(sheet: table.Table) -> list[str]:
    rule = ["---" if i in sheet.text_columns else "---:" for i in range(len(sheet.columns))]
    body = [[_md(value) for value in row] for row in (sheet.columns, *sheet.rows)]
    return ["| " + " | ".join(row) + " |" for row in (body[0], rule, *body[1:])]


def _md(text: str) -> str:
    """Text of the study is text, not markup: neither a table's bar nor a tag nor a link may come from it."""
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """A code span whose fence is longer than any run of backticks inside."""
    flat = " ".join(text.split()).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", flat)), default=0))
    return f"{fence}{flat}{fence}" if len(fence) == 1 else f"{fence} {flat} {fence}"
