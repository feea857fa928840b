"""The pictures as a section of the page: the ranking's own sheet, and behind a line those of all other studies."""

from collections.abc import Sequence

from fulcrum.judge.page import escaped
from fulcrum.judge.schema import StudyResult
from fulcrum.report.evidence import arm_sheet
from fulcrum.report.evidence.decisions.known_studies import Studies, ordered
from fulcrum.report.evidence.page_text import folded


def picture_lines(studies: Studies, beside: frozenset[str]) -> list[str]:
    """`beside`: the files that the page is written with."""
    shown = [(name, result) for name, result in ordered(studies).items() if f"{name}.png" in beside]
    if not shown:
        return []
    prompts = {name: _prompts_of(result) for name, result in shown}
    usual = max(prompts.values(), key=len)
    first, *more = [_sheet(name, result, prompts[name], usual) for name, result in shown]
    many = "another study" if len(more) == 1 else f"{len(more)} more studies"
    return [
        "",
        "## Pictures",
        "",
        "One row for each arm, best first; a column has one prompt and one noise, so what differs in it is the decision. "
        "One seed, none picked, enlarged without smoothing.",
        "",
        *_prompts("The prompts, left to right, of every sheet that has no others", usual),
        *first,
        *(["", *folded(f"The sheets of {many}", [line for lines in more for line in lines])] if more else []),
    ]


def _sheet(name: str, result: StudyResult, own: Sequence[str], usual: Sequence[str]) -> list[str]:
    lines = [
        "",
        f"### {escaped(result.title[:1].upper() + result.title[1:])}",
        "",
        f"![Pictures of {escaped(name)}, a row for each arm]({name}.png)",
    ]
    return lines if own == usual[: len(own)] else [*lines, "", *_prompts("Its prompts", own)]


def _prompts_of(result: StudyResult) -> tuple[str, ...]:
    assert result.grids is not None
    return tuple(result.grids.prompts[: arm_sheet.columns(result)])


def _prompts(title: str, prompts: Sequence[str]) -> list[str]:
    return folded(title, [f"1. {escaped(one)}" for one in prompts])
