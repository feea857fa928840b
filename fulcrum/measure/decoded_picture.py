"""One stored picture to bytes of pixels, or a refusal that says why; nothing is converted in silence.

H, W the picture's sides
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.readers.pictures import SUFFIXES as PICTURES
from fulcrum.data.readers.pictures import TURNED, Colour, Refused, open_picture
from fulcrum.spec.errors import BadInput

SUFFIXES = (*PICTURES, ".pgm")
# What was changed without loss, so that it can be counted and told. The order is that of the bits on disk.
NOTES = ("grayscale", "palette", "opaque alpha", "alpha over the background", TURNED)


class BadPicture(Refused):
    """A picture that no metric may look at; the name is added by whoever knows it."""

    def named(self, name: str) -> BadInput:
        out = "or leave bad pictures out with --skip-bad: they are counted and named"
        return BadInput(f"{name}: {self.why}", f"{self.hint or 'mend or remove it'}; {out}")


class Decoded(NamedTuple):
    pixels: NDArray[np.uint8]  # (3, H, W)
    notes: tuple[str, ...]


def decode(data: bytes, background: Colour | None = None) -> Decoded:
    """A file's bytes as RGB; `background` is what shows through transparency."""
    opened = open_picture(data, BadPicture)
    image, notes = opened.image, [TURNED] if opened.turned else []
    if image.mode not in ("RGB", "RGBA", "L", "LA", "P", "PA", "1"):
        raise BadPicture(f"colours are {image.mode}", "convert it to sRGB: how to is your decision")
    if image.mode == "P":
        notes.append("palette")
    if image.mode in ("L", "1", "LA"):
        notes.append("grayscale")
    if opened.see_through:
        if opened.is_opaque():
            notes.append("opaque alpha")
        elif background is None:
            raise BadPicture(
                "parts of it are transparent", "say what shows through: --background white (or black, or r,g,b)"
            )
        else:
            image = opened.over(background)
            notes.append("alpha over the background")
    pixels = np.asarray(image.convert("RGB"), dtype=np.uint8)  # (H, W, 3)
    return Decoded(np.ascontiguousarray(pixels.transpose(2, 0, 1)), tuple(note for note in NOTES if note in notes))


def read_colour(text: str) -> Colour:
    """white, black or r,g,b."""
    named = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}
    parts: Sequence[str] = text.split(",")
    if text in named:
        return named[text]
    if len(parts) == 3 and all(part.strip().isdigit() and int(part) < 256 for part in parts):
        return (int(parts[0]), int(parts[1]), int(parts[2]))
    raise BadInput(f"'{text}' is not a colour", "write white, black, gray or r,g,b with numbers up to 255")
