"""One stored picture to bytes of pixels, or a refusal that says why; nothing is converted in silence.

H, W the picture's sides
"""

import io
import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.spec.errors import BadInput

MOST_PIXELS = 1 << 26  # 67 million: a file of some kilobytes can unfold to gigabytes
MOST_BYTES = 1 << 28  # of one file
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
# What was changed without loss, so that it can be counted and told. The order is that of the bits on disk.
NOTES = ("grayscale", "palette", "opaque alpha", "alpha over the background", "turned as its EXIF says")
Colour = tuple[int, int, int]


class BadPicture(Exception):
    """A picture that no metric may look at; the name is added by whoever knows it."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.why, self.hint = why, hint

    def named(self, name: str) -> BadInput:
        out = "or leave bad pictures out with --skip-bad: they are counted and named"
        return BadInput(f"{name}: {self.why}", f"{self.hint or 'mend or remove it'}; {out}")


class Decoded(NamedTuple):
    pixels: NDArray[np.uint8]  # (3, H, W)
    notes: tuple[str, ...]


def decode(data: bytes, background: Colour | None = None) -> Decoded:
    """A file's bytes as RGB; `background` is what shows through transparency."""
    from PIL import Image, ImageOps, UnidentifiedImageError
    if len(data) > MOST_BYTES:
        raise BadPicture(f"a file of {len(data):,} bytes; the limit is {MOST_BYTES:,}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of large pictures and odd tags: they are judged below
            image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
            _admit(image, data)
            turned = image.getexif().get(0x0112, 1) not in (0, 1)
            image.load()
            image = ImageOps.exif_transpose(image)
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        why = "not a picture that can be read" if isinstance(error, UnidentifiedImageError) else str(error)
        raise BadPicture(why) from None
    except BadPicture:
        raise
    except Exception as error:  # decoders raise many kinds on damaged files
        raise BadPicture(f"damaged or cut off ({type(error).__name__}: {str(error)[:100]})") from None
    notes = ["turned as its EXIF says"] if turned else []
    see_through = "transparency" in image.info or image.mode in ("RGBA", "LA", "PA")
    if image.mode == "P":
        notes.append("palette")
    if image.mode in ("L", "1", "LA"):
        notes.append("grayscale")
    if see_through:
        image, note = _opaque(image.convert("RGBA"), background)
        notes.append(note)
    pixels = np.asarray(image.convert("RGB"), dtype=np.uint8)  # (H, W, 3)
    return Decoded(np.ascontiguousarray(pixels.transpose(2, 0, 1)), tuple(note for note in NOTES if note in notes))


def _admit(image, data: bytes) -> None:  # type: ignore[no-untyped-def]
    """Refuses by the header alone, before a pixel is unfolded."""
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise BadPicture(f"{width} x {height} pixels; the limit is {MOST_PIXELS:,}: a decompression bomb?")
    if getattr(image, "n_frames", 1) > 1:
        raise BadPicture(f"{image.n_frames} frames, and which one counts is not ours to choose", "save one frame each")
    if image.mode in ("I", "F") or image.mode.startswith("I;") or _bits(image, data) > 8:
        raise BadPicture("more than 8 bits per channel", "save it with 8 bits: how to scale is your decision")
    if image.mode not in ("RGB", "RGBA", "L", "LA", "P", "PA", "1"):
        raise BadPicture(f"colours are {image.mode}", "convert it to sRGB: how to is your decision")


def _bits(image, data: bytes) -> int:  # type: ignore[no-untyped-def]
    """Bits per channel as the file has them: Pillow cuts 16-bit colour down to 8 without a word."""
    if image.format == "PNG":
        return data[24]  # of IHDR, always the first chunk
    if image.format == "TIFF":
        return int(max(image.tag_v2.get(258, (8,))))
    if image.format == "PPM":
        head = re.sub(rb"#[^\n]*\n", b" ", data[:200]).split()
        return 16 if len(head) > 3 and head[0] in (b"P2", b"P3", b"P5", b"P6") and int(head[3]) > 255 else 8
    return 8


def _opaque(image, background: Colour | None):  # type: ignore[no-untyped-def]
    from PIL import Image
    if image.getchannel("A").getextrema()[0] == 255:
        return image, "opaque alpha"
    if background is None:
        raise BadPicture("parts of it are transparent", "say what shows through: --background white (or black, or r,g,b)")
    return Image.alpha_composite(Image.new("RGBA", image.size, (*background, 255)), image), "alpha over the background"


def read_colour(text: str) -> Colour:
    """white, black or r,g,b."""
    named = {"white": (255, 255, 255), "black": (0, 0, 0), "gray": (128, 128, 128)}
    parts: Sequence[str] = text.split(",")
    if text in named:
        return named[text]
    if len(parts) == 3 and all(part.strip().isdigit() and int(part) < 256 for part in parts):
        return (int(parts[0]), int(parts[1]), int(parts[2]))
    raise BadInput(f"'{text}' is not a colour", "write white, black, gray or r,g,b with numbers up to 255")
