"""A sheet of what runs drew: captions, the real picture, then each run's.

    python -m examples.emoji.look sheet.png RUN ... [--split train]

Captions are of concepts that were never trained on, or of trained ones with --split train. In the folder where emoji_64 and
runs lie.
"""

import argparse
import textwrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fulcrum import sample
from fulcrum.data.caption import Chooser
from fulcrum.data.store.folder_source import FolderSource

COLUMNS = 10
SIDE, GAP, TEXT = 96, 8, 118  # pixels: of a picture, between two, of the captions below


def sheet(to: str, runs: list[str], split: str) -> None:
    source, shown = FolderSource("emoji_64", split), np.arange(COLUMNS)
    prompts = source.prompts(Chooser(), shown)
    rows = [source.read(shown).images.transpose(0, 2, 3, 1), *(sample(run, prompts, seed=20_260) for run in runs)]
    page = Image.new("RGB", (COLUMNS * (SIDE + GAP) + GAP, len(rows) * (SIDE + GAP) + TEXT), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(9)
    for row, pictures in enumerate(rows):
        for column, pixels in enumerate(pictures):
            picture = Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
            page.paste(picture, (GAP + column * (SIDE + GAP), GAP + row * (SIDE + GAP)))
    for column, prompt in enumerate(prompts):
        lines = "\n".join(textwrap.wrap(prompt, 21)[:11])
        below = (GAP + column * (SIDE + GAP), len(rows) * (SIDE + GAP) + 6)
        pen.multiline_text(below, lines, fill="#333333", font=font, spacing=1)
    page.save(to)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.emoji.look", description=__doc__.split("\n")[0])
    parser.add_argument("sheet", help="the PNG to write")
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--split", default="reference", choices=("reference", "train", "validation"))
    given = parser.parse_args()
    sheet(given.sheet, given.runs, given.split)
