"""Sheets to look at: nothing is cut that has room, and a caption stands right below its picture."""

import numpy as np
from PIL import Image, ImageFont

from fulcrum.data.sheets import GAP, HEAD, _lines, captioned_sheet

LONG = (
    "a large red circle at the top left and a small blue ring at the bottom right of a green"
    " square, seed {} (picture 0)"
)


def pixels(sheet):
    return np.asarray(sheet.convert("L")).astype(int)


def test_a_caption_stands_right_below_a_wide_picture():
    picture = Image.new("RGB", (192, 128), "black")
    sheet = pixels(captioned_sheet([("", [(picture, "a red circle")])], 1, 0, 3))
    dark = np.flatnonzero((sheet < 200).any(axis=1))
    below = dark[dark >= GAP // 2 + HEAD + 128]
    assert 0 < below[0] - (GAP // 2 + HEAD + 128) < 16
    assert sheet.shape[1] < 192 + 3 * GAP


def test_captions_are_as_wide_as_their_cell():
    font = ImageFont.load_default(11)
    lines = _lines(LONG, 200, 6, font)
    assert (
        all(font.getlength(line) <= 200 for line in lines) and max(map(font.getlength, lines)) > 160
    )
    assert (
        _lines("x" * 500, 100, 2, font)[-1].endswith(" …") and len(_lines(LONG, 100, 2, font)) == 2
    )


def test_a_title_is_wrapped_and_not_cut():
    cells = [(Image.new("RGB", (64, 64)), "") for _ in range(2)]
    one, other = (pixels(captioned_sheet([(LONG.format(seed), cells)], 2, 0, 1)) for seed in (0, 8))
    assert one.shape == other.shape and not np.array_equal(one, other)
