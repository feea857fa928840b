"""The data card and contact sheets of captioned pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fulcrum.data.captions import Chooser
from fulcrum.data.source import WorldSource
from fulcrum.data.stores.picture_store import SPLITS, PictureStore
from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import Scenes
from fulcrum.spec.errors import shown
from fulcrum.spec.keyed import key

# --------------------------------------------------------------------------------------------------
# The data card: what the pictures of a run are, in counts, proportions and hashes.


_LOOKED_AT = 20_000  # proportions and overlap use at most this many scenes of a source


def data_card(sources: Sequence[WorldSource]) -> dict[str, Any]:
    """Facts of these sources as plain data, ready for JSON."""
    looked_at = [source.scenes(np.arange(min(len(source), _LOOKED_AT))) for source in sources]
    return {
        "generator": "fulcrum world",
        "version": v.WORLD_VERSION,
        "sources": [
            _facts(source, chosen) for source, chosen in zip(sources, looked_at, strict=True)
        ],
        "overlap": _overlap(looked_at),
    }


def _facts(source: WorldSource, chosen: Scenes) -> dict[str, Any]:
    def shares(values: np.ndarray[Any, Any], words: Sequence[str]) -> dict[str, float]:
        counts = np.bincount(values[values >= 0].ravel(), minlength=len(words))
        return {
            word: round(float(n) / max(int(counts.sum()), 1), 4)
            for word, n in zip(words, counts, strict=True)
        }

    return {
        "split": source.split,
        "domain": source.domain,
        "size": source.size,
        "count": len(source),
        "max_objects": source.max_objects,
        "fingerprint": source.fingerprint(),
        "looked_at": len(chosen),
        "mislabelled": {
            "share": source.mislabelled,
            "planted": int(source.planted(chosen.index).sum()),
        },
        "distinct_descriptions": len(np.unique(chosen.signature())),
        "proportions": {
            "objects": shares(chosen.count - 1, ("1", "2", "3")),
            "shape": shares(chosen.shape, v.SHAPES),
            "colour": shares(chosen.colour, v.COLOURS),
            "texture": shares(chosen.texture, v.TEXTURES),
            "size": shares(chosen.size, v.SIZES),
            "place": shares(chosen.place, v.PLACES),
            "background": shares(chosen.background, v.BACKGROUNDS),
            "background_colour": shares(chosen.background_colour, v.BACKGROUND_COLOURS),
        },
    }


def _overlap(looked_at: Sequence[Scenes]) -> dict[str, Any]:
    """Descriptions that two splits share: none, by construction; counted all the same."""
    seen: dict[str, list[np.ndarray[Any, Any]]] = {}
    for chosen in looked_at:
        seen.setdefault(chosen.split, []).append(chosen.signature())
    merged = {split: np.unique(np.concatenate(parts)) for split, parts in seen.items()}
    shared = {
        f"{a} and {b}": int(np.intersect1d(merged[a], merged[b]).size)
        for a, b in combinations(merged, 2)
    }
    return {"shared_descriptions": shared, "disjoint": not any(shared.values())}


# --------------------------------------------------------------------------------------------------
# Sheets of captioned pictures to look at: of the world's splits, of an imported data set's, or of
# what was drawn.


COLUMNS, SIDE, GAP, HEAD, LINES, LINE = 6, 128, 12, 24, 11, 13
TITLE_LINES, TITLE_LINE = 4, 16  # of a row's title: the most, and how high one is
LEAST = 96  # pixels of a cell's width: captions of small pictures can be read

Captioned = tuple[Image.Image, str]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def draw_sheet(
    to: Path, rows: Mapping[str, Sequence[Captioned]], columns: int = COLUMNS, side: int = SIDE
) -> Path:
    """Write a PNG: under each title one row of pictures with their captions below."""
    to.parent.mkdir(parents=True, exist_ok=True)
    captioned_sheet(list(rows.items()), columns, side).save(to, format="PNG")
    return to


def captioned_sheet(
    rows: Sequence[tuple[str, Sequence[Captioned]]], columns: int, side: int, lines: int = LINES
) -> Image.Image:
    """Under each title one row of pictures with at most so many lines of caption below; a cell is
    `side` pixels wide and high, or as the largest picture is. Titles and captions are wrapped by
    how wide their letters are."""
    font, title_font = ImageFont.load_default(11), ImageFont.load_default(13)
    sizes = [picture.size for _, pictures in rows for picture, _ in pictures]
    across, down = (
        (max([side, *lengths]) for lengths in zip(*sizes, strict=True)) if sizes else (side, side)
    )
    wide = max(across, LEAST) + 2 * GAP
    titles = [_lines(title, columns * wide - 2 * GAP, TITLE_LINES, title_font) for title, _ in rows]
    captions = [
        [_lines(caption, wide - GAP, lines, font) for _, caption in pictures]
        for _, pictures in rows
    ]
    under = [max(map(len, texts), default=0) * LINE for texts in captions]
    over = [HEAD + max(len(title) - 1, 0) * TITLE_LINE for title in titles]
    heights = [head + down + GAP // 2 + foot + GAP for head, foot in zip(over, under, strict=True)]
    sheet = Image.new("RGB", (columns * wide, sum(heights) + GAP), "white")
    pen, top = ImageDraw.Draw(sheet), GAP // 2
    for number, (_, pictures) in enumerate(rows):
        for place, line in enumerate(titles[number]):
            pen.text((GAP, top + place * TITLE_LINE), line, fill="black", font=title_font)
        for column, (picture, _) in enumerate(pictures):
            left, below = column * wide + GAP, top + over[number] + down + GAP // 2
            sheet.paste(picture, (left, top + over[number]))
            for place, line in enumerate(captions[number][column]):
                pen.text((left, below + place * LINE), line, fill="#333333", font=font)
        top += heights[number]
    return sheet


def _lines(text: str, pixels: int, most: int, font: Font) -> list[str]:
    """A text in lines that are not wider than so many pixels; of more lines than there may be the
    last ends with a mark."""
    wrapped = [
        part
        for line in text[: most * pixels].splitlines()
        for part in _wrapped(shown(line), pixels, font)
    ]
    if len(wrapped) <= most:
        return wrapped
    last = wrapped[most - 1]
    while last and font.getlength(f"{last} …") > pixels:
        last = last[:-1].rstrip()
    return [*wrapped[: most - 1], f"{last} …"]


def _wrapped(line: str, pixels: int, font: Font) -> list[str]:
    """By words; a word that is wider than a line is broken."""
    lines = [""]
    for word in line.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= pixels:
            lines[-1] = longer
            continue
        lines += [""] if lines[-1] else []
        for letter in word:
            if lines[-1] and font.getlength(lines[-1] + letter) > pixels:
                lines.append("")
            lines[-1] += letter
    return [one for one in lines if one]


def world_sheet(to: Path, sources: Sequence[WorldSource]) -> Path:
    """Scenes of each source, drawn at one size whatever the source's own."""
    rows: dict[str, Sequence[Captioned]] = {}
    for source in sources:
        shown = replace(source, size=SIDE, count=min(COLUMNS, len(source)))
        samples = shown.read(np.arange(len(shown)))
        texts = shown.prompts(Chooser(), samples.ids)
        wrong = f", {source.mislabelled:.0%} mislabelled" if source.mislabelled else ""
        rows[f"{source.split}, {source.domain}: {len(source):,} scenes{wrong}"] = [
            (Image.fromarray(pixels.transpose(1, 2, 0)), text)
            for pixels, text in zip(samples.images, texts, strict=True)
        ]
    return draw_sheet(to, rows)


def store_sheet(to: Path, folder: Path) -> Path:
    """Pictures of each split of an imported data set; which ones is drawn by number: the same ones
    every time."""
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
