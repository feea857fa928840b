"""The evidence in three sentences with their numbers of pairs, and its place in the project's
README."""

from collections.abc import Sequence

from fulcrum.advice.decisions import (
    AGAIN,
    TIMING_ERROR,
    Decision,
    Studies,
    all_decisions,
    asked_again,
    missing,
    ordered,
    same_way,
    trained_longer,
)
from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.page import code, escaped
from fulcrum.spec.errors import BadInput
from tools.evidence import answers as article_answers
from tools.evidence import decisions as claim_rows
from tools.evidence import decisions as ranked_decisions
from tools.evidence import sections as forest_figure
from tools.evidence import sections as limits
from tools.evidence import sections as picture_section
from tools.evidence import sections as provenance
from tools.evidence import sections as ranking_section
from tools.evidence import sections as study_sections
from tools.evidence import words as arm_sheet
from tools.evidence.decisions import table
from tools.evidence.words import folded, glued, table_lines

# --------------------------------------------------------------------------------------------------
# The evidence in three sentences with their numbers of pairs, and its place in the project's
# README.


BEGIN = "<!-- evidence: what stands until the end mark is written by `make evidence` -->"
END = "<!-- evidence: end -->"
MOST = 2  # decisions that a sentence names
# before the first of these, a study that is not finished concludes nothing
SETTLED = ("better", "worse", "tie")


def conclusion(studies: Studies) -> tuple[str, ...]:
    """What moved quality; how the published claims fared; what stayed open, and how far it
    carries."""
    rows = table(studies)
    early = any(one.result.state != "finished" for one in rows) and not any(
        one.verdict in SETTLED for one in rows
    )
    if early or not any(one.gain is not None for one in rows):
        return (
            (
                "The published table is being run here: no answer yet."
                if rows
                else "The published table has not been run here yet."
            ),
        )
    return _moved(rows), _claims(studies), f"{_again(studies, rows)}{_open(rows)}"


def _moved(rows: Sequence[Decision]) -> str:
    result = rows[0].result
    cells = {
        cell.key
        for one in rows
        for arm in (one.arm, one.base)
        for cell in arm.cells
        if cell.state == "done"
    }
    pairs = sorted({one.pairs for one in rows if one.pairs})
    seeds = f"{pairs[0]} to {pairs[-1]}" if pairs[1:] else str(pairs[0])
    better = [one for one in rows if one.verdict == "better"]
    worse = [one for one in reversed(rows) if one.verdict == "worse"]
    parts = (
        [f"{_most(better)} improved {sentences.lowered(result.primary.label)} most"]
        if better
        else []
    )
    parts += (
        [f"{_most(worse)} hurt it most" if better else f"{_most(worse)} hurt quality most"]
        if worse
        else []
    )
    findings = " and ".join(parts) or "no decision moved quality for certain"
    return (
        f"Of {len(rows)} training decisions, changed one at a time on {result.plan.baseline} over"
        f" {seeds} paired seeds ({len(cells):,} trainings), at equal images {findings}."
    )


def _most(rows: Sequence[Decision]) -> str:
    return sentences.listed(
        [f"{one.name} ({one.change}, {one.pairs} pairs{_at_what_time(one)})" for one in rows[:MOST]]
    )


def _at_what_time(one: Decision) -> str:
    """', 1.29× the time': equal images are not equal time."""
    apart = one.time is not None and abs(one.time - 1.0) > TIMING_ERROR
    return f", {number.ratio(one.time)} the time" if apart else ""


def _claims(studies: Studies) -> str:
    rows = claim_rows.fared(studies)
    held = [row for row in rows if row.held]
    if not held:
        return "None of the published numbers could be held against it."
    numbers = {row.published for row in held}
    apart = len({row.published for row in rows} - numbers)
    rest = f"; {apart} more are not comparable with anything here" if apart else ""
    papers = sentences.listed(sorted({row.claim.source for row in held}))
    ours = len({(row.decision.study, row.decision.arm.name, row.claim.seen) for row in held})
    return (
        f"Of {len(numbers)} numbers of the published study ({papers}) that one of {ours}"
        f" comparisons of ours is held against: {claim_rows.summary(held)}{rest}."
    )


def _again(studies: Studies, rows: Sequence[Decision]) -> str:
    """What became of the largest where they were asked again: 'On emoji 3 of 3 decided ones go the
    same way, and 2 more (Muon and SPRINT) change too little to matter; with 2 times the images 3 of
    3 gains shrink below half; '"""
    sentence = ""
    for name in (one for one in AGAIN if one in studies and studies[one].state == "finished"):
        asked = [
            pair
            for pair in asked_again(all_decisions(name, studies[name]), rows)
            if pair[1].decided
        ]
        if asked:
            both, alike = same_way(asked)
            ties = [before.name for one, before in asked if one.verdict == "tie"]
            small = (
                f", and {len(ties)} more ({sentences.listed(ties)}) change too little to matter"
                if ties
                else ""
            )
            where = f"on {studies[name].plan.baseline} {alike} of {both} decided ones"
            sentence += f"{where} go the same way{small}; "
    longer = trained_longer(studies, rows)
    if longer is not None and longer.shrunk:
        images = f"with {number.plain(longer.times)} times the images"
        sentence += f"{images} {len(longer.shrunk)} of {longer.gains} gains shrink below half; "
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _open(rows: Sequence[Decision]) -> str:
    result, total = rows[0].result, len(rows)
    small = sum(one.verdict == "tie" for one in rows)
    unknown = sum(one.verdict == "undecided" for one in rows)
    return (
        f"{small} of the {total} changed quality by less than the"
        f" {number.plain(result.plan.smallest_effect)} that would matter and {unknown} stayed"
        " undecided, and the ranking is that of one small world, not of a model of a billion"
        " parameters."
    )


