"""One picture, from bytes that nobody vouches for to RGB of a wanted size; what cannot be used is refused and says why."""

import io
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor

from fulcrum.data.readers.untrusted_image import TURNED, Colour, Refused, open_picture
from fulcrum.spec.errors import BadInput

LEAST_SIDE = 8
# What was done to a picture; the place of each is its bit in the store. The fifth keeps a name older than --background.
ALPHA = "alpha over white"
CHANGES = ("cropped", "resized", "enlarged", TURNED, ALPHA, "colours converted", "repeated", "padded")
WHITE: Colour = (255, 255, 255)
ENCODINGS = {"png": ".png", "jpeg": ".jpg", "raw": ".ppm"}

Size = tuple[int, int]  # width, height


class BadSample(Refused):
    """A sample that cannot be used; whoever knows its name adds it."""

    def __str__(self) -> str:
        return f"{self.why}; {self.hint}" if self.hint else self.why


class RgbPicture(NamedTuple):
    image: Image.Image
    changes: frozenset[str]  # what was done to it


def decode(data: bytes, background: Colour = WHITE) -> RgbPicture:
    """RGB from a file's bytes; what is see-through shows the background."""
    opened = open_picture(data, BadSample)
    image, changes = opened.image, {TURNED} if opened.turned else set()
    if min(image.size) < LEAST_SIDE:
        raise BadSample(f"too small: {image.size[0]} x {image.size[1]} pixels, a side has at least {LEAST_SIDE}")
    if opened.see_through and not opened.is_opaque():
        changes.add(ALPHA)
        image = opened.over(background)
    elif image.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
        changes.add("colours converted")
    return RgbPicture(image.convert("RGB"), frozenset(changes))


def fit(image: Image.Image, wanted: Size) -> RgbPicture:
    """Centre-crop to the wanted shape, then resize with Lanczos (antialiased); untouched if it fits already."""
    if image.size == wanted:
        return RgbPicture(image, frozenset())
    left, top, width, height = centre(image.size, wanted)
    changes = {"cropped"} if (width, height) != image.size else set()
    if (width, height) != wanted:
        changes.add("resized" if width >= wanted[0] and height >= wanted[1] else "enlarged")
    box = (left, top, left + width, top + height)
    taken_out = image.crop(box) if "cropped" in changes else image  # first: resize(box=) looks beyond its box
    return RgbPicture(taken_out.resize(wanted, Image.Resampling.LANCZOS), frozenset(changes))


def pad(image: Image.Image, wanted: Size, background: Colour = WHITE) -> RgbPicture:
    """The whole picture in the middle of the wanted shape, resized with Lanczos, with a colour beside it."""
    if image.size == wanted:
        return RgbPicture(image, frozenset())
    scale = min(wanted[0] / image.width, wanted[1] / image.height)
    inside = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    changes = set() if inside == image.size else {"resized" if scale < 1 else "enlarged"}
    drawn = image if inside == image.size else image.resize(inside, Image.Resampling.LANCZOS)
    if inside == wanted:
        return RgbPicture(drawn, frozenset(changes))
    whole = Image.new("RGB", wanted, background)
    whole.paste(drawn, ((wanted[0] - inside[0]) // 2, (wanted[1] - inside[1]) // 2))
    return RgbPicture(whole, frozenset({*changes, "padded"}))


def colour_named(text: str) -> Colour:
    """A colour as people write it: white, #ffeedd, rgb(10, 20, 30)."""
    try:
        red, green, blue = ImageColor.getrgb(text)[:3]
    except ValueError:
        raise BadInput(f"no colour is called '{text}'", "such as white, '#ffeedd' or 'rgb(10, 20, 30)'") from None
    return red, green, blue


def centre(given: Size, wanted: Size) -> tuple[int, int, int, int]:
    """Left, top, width and height of the largest part in the middle of a picture that has the wanted shape."""
    (width, height), (w, h) = given, wanted
    scale = min(width / w, height / h)
    taken = (min(width, round(w * scale)), min(height, round(h * scale)))
    return (width - taken[0]) // 2, (height - taken[1]) // 2, *taken


def buckets(size: int, step: int = 0) -> tuple[Size, ...]:
    """Shapes of about size x size pixels, from 1:2 to 2:1, sides multiples of `step`: an eighth of `size`, at least 8."""
    step = step or max(8, size // 8 // 8 * 8)
    shapes = {(size, size)}
    for width in range(step, 2 * size + 1, step):
        height = size * size // width // step * step
        if height and 0.5 <= width / height <= 2:
            shapes |= {(width, height), (height, width)}
    return tuple(sorted(shapes))


def nearest(given: Size, shapes: Sequence[Size]) -> int:
    """Number of the shape whose sides are closest in ratio; of equals the largest."""
    ratio = math.log(given[0] / given[1])
    return min(
        range(len(shapes)), key=lambda n: (abs(math.log(shapes[n][0] / shapes[n][1]) - ratio), -shapes[n][0] * shapes[n][1])
    )


def encode(image: Image.Image, encoding: str, quality: int) -> bytes:
    """The bytes that are stored."""
    stream = io.BytesIO()
    if encoding == "jpeg":
        image.save(stream, "JPEG", quality=quality, subsampling=0 if quality >= 90 else 2)
    else:
        image.save(stream, "PNG", compress_level=6) if encoding == "png" else image.save(stream, "PPM")
    return stream.getvalue()


def pixels(data: bytes, size: Size, wanted: Size | None = None) -> NDArray[np.uint8]:
    """(3, H, W) of bytes that we stored ourselves, whose checksum was just compared; resized to the wanted shape."""
    image = _coloured(_stored(data, size))
    if wanted is not None and size != wanted:
        image = image.resize(wanted, Image.Resampling.LANCZOS)
    return np.asarray(image).transpose(2, 0, 1)


def miniature(data: bytes, size: Size, side: int) -> NDArray[np.uint8]:
    """(side, side, 3): the whole of such a picture in a small square, each pixel the mean of what it stands for. Of a JPEG
    only the coarse frequencies are decoded, which is most of the time saved."""
    image = _stored(data, size)
    image.draft("RGB", (side, side))  # the smallest of 1/1 to 1/8 that is no smaller than this; other formats: as they are
    image = _coloured(image)
    return np.asarray(image if image.size == (side, side) else image.resize((side, side), Image.Resampling.BOX))


def _stored(data: bytes, size: Size) -> Image.Image:
    image: Image.Image = Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "PPM"))
    if image.size != size:
        raise BadSample(f"{image.size[0]} x {image.size[1]} pixels where {size[0]} x {size[1]} were stored")
    return image


def _coloured(image: Image.Image) -> Image.Image:
    return image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
