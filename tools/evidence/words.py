"""Pieces of the evidence page's Markdown: tables, and numbers that no line breaks."""

import base64
import io
import re
from collections.abc import Iterable, Sequence

from PIL import Image, ImageDraw, ImageFont

from fulcrum.advice.decisions import SAME_TIME, Decision, best_first, named
from fulcrum.data.readers.pictures import open_picture
from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.page import escaped, table_rows
from fulcrum.judge.schema import Effect, GridArm, StudyResult
from fulcrum.judge.tables import Table

# --------------------------------------------------------------------------------------------------
# Pieces of the evidence page's Markdown: tables, and numbers that no line breaks.


NO_BREAK = "\u00a0"


def glued(text: str) -> str:
    """A number with its interval, and a rate, are one word to the eye: no line of Markdown may
    break inside."""
    return re.sub(
        r"\S+ \\\[[^\[\]|]{1,40}\]|\S+ per \S10 % time",
        lambda kept: kept[0].replace(" ", NO_BREAK),
        text,
    )


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


# --------------------------------------------------------------------------------------------------
# How answers word what was found: a decision with its size and cost, and a verdict in a word.


NOT_RUN = "Not run yet"
DISTANCE = "frechet"  # between drawn and real pictures, whatever was asked for; lower is better


def told(decision: Decision, said: Sequence[str] = ()) -> str:
    """The finding as the report words it, what it costs where that is known, and bounds that were
    not `said` yet."""
    sentence = sentences.answer(decision.result, decision.arm).removesuffix(".")
    sentence = sentence.replace(decision.arm.label, decision.name, 1)
    dear = decision.time is not None and abs(decision.time - 1.0) > SAME_TIME
    cost = f"; {number.ratio(decision.time)} the time" if dear else ""
    bounds = "".join(f"; {bound}" for bound in decision.bounds if bound not in said)
    return f"{sentence}{cost}{bounds}."


def settled(decision: Decision) -> bool:
    return decision.verdict in ("better", "worse", "tie")


def those_of(rows: Sequence[Decision], roots: Sequence[str]) -> list[Decision]:
    return [decision for root in roots if (decision := named(rows, root)) is not None]


def all_told(rows: Sequence[Decision]) -> str:
    """One after the other; a bound that several share is said with the first."""
    said, lines = list[str](), list[str]()
    for one in rows:
        lines.append(told(one, said))
        said += one.bounds
    return " ".join(lines)


def sized(decision: Decision) -> str:
    return f"{decision.name} ({decision.change}, {decision.pairs} pairs)"


def by_verdict(decision: Decision, *, better: str, worse: str, tie: str) -> str:
    return {"better": better, "worse": worse, "tie": tie}.get(decision.verdict, "Undecided")


def changed(effect: Effect) -> str:
    return number.change(effect.mean, effect.low, effect.high)


def by_distance(decision: Decision, otherwise: str) -> str:
    """What a distance between pictures says of it; `otherwise` where its interval holds zero."""
    size = decision.by(DISTANCE)
    if size is None or size.low is None or size.high is None:
        return ""
    unsure = f": {otherwise}" if size.low <= 0.0 <= size.high else ""
    return f" Fréchet distance {changed(size)}, exploratory{unsure}."


# --------------------------------------------------------------------------------------------------
# A study's pictures as one PNG: a row for each arm, the same prompts and noise in each, enlarged
# without smoothing.


