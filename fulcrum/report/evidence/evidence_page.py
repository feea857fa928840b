"""The evidence page as Markdown, with the files that it shows: the ranking as SVG, a sheet of pictures for each study."""

from collections.abc import Sequence

from fulcrum.judge import sentences
from fulcrum.judge.page import code, escaped
from fulcrum.report.evidence import arm_sheet, conclusion, forest_figure
from fulcrum.report.evidence.answers import article_answers
from fulcrum.report.evidence.decisions import claim_rows, ranked_decisions
from fulcrum.report.evidence.decisions.decision import Decision
from fulcrum.report.evidence.decisions.known_studies import Studies, missing, ordered
from fulcrum.report.evidence.page_text import folded, glued, table_lines
from fulcrum.report.evidence.sections import limits, picture_section, provenance, ranking_section, study_sections

HEAD = "<!-- Written by `fulcrum study evidence`; change the studies or the code, not this file. -->"


def files(studies: Studies) -> dict[str, str | bytes]:
    """Name -> content of the page and all that it shows."""
    rows, others, made = ranked_decisions.table(studies), ranked_decisions.beside(studies), dict[str, str | bytes]()
    if any(one.gain is not None for one in rows):
        made["ranking.svg"] = forest_figure.forest(rows, others)
        made["ranking_narrow.svg"] = forest_figure.forest(rows, others, forest_figure.NARROW)
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
        lines += [conclusion.picture(""), "", *ranking_section.ranking_lines(rows, ranked_decisions.searched(studies))]
    lines += ranking_section.beside_lines(ranked_decisions.beside(studies))
    lines += _answers(studies) if studies else []
    lines += _claims_section(studies)
    for section in study_sections.sections(studies):
        lines += ["", f"## {escaped(section.title)}", "", *([section.lead, ""] if section.lead else [])]
        lines += [f"{glued(escaped(line))}\n" for line in section.lines]
        for sheet in section.tables:
            lines += table_lines(sheet)
    if absent := missing(studies):
        lines += ["", "## Not run yet", "", "Asked, and without an answer on this page:", ""]
        lines += [f"- {code(asked.folder)}: {escaped(asked.question)}" for asked in absent]
    lines += ["", f"## {limits.TITLE}", "", *(f"- {line}" for line in limits.limits(studies))]
    lines += picture_section.picture_lines(studies, beside)
    lines += _provenance(studies)
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def _answers(studies: Studies) -> list[str]:
    why = next((why for result in ordered(studies).values() if (why := sentences.shrinkage(result))), "")
    lines = [
        "## What the articles say, and what we saw",
        "",
        "The articles are those of a study of a text-to-image model of 1.2 billion parameters, PRX Part 2, and of those "
        "who tell of it: [their numbers, and what is wrong with them](../published.md).",
        "",
        *([escaped(why), ""] if why else []),
    ]
    for answer in article_answers.answers(studies):
        lines += [
            f"### {answer.question} {answer.word}.",
            "",
            f"*The articles: {answer.claim}*",
            "",
            glued(escaped(answer.text)),
            "",
        ]
    return lines


def _claims_section(studies: Studies) -> list[str]:
    rows = claim_rows.fared(studies)
    if not rows:
        return []
    lines = [
        "## Every published claim beside what we saw",
        "",
        f"Published numbers: {escaped(claim_rows.summary(rows))}. A number is counted once, by what those arms and studies "
        "say that are held against it and are decided, and has a row for each of them. A claim is held only against its "
        "own lever alone, with the published settings, on a metric that may stand for the published one (our Fréchet "
        "distance for FID, our MMD for CMMD: other features, other pictures); only directions are compared. Where a table "
        f"says nothing else, the published numbers are of {escaped(claim_rows.usual_place(rows))}. What is wrong with "
        "them: [the published study](../published.md).",
    ]
    for word in (one for one in claim_rows.ORDER if any(row.word == one for row in rows)):
        sheet = claim_rows.claim_table(rows, word)
        shown = table_lines(sheet)
        if word == "not comparable":
            shown = ["", *folded(f"{len(sheet.rows)} not comparable, each with its reason", shown)]
        lines += shown
    return [*lines, ""]


def _provenance(studies: Studies) -> list[str]:
    lines = ["", "## Where the numbers come from", ""]
    if not studies:
        return [*lines, "No study is kept yet."]
    lines += [
        "Cells are named by the hash of everything that decides them; a clone goes on from the ones that are kept here. "
        "The first command computes every table and verdict again from the stored cells, the second also trains three of "
        "them anew and compares the weights' hashes, which are equal to the bit on the same kind of machine:",
        "",
        "```",
        "fulcrum study verify docs/evidence",
        "fulcrum study verify docs/evidence/replication --rerun 3",
        "```",
        *table_lines(provenance.study_table(studies)),
        *(f"- {escaped(line)}" for line in provenance.machines(studies)),
    ]
    if remarks := provenance.remarks(studies):
        listed = [f"- {escaped(remark)}" for remark in remarks]
        lines += ["", *folded("What the studies remark on their own arms", listed)]
    return lines
