"""The size that a person asks a picture to have: WIDTHxHEIGHT as a text, or the numbers (height, width). No torch."""

import re
from collections.abc import Sequence

from fulcrum.spec.errors import BadInput, shown

MOST_PIXELS = 8192  # of a drawn picture's side


def picture_size(asked: object) -> tuple[int, int]:
    """(H, W) of "48x32", which is wide, or of (32, 48), which is the same: arrays name their rows first."""
    if isinstance(asked, str):
        sides = re.fullmatch("([0-9]{1,5})[xX]([0-9]{1,5})", asked)
        size = (int(sides[2]), int(sides[1])) if sides else (0, 0)
    else:
        whole = isinstance(asked, Sequence) and len(asked) == 2 and all(type(side) is int for side in asked)
        size = (asked[0], asked[1]) if whole else (0, 0)  # type: ignore[index]
    if not 0 < min(size) <= max(size) <= MOST_PIXELS:
        raise BadInput(
            f"a picture's size is a width and a height, such as 48x32, of at most {MOST_PIXELS}; "
            f"found '{shown(str(asked))}'",
            'leave it out for the run\'s own size; in Python "48x32", or (32, 48): height first',
        )
    return size
