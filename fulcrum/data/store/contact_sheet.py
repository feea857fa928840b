"""A sheet of an imported data set: some pictures of each split with their captions, to look at before training."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fulcrum.data.store.picture_store import SPLITS, PictureStore
from fulcrum.spec.keyed import key

COLUMNS, SIDE, GAP, HEAD, LINES, LINE = 6, 128, 12, 24, 9, 13


def store_sheet(to: Path, folder: Path) -> Path:
    """Write a PNG. Which pictures are shown is drawn by number: the same ones every time."""
    store = PictureStore(folder)
    rows = {name: store.split(name) for name in SPLITS}
    rows = {name: some[np.argsort(key("sheet", some))][:COLUMNS] for name, some in rows.items() if len(some)}
    font, title = ImageFont.load_default(11), ImageFont.load_default(13)
    wide, tall = SIDE + 2 * GAP, HEAD + SIDE + GAP // 2 + LINES * LINE
    sheet = Image.new("RGB", (COLUMNS * wide, len(rows) * tall + GAP), "white")
    pen = ImageDraw.Draw(sheet)
    for number, (name, some) in enumerate(rows.items()):
        top = number * tall + GAP // 2
        pen.text((GAP, top), f"{name}: {store.about['splits'][name]:,} pictures", fill="black", font=title)
        for column, row in enumerate(some):
            left = column * wide + GAP
            picture = Image.fromarray(np.ascontiguousarray(store.picture(int(row)).transpose(1, 2, 0)))
            scale = SIDE / max(picture.size)
            shown = picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.LANCZOS)
            sheet.paste(shown, (left, top + HEAD))
            told = "\n".join(f"{kind}: {texts[0]}" for kind, texts in store.captions(int(row)).items())
            lines = [part for text in told.splitlines() for part in textwrap.wrap(text, (SIDE + GAP) // 6)][:LINES]
            pen.multiline_text((left, top + HEAD + SIDE + GAP // 2), "\n".join(lines), fill="#333333", font=font, spacing=2)
    to.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(to, format="PNG")
    return to
