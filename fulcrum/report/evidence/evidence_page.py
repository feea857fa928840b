"""The evidence page as Markdown, with the files that it shows: the ranking as SVG, a sheet of pictures for each study."""

import re
from collections.abc import Sequence

from fulcrum.report.evidence import answers, arm_sheet, claim_rows, conclusion, forest_figure, limits, provenance, sections
from fulcrum.report.evidence.decision import SAME_TIME, Decision, searched_in_vain
from fulcrum.report.evidence.decision import table as ranked
from fulcrum.report.evidence.known_studies import RECIPE, Studies, missing, ordered
from fulcrum.report.figures import range_figure
from fulcrum.report.markdown_text import code, escaped, table_rows
from fulcrum.report.schema import StudyResult
from fulcrum.report.table import Table
from fulcrum.report.wording import certainty, number, sentences

NO_BREAK = "\u00a0"
HEAD = "<!-- Written by `fulcrum study evidence`; change the studies or the code, not this file. -->"


def files(studies: Studies) -> dict[str, str | bytes]:
    """Name -> content of the page and all that it shows."""
    rows, made = ranked(studies), dict[str, str | bytes]()
    if any(one.gain is not None for one in rows):
        made["ranking.svg"] = forest_figure.forest(rows)
        made["ranking_narrow.svg"] = forest_figure.forest(rows, forest_figure.NARROW)
    shown = set[str]()
    for name, result in ordered(studies).items():
        pictures = arm_sheet.pictures(result)
        sheet = None if pictures <= shown else arm_sheet.sheet(name, result)  # another judge's pictures are the same ones
        shown |= pictures
        if sheet is not None:
            made[f"{name}.png"] = sheet
    return {"README.md": _page(studies, rows, frozenset(made)), **made}


def _page(studies: Studies, rows: Sequence[Decision], beside: frozenset[str]) -> str:
    lines = [HEAD, "", "# The evidence", "", *(f"{glued(escaped(one))}\n" for one in conclusion.conclusion(studies))]
    waiting = [(name, result) for name, result in ordered(studies).items() if result.state != "finished"]
    lines += [
        f"**{escaped(name)} is not finished: {result.progress.done} of {result.progress.total} cells are done.**\n"
        for name, result in waiting
    ]
    if "ranking.svg" in beside:
        lines += [conclusion.picture(""), "", *_ranking(rows, searched_in_vain(studies))]
    lines += _answers(studies) if studies else []
    lines += _claims(studies)
    lines += _pictures(studies, beside)
    for section in sections.sections(studies):
        lines += ["", f"## {escaped(section.title)}", "", *([section.lead, ""] if section.lead else [])]
        lines += [f"{glued(escaped(line))}\n" for line in section.lines]
        for sheet in section.tables:
            lines += _table(sheet)
    if absent := missing(studies):
        lines += ["", "## Not run yet", "", "Asked, and without an answer on this page:", ""]
        lines += [f"- {code(asked.folder)}: {escaped(asked.question)}" for asked in absent]
    lines += ["", f"## {limits.TITLE}", "", *(f"- {line}" for line in limits.limits(studies))]
    lines += _provenance(studies)
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _table(sheet: Table) -> list[str]:
    return ["", f"{escaped(sheet.caption)}.", "", *_rows(sheet), ""] if sheet.rows else []


def _rows(sheet: Table) -> list[str]:
    head, rule, *body = table_rows(sheet)
    return [head, rule, *map(glued, body)]


def glued(text: str) -> str:
    """A number with its interval, and a rate, are one word to the eye: no line of Markdown may break inside."""
    return re.sub(r"\S+ \\\[[^\[\]|]{1,40}\]|\S+ per \S10 % time", lambda kept: kept[0].replace(" ", NO_BREAK), text)


def _ranking(rows: Sequence[Decision], searched: Sequence[Decision]) -> list[str]:
    result = _most_rows(rows)
    metric = result.primary
    elsewhere = any(_equal_time(one) for one in rows)
    looks = result.plan.looks
    more = ""
    if looks[1:]:
        more = (
            f"An arm gets {looks[0]} pairs, and up to {looks[-1]} while it is undecided; its interval holds over all these "
            "looks and is wider than that of its pairs alone. "
        )
    body = tuple(
        (
            str(place) if one.gain is not None else number.NONE,
            one.name,
            one.change,
            str(one.pairs),
            one.verdict,
            number.ratio(one.time),
            number.ratio(one.flops),
            *([_equal_time(one) or number.NONE] if elsewhere else []),
            one.worth,
        )
        for place, one in enumerate(rows, 1)
    )
    change = f"{sentences.lowered(metric.label)} [{certainty.level(result)}]"
    columns = (
        "", "decision", change, "pairs", "verdict", "time", "FLOPs",
        *(["at equal time"] if elsewhere else []), "what it buys",
    )  # fmt: skip
    return [
        "## The ranking",
        "",
        f"Every decision alone against the same training without it, on `{RECIPE}`, best first. {escaped(metric.explain)} "
        f"A verdict asks an interval without zero and a corrected p below {number.plain(result.plan.alpha)} over all arms "
        f"of a study; of a *tie* the {certainty.tie_level(result)} interval, narrower than the printed one, lies within "
        f"±{number.plain(result.plan.smallest_effect)}. {more}Time and FLOPs are a "
        f"step's over the baseline's, time from steps taken in turns; less than {SAME_TIME:.0%} more time is called free. "
        "[How verdicts are made](../statistics.md)",
        "",
        *_rows(Table("", columns, body, (1, 2, 4, len(columns) - 1))),
        "",
        *_remarks(rows, searched),
        *_standing(result),
    ]