# pixels: a picture's side, between pictures, the column of names, around
CELL, GAP, LABEL, EDGE = 64, 4, 236, 12
MOST_COLUMNS, MOST_BYTES = 8, 400_000
TALLEST = 40  # rows of one sheet: more would be shrunk beyond recognition
# of a name in one line; height of a small line; as many, and one more, fit a row
LETTERS, LINE, MOST_LINES = 34, 13, 4
INK, SOFT, PAPER = "#1d1c1a", "#6a6761", "#ffffff"
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def columns(result: StudyResult) -> int:
    """How many prompts a sheet shows: as many as fit into its bytes, reckoned from the pictures as
    they are kept, so that it is the same number with every version of the library that draws. None:
    the study kept no pictures, or compares nothing yet."""
    if result.grids is None or not result.grids.arms or not result.effects:
        return 0
    rows = result.grids.arms
    many = min(MOST_COLUMNS, len(result.grids.prompts), *(len(row.images) for row in rows))
    while (
        many > 1
        and sum(len(uri) * 3 // 4 for row in rows for uri in row.images[:many]) > MOST_BYTES
    ):
        many -= 1
    return many


def pictures(result: StudyResult) -> set[str]:
    """Of a study, each as it is kept."""
    return (
        {uri for row in result.grids.arms for uri in row.images}
        if result.grids is not None
        else set()
    )


def sheet(name: str, result: StudyResult) -> bytes | None:
    """The PNG; None where there is no picture."""
    many = columns(result)
    return _drawn(name, result, many) if many else None


def _rows(name: str, result: StudyResult) -> list[tuple[str, str, GridArm]]:
    """Label, what was found, pictures: baselines first, then best first, scale by scale; the first
    seed of each."""
    assert result.grids is not None
    first: dict[str, GridArm] = {}
    for row in result.grids.arms:
        first.setdefault(row.arm, row)
    seed = next(iter(first.values())).seed
    rows = []
    for scale in [one.name for one in result.scales] or [""]:
        bases = [arm for arm in result.arms if result.is_base(arm) and arm.scale == scale]
        compared = best_first(
            Decision(name, result, arm) for arm in result.compared if arm.scale == scale
        )
        rows += [(arm.label, "", arm.name) for arm in bases]
        rows += [
            (
                _at_scale(one),
                f"{_ascii(one.change.split(' [')[0])}  {one.verdict}".strip(),
                one.arm.name,
            )
            for one in compared
        ]
    rows += [(arm.label, "", arm.name) for arm in result.combinations]
    shown = [(label, found, first[arm]) for label, found, arm in rows if arm in first][:TALLEST]
    return [
        (label, found if row.seed == seed else f"{found}  seed {row.seed}", row)
        for label, found, row in shown
    ]


def _ascii(text: str) -> str:
    """The font that comes with Pillow has no true minus sign."""
    return text.replace(number.MINUS, "-").replace(number.NONE, "")


def _at_scale(decision: Decision) -> str:
    return f"{decision.name} [{decision.arm.scale}]" if decision.arm.scale else decision.name


def _drawn(name: str, result: StudyResult, many: int) -> bytes:
    rows = _rows(name, result)
    pictures = [[_picture(uri) for uri in row.images[:many]] for _, _, row in rows]
    side = max(CELL, *(max(one.size) for line in pictures for one in line))
    font, small = ImageFont.load_default(13), ImageFont.load_default(11)
    paper = Image.new(
        "RGB",
        (2 * EDGE + LABEL + many * (side + GAP), 2 * EDGE + 16 + len(rows) * (side + GAP)),
        PAPER,
    )
    pen = ImageDraw.Draw(paper)
    for column in range(many):
        pen.text(
            (EDGE + LABEL + column * (side + GAP) + side // 2, EDGE),
            str(column + 1),
            SOFT,
            small,
            anchor="mt",
        )
    for place, ((label, found, _), line) in enumerate(zip(rows, pictures, strict=True)):
        top = EDGE + 16 + place * (side + GAP)
        words, middle = _wrapped(label, small), top + side // 2
        if len(label) <= LETTERS:
            pen.text((EDGE, middle - (8 if found else 0)), label, INK, font, anchor="lm")
            pen.text((EDGE, middle + 10), found, SOFT, small, anchor="lm")
        else:
            above = middle - LINE * (len(words) + bool(found) - 1) // 2
            for below, text in enumerate(words):
                pen.text((EDGE, above + LINE * below), text, INK, small, anchor="lm")
            pen.text((EDGE, above + LINE * len(words) + 1), found, SOFT, small, anchor="lm")
        for column, picture in enumerate(line):
            paper.paste(_enlarged(picture, side), (EDGE + LABEL + column * (side + GAP), top))
    out = io.BytesIO()
    paper.save(out, "PNG", optimize=True)
    return out.getvalue()


def _wrapped(label: str, small: Font) -> list[str]:
    """A label in one line, or in as many small ones as it needs: names of combinations differ at
    their ends, and none is cut while a row is high enough."""
    if len(label) <= LETTERS:
        return [label]
    lines = [""]
    # one setting of a lever each, else they run over the pictures
    for word in label.replace(",", ", ").split():
        longer = f"{lines[-1]} {word}".strip()
        if small.getlength(longer) <= LABEL - GAP or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return (
        lines
        if len(lines) <= MOST_LINES
        else [*lines[: MOST_LINES - 1], f"{lines[MOST_LINES - 1]} …"]
    )


def _picture(uri: str) -> Image.Image:
    return open_picture(base64.b64decode(uri.partition(",")[2])).image.convert("RGB")


def _enlarged(picture: Image.Image, side: int) -> Image.Image:
    """By a whole factor, in the middle of its cell."""
    times = max(1, side // max(picture.size))
    grown = picture.resize(
        (picture.width * times, picture.height * times), Image.Resampling.NEAREST
    )
    cell = Image.new("RGB", (side, side), PAPER)
    cell.paste(grown, ((side - grown.width) // 2, (side - grown.height) // 2))
    return cell