def opening(studies: Studies, folder: str) -> str:
    """The README's opening: the picture of the ranking, where there is one, and the conclusion;
    links go into `folder`."""
    parts = conclusion(studies)
    shown = [picture(f"{folder}/"), ""] if parts[1:] else []
    link = (
        "All of it, with pictures, and how to run it again" if parts[1:] else "What will be asked"
    )
    return "\n".join(
        [BEGIN, "", *shown, f"{escaped(' '.join(parts))} [{link}]({folder}/README.md)", "", END]
    )


def picture(folder: str) -> str:
    """The figure as pages show it: the narrow one where a page is narrow."""
    return (
        f'<picture><source media="(max-width: 600px)" srcset="{folder}ranking_narrow.svg"><img'
        ' alt="The ranking of training decisions, with intervals"'
        f' src="{folder}ranking.svg"></picture>'
    )


def replaced(readme: str, text: str) -> str:
    """The README with what stands between the marks replaced."""
    if (
        readme.count(BEGIN) != 1
        or readme.count(END) != 1
        or readme.index(BEGIN) > readme.index(END)
    ):
        raise BadInput(
            f"expected one '{BEGIN}' and after it one '{END}' in the README",
            "put the two lines where the opening belongs",
        )
    before, _, rest = readme.partition(BEGIN)
    return before + text + rest.partition(END)[2]


# --------------------------------------------------------------------------------------------------
# The evidence page as Markdown, with the files that it shows: the ranking as SVG, a sheet of
# pictures for each study.


HEAD = (
    "<!-- Written by `python -m tools.evidence`; change the studies or the code, not this file. -->"
)


def files(studies: Studies) -> dict[str, str | bytes]:
    """Name -> content of the page and all that it shows."""
    rows, others, made = (
        ranked_decisions.table(studies),
        ranked_decisions.beside(studies),
        dict[str, str | bytes](),
    )
    if any(one.gain is not None for one in rows):
        made["ranking.svg"] = forest_figure.forest(rows, others)
        made["ranking_narrow.svg"] = forest_figure.forest(rows, others, forest_figure.NARROW)
    shown = set[str]()
    for name, result in ordered(studies).items():
        pictures = arm_sheet.pictures(result)
        # another judge's pictures are the same ones
        sheet = None if pictures <= shown else arm_sheet.sheet(name, result)
        shown |= pictures
        if sheet is not None:
            made[f"{name}.png"] = sheet
    return {"README.md": _page(studies, rows, frozenset(made)), **made}


def _page(studies: Studies, rows: Sequence[Decision], beside: frozenset[str]) -> str:
    lines = [
        HEAD,
        "",
        "# The evidence",
        "",
        *(f"{glued(escaped(one))}\n" for one in conclusion(studies)),
    ]
    waiting = [
        (name, result) for name, result in ordered(studies).items() if result.state != "finished"
    ]
    lines += [
        f"**{escaped(name)} is not finished: {result.progress.done} of {result.progress.total}"
        " cells are done.**\n"
        for name, result in waiting
    ]
    if "ranking.svg" in beside:
        lines += [
            picture(""),
            "",
            *ranking_section.ranking_lines(rows, ranked_decisions.searched(studies)),
        ]
    lines += ranking_section.beside_lines(ranked_decisions.beside(studies))
    lines += _answers(studies) if studies else []
    lines += _claims_section(studies)
    for section in study_sections.sections(studies):
        lines += [
            "",
            f"## {escaped(section.title)}",
            "",
            *([section.lead, ""] if section.lead else []),
        ]
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
    why = next(
        (why for result in ordered(studies).values() if (why := sentences.shrinkage(result))), ""
    )
    lines = [
        "## What the articles say, and what we saw",
        "",
        (
            "The articles are those of a study of a text-to-image model of 1.2 billion parameters,"
            " PRX Part 2, and of those who tell of it: [their numbers, and what is wrong with"
            " them](../published.md)."
        ),
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
        (
            f"Published numbers: {escaped(claim_rows.summary(rows))}. A number is counted once, by"
            " what those arms and studies say that are held against it and are decided, and has a"
            " row for each of them. A claim is held only against its own lever alone, with the"
            " published settings, on a metric that may stand for the published one (our Fréchet"
            " distance for FID, our MMD for CMMD: other features, other pictures); only directions"
            " are compared. Where a table says nothing else, the published numbers are of"
            f" {escaped(claim_rows.usual_place(rows))}. What is wrong with them: [the published"
            " study](../published.md)."
        ),
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
        (
            "Cells are named by the hash of everything that decides them; a clone goes on from the"
            " ones that are kept here. The first command computes every table and verdict again"
            " from the stored cells, the second also trains three of them anew and compares the"
            " weights' hashes, which are equal to the bit on the same kind of machine:"
        ),
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