def _most_rows(rows: Sequence[Decision]) -> StudyResult:
    """The study that most decisions come from: its baseline is the one to describe. The best row's own may stand in other
    circumstances, such as wrong captions planted for every arm."""
    results = {id(one.result): one.result for one in rows}
    return max(results.values(), key=lambda result: sum(one.result is result for one in rows))


def _remarks(rows: Sequence[Decision], searched: Sequence[Decision]) -> list[str]:
    """What must stand beside some verdicts, below the table: in it, a column would be wider than all others. After how
    many pairs an arm was decided stands there already."""
    remarks = [(one.name, [line for line in one.remarks if not line.startswith("decided at ")]) for one in rows]
    alike = "no other rate was better for it than the recipe's, so its trainings are those of the row without"
    remarks += [(one.name, [f"{alike}: {one.change}, {one.pairs} pairs"]) for one in searched]
    noted = [f"- **{escaped(name)}**: {escaped('; '.join(lines))}" for name, lines in remarks if lines]
    return ["To know before believing them:", "", *noted, ""] if noted else []


def _standing(result: StudyResult) -> list[str]:
    noise = next((row for row in result.noise if row.metric == result.primary.name), None)
    scatter = ""
    if noise is not None and noise.sd is not None:
        size = number.plain(noise.sd, number.decimals(noise.sd))
        scatter = f" Over {noise.n} seeds the baseline scatters by {size} (standard deviation)."
    agreed = result.primary.agreement.removesuffix(".")
    second = f" A second judge checks the first: {agreed}." if agreed else ""
    return [f"{escaped(range_figure.standing(result, result.primary) + scatter + second)}", ""]


def _equal_time(decision: Decision) -> str:
    """The same comparison with time held equal, where curves were read; it is exploratory."""
    name = decision.result.primary.name
    for row in decision.result.effects_of(decision.arm):
        if (row.metric, row.unit) == (name, "time"):
            return number.change(row.mean, row.low, row.high)
    return ""


def _answers(studies: Studies) -> list[str]:
    lines = ["## What the articles say, and what we saw", ""]
    for answer in answers.answers(studies):
        lines += [
            f"### {answer.question} {answer.word}.",
            "",
            f"*The articles: {answer.claim}*",
            "",
            glued(escaped(answer.text)),
            "",
        ]
    return lines


def _claims(studies: Studies) -> list[str]:
    rows = claim_rows.fared(studies)
    if not rows:
        return []
    lines = [
        "## Every published claim beside what we saw",
        "",
        f"Published numbers: {escaped(claim_rows.summary(rows))}. A claim is held only against its own lever alone, with "
        "the published settings, on a metric that may stand for the published one (our Fréchet distance for FID, our MMD "
        "for CMMD: other features, other pictures); only directions are compared. Where a table says nothing else, the "
        f"published numbers are of {escaped(claim_rows.usual_place(rows))}. What is wrong with them: "
        "[the published study](../published.md).",
    ]
    for word in (one for one in claim_rows.ORDER if any(row.word == one for row in rows)):
        sheet = claim_rows.claim_table(rows, word)
        shown = _table(sheet)
        if word == "not comparable":
            shown = [
                "",
                f"<details><summary>{len(sheet.rows)} not comparable, each with its reason</summary>",
                *shown,
                "</details>",
            ]
        lines += shown
    return [*lines, ""]


def _pictures(studies: Studies, beside: frozenset[str]) -> list[str]:
    shown = [(name, result) for name, result in ordered(studies).items() if f"{name}.png" in beside]
    if not shown:
        return []
    lines = [
        "",
        "## Pictures",
        "",
        "One row for each arm, best first; a column has one prompt and one noise, so what differs in it is the decision. "
        "One seed, none picked, enlarged without smoothing.",
    ]
    sheets = {name: tuple(_sheet_prompts(result)) for name, result in shown}
    usual = max(sheets.values(), key=len)
    lines += ["", *_prompts("The prompts, left to right, of every sheet that has no others", usual)]
    for name, result in shown:
        lines += [
            "",
            f"### {escaped(result.title)}",
            "",
            f"![Pictures of {escaped(name)}, a row for each arm]({name}.png)",
        ]
        if sheets[name] != usual[: len(sheets[name])]:
            lines += ["", *_prompts("Its prompts", sheets[name])]
    return lines


def _sheet_prompts(result: StudyResult) -> Sequence[str]:
    assert result.grids is not None
    return result.grids.prompts[: arm_sheet.columns(result)]


def _prompts(title: str, prompts: Sequence[str]) -> list[str]:
    return [
        f"<details><summary>{title}</summary>",
        "",
        *(f"1. {escaped(one)}" for one in prompts),
        "",
        "</details>",
    ]


def _provenance(studies: Studies) -> list[str]:
    lines = ["", "## Where the numbers come from", ""]
    if not studies:
        return [*lines, "No study is kept yet."]
    lines += [
        "Cells are named by the hash of everything that decides them; a clone goes on from the ones that are kept here. "
        "`fulcrum study verify` with a study's folder computes its tables again from the stored cells.",
        *_table(provenance.study_table(studies)),
        *(f"- {escaped(line)}" for line in provenance.machines(studies)),
    ]
    remarks = dict.fromkeys(remark for result in ordered(studies).values() for remark in result.remarks)
    if remarks:
        lines += ["", "<details><summary>What the studies remark on their own arms</summary>", ""]
        lines += [*(f"- {escaped(remark)}" for remark in remarks), "", "</details>"]
    return lines
