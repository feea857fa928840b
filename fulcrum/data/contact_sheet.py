"""Sheets of captioned pictures to look at: of the world's splits, of an imported data set's, or of what was drawn."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fulcrum.data.caption import Chooser
from fulcrum.data.source import WorldSource
from fulcrum.data.store.picture_store import SPLITS, PictureStore
from fulcrum.spec.keyed import key
from fulcrum.spec.printable import shown

COLUMNS, SIDE, GAP, HEAD, LINES, LINE = 6, 128, 12, 24, 11, 13

Captioned = tuple[Image.Image, str]


def draw_sheet(to: Path, rows: Mapping[str, Sequence[Captioned]], columns: int = COLUMNS, side: int = SIDE) -> Path:
    """Write a PNG: under each title one row of pictures with their captions below."""
    to.parent.mkdir(parents=True, exist_ok=True)
    captioned_sheet(list(rows.items()), columns, side).save(to, format="PNG")
    return to


def captioned_sheet(
    rows: Sequence[tuple[str, Sequence[Captioned]]], columns: int, side: int, lines: int = LINES
) -> Image.Image:
    """Under each title one row of pictures, of at most `side` pixels, with at most so many lines of caption below."""
    font, title_font = ImageFont.load_default(11), ImageFont.load_default(13)
    wide, tall = side + 2 * GAP, HEAD + side + GAP // 2 + lines * LINE
    sheet = Image.new("RGB", (columns * wide, len(rows) * tall + GAP), "white")
    pen = ImageDraw.Draw(sheet)
    for number, (title, pictures) in enumerate(rows):
        top = number * tall + GAP // 2
        pen.text((GAP, top), shown(title)[: columns * wide // 6], fill="black", font=title_font)
        for column, (picture, caption) in enumerate(pictures):
            left = column * wide + GAP
            sheet.paste(picture, (left, top + HEAD))
            below, text = (
                (left, top + HEAD + side + GAP // 2),
                "\n".join(_below(caption, max(12, (side + GAP) // 6), lines)),
            )
            pen.multiline_text(below, text, fill="#333333", font=font, spacing=2)
    return sheet


def _below(caption: str, letters: int, lines: int) -> list[str]:
    """A caption in lines of so many letters; where there are more lines than room the last one ends with a mark."""
    wrapped = [shown(part) for line in caption.splitlines() for part in textwrap.wrap(line, letters)]
    return wrapped if len(wrapped) <= lines else [*wrapped[: lines - 1], wrapped[lines - 1][: letters - 2].rstrip() + " …"]


def world_sheet(
    to: Path, sources: Sequence[WorldSource], chooser: Chooser | None = None, columns: int = COLUMNS, side: int = SIDE
) -> Path:
    """Scenes of each source, drawn at `side` pixels whatever the source's own size."""
    rows: dict[str, Sequence[Captioned]] = {}
    for source in sources:
        shown = replace(source, size=side, count=min(columns, len(source)))
        samples = shown.read(np.arange(len(shown)))
        texts = shown.prompts(chooser or Chooser(), samples.ids)
        wrong = f", {source.mislabelled:.0%} mislabelled" if source.mislabelled else ""
        rows[f"{source.split}, {source.domain}: {len(source):,} scenes{wrong}"] = [
            (Image.fromarray(pixels.transpose(1, 2, 0)), text) for pixels, text in zip(samples.images, texts, strict=True)
        ]
    return draw_sheet(to, rows, columns, side)


def store_sheet(to: Path, folder: Path) -> Path:
    """Pictures of each split of an imported data set; which ones is drawn by number: the same ones every time."""
    store, rows = PictureStore(folder), dict[str, Sequence[Captioned]]()
    for name in SPLITS:
        numbers = store.split(name)
        chosen = numbers[np.argsort(key("sheet", numbers))][:COLUMNS]
        if len(chosen):
            title = f"{name}: {store.about['splits'][name]:,} pictures"
            rows[title] = [_stored(store, row) for row in map(int, chosen)]
    return draw_sheet(to, rows)


def _stored(store: PictureStore, row: int) -> Captioned:
    picture = Image.fromarray(np.ascontiguousarray(store.picture(row).transpose(1, 2, 0)))
    scale = SIDE / max(picture.size)
    size = (round(picture.width * scale), round(picture.height * scale))
    captions = "\n".join(f"{name}: {texts[0]}" for name, texts in store.captions(row).items())
    return picture.resize(size, Image.Resampling.LANCZOS), captions
