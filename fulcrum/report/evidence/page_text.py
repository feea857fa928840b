"""Pieces of the evidence page's Markdown: tables, and numbers that no line breaks."""

import re
from collections.abc import Iterable, Sequence

from fulcrum.judge.page import escaped, table_rows
from fulcrum.judge.tables import Table

NO_BREAK = "\u00a0"


def glued(text: str) -> str:
    """A number with its interval, and a rate, are one word to the eye: no line of Markdown may break inside."""
    return re.sub(r"\S+ \\\[[^\[\]|]{1,40}\]|\S+ per \S10 % time", lambda kept: kept[0].replace(" ", NO_BREAK), text)


def table_lines(sheet: Table) -> list[str]:
    """With its caption; nothing where it has no row."""
    return ["", f"{escaped(sheet.caption)}.", "", *row_lines(sheet), ""] if sheet.rows else []


def row_lines(sheet: Table) -> list[str]:
    head, rule, *body = table_rows(sheet)
    return [head, rule, *map(glued, body)]


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Behind a line that opens it; the title is ours: Markdown is not read inside of a tag."""
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]


def notes_by_names(noted: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[list[str], list[str]]]:
    """Each note once, with all that it is about; notes on the same ones stand together."""
    names: dict[str, list[str]] = {}
    for name, lines in noted:
        for line in lines:
            names[line] = [*dict.fromkeys([*names.get(line, []), name])]
    groups: dict[tuple[str, ...], list[str]] = {}
    for line, about in names.items():
        groups.setdefault(tuple(about), []).append(line)
    return [(list(about), lines) for about, lines in groups.items()]
