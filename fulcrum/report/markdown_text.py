"""The report as Markdown: for a pull request, a mail, or a terminal."""

import re
from collections.abc import Sequence

from fulcrum.report import run_facts, table
from fulcrum.report.figures import range_figure
from fulcrum.report.schema import StudyResult
from fulcrum.report.wording import certainty, claim_sentences, number, sentences
from fulcrum.spec.errors import inert


def markdown(result: StudyResult, more: Sequence[tuple[str, table.Table]] = ()) -> str:
    """The report as Markdown: answers, ranking, all metrics, noise, `more` tables, levers, remarks, how to reproduce."""
    lines = [f"# {escaped(result.title)}", ""]
    if result.state != "finished":
        lines += [f"*{result.state.capitalize()}: {result.progress.done} of {result.progress.total} cells done.*", ""]
    lines += [line for headline in sentences.headlines(result) for line in (f"**{escaped(headline)}**", "")]
    lines += [f"- {escaped(sentences.answer(result, arm))}" for arm in result.best_first]
    more_seeds = sentences.more_seeds(result)
    notes = (
        sentences.shrinkage(result),
        range_figure.standing(result, result.primary),
        range_figure.beside(result.primary),
        certainty.question(result),
        more_seeds,
    )
    lines += [line for note in notes if note for line in ("", escaped(note))]
    lines += ["", code(result.made.command)] if more_seeds else []
    titled = (
        ("Ranking", table.ranking(result)),
        ("Failed", table.failed(result)),
        ("All metrics", table.readings(result)),
        ("Noise", table.noise(result)),
        *more,
    )
    for title, sheet in titled:
        if sheet.rows:
            lines += ["", f"## {title}", "", f"{escaped(sheet.caption)}.", "", *table_rows(sheet)]
    for arm in result.compared:
        made = table.comparisons(result, arm)
        lines += ["", f"## {escaped(arm.label)}", "", f"{code(arm.phrase)}: {escaped(arm.says)}", ""]
        lines += [
            f"- {code(change.path)}: {code(number.literal(change.before))} → {code(number.literal(change.after))}"
            for change in arm.diff
        ]
        lines += [f"- costs {escaped(sentences.cost(arm))}"] if sentences.cost(arm) else []
        lines += [f"- {escaped(sentences.parts(arm))}"] if sentences.parts(arm) else []
        lines += [
            f"- claimed: {escaped(claim_sentences.claimed(claim))}, {escaped(claim.scope)} ({escaped(claim.source)})"
            + (f": {escaped(claim.verdict)}" if claim.verdict else "")
            + (f". {escaped(seen)}" if (seen := claim_sentences.seen_of(result, arm, claim)) else "")
            for claim in arm.claims
        ]
        lines += [f"- failed: seeds {seeds}: {escaped(why)}" for seeds, why in certainty.reasons(arm)]
        lines += ["", *table_rows(made)] if made.rows else []
    if result.remarks:
        lines += ["", "## Remarks", "", *(f"- {escaped(remark)}" for remark in result.remarks)]
    lines += [
        "",
        "## Reproduce",
        "",
        code(result.made.command),
        "",
        *(f"- {escaped(name)}: {escaped(value)}" for name, value in run_facts.facts(result)),
    ]
    return "\n".join(lines) + "\n"


def table_rows(sheet: table.Table) -> list[str]:
    """A table as lines of Markdown, its text escaped."""
    rule = ["---" if i in sheet.text_columns else "---:" for i in range(len(sheet.columns))]
    body = [[escaped(value) for value in row] for row in (sheet.columns, *sheet.rows)]
    return ["| " + " | ".join(row) + " |" for row in (body[0], rule, *body[1:])]


def escaped(text: str) -> str:
    """Text of the study is text, not markup: neither a table's bar nor a tag nor a link may come from it. An underscore
    inside a word is no markup."""
    return re.sub(r"[\\`*\[\]<>|#~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", inert(" ".join(text.split())))


def code(text: str) -> str:
    """A code span whose fence is longer than any run of backticks inside."""
    flat = inert(" ".join(text.split())).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", flat)), default=0))
    return f"{fence}{flat}{fence}" if len(fence) == 1 else f"{fence} {flat} {fence}"
