"""One picture, from bytes that nobody vouches for to RGB of a wanted size; what cannot be used is refused and says why."""
from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

MOST_BYTES = 1 << 28                    # of one file
MOST_PIXELS = 1 << 26                   # 67 million: some kilobytes can unfold to gigabytes
LEAST_SIDE = 8
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
# What was done to a picture; the place of each is its bit in the store.
CHANGES = ("cropped", "resized", "enlarged", "turned as its EXIF says", "alpha over white", "colours converted", "repeated")
ENCODINGS = {"png": ".png", "jpeg": ".jpg", "raw": ".ppm"}
_EXIF_TURN = 0x0112

Size = tuple[int, int]                  # width, height


class BadSample(Exception):
    """A sample that cannot be used; whoever knows its name adds it."""


class Opened(NamedTuple):
    image: Image.Image                  # RGB
    changes: frozenset[str]


def decode(data: bytes) -> Opened:
    """RGB from a file's bytes. Size and frames are judged by the header, before a pixel is unfolded."""
    if len(data) > MOST_BYTES:
        raise BadSample(f"too large a file: {len(data):,} bytes, the limit is {MOST_BYTES:,}")
    if not data:
        raise BadSample("an empty file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")             # Pillow warns of large pictures and odd tags: judged below
            image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
            _admit(image, data)
            turned = image.getexif().get(_EXIF_TURN, 1) not in (0, 1)
            image.load()
            if turned:
                image = ImageOps.exif_transpose(image)
    except UnidentifiedImageError:
        raise BadSample("not a picture that can be read") from None
    except Image.DecompressionBombError as error:
        raise BadSample(f"too many pixels: {error}") from None
    except BadSample:
        raise
    except Exception as error:                          # decoders raise many kinds on damaged files
        raise BadSample(f"damaged or cut off ({type(error).__name__}: {str(error)[:100]})") from None
    changes = {"turned as its EXIF says"} if turned else set()
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema()[0] < 255:
            changes.add("alpha over white")
            image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
    elif image.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
        changes.add("colours converted")
    return Opened(image.convert("RGB"), frozenset(changes))


def _admit(image: Image.Image, data: bytes) -> None:
    width, height = image.size
    if min(width, height) < LEAST_SIDE:
        raise BadSample(f"too small: {width} x {height} pixels, a side has at least {LEAST_SIDE}")
    if width * height > MOST_PIXELS:
        raise BadSample(f"too many pixels: {width} x {height}, the limit is {MOST_PIXELS:,}; a decompression bomb?")
    if getattr(image, "n_frames", 1) > 1:
        raise BadSample(f"several frames: {image.n_frames}; save the one that counts")     # type: ignore[attr-defined]
    deep = image.format == "PNG" and data[24] > 8       # Pillow cuts 16-bit colour down without a word
    if image.mode in ("I", "F") or image.mode.startswith("I;") or deep:
        raise BadSample("more than 8 bits per channel: save it with 8")


class Fitted(NamedTuple):
    image: Image.Image
    changes: frozenset[str]


def fit(image: Image.Image, wanted: Size) -> Fitted:
    """Centre-crop to the wanted shape, then resize with Lanczos (antialiased); untouched if it fits already."""
    if image.size == wanted:
        return Fitted(image, frozenset())
    (width, height), (w, h) = image.size, wanted
    scale = min(width / w, height / h)
    taken = (min(width, round(w * scale)), min(height, round(h * scale)))
    left, top = (width - taken[0]) // 2, (height - taken[1]) // 2
    changes = {"cropped"} if taken != image.size else set()
    if taken != wanted:
        changes.add("resized" if taken[0] >= w and taken[1] >= h else "enlarged")
    box = (left, top, left + taken[0], top + taken[1])
    taken_out = image.crop(box) if "cropped" in changes else image      # first: resize(box=) looks beyond its box
    return Fitted(taken_out.resize(wanted, Image.Resampling.LANCZOS), frozenset(changes))


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
    return min(range(len(shapes)), key=lambda n: (abs(math.log(shapes[n][0] / shapes[n][1]) - ratio),
                                                  -shapes[n][0] * shapes[n][1]))


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
    image: Image.Image = Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "PPM"))
    if image.size != size:
        raise BadSample(f"{image.size[0]} x {image.size[1]} pixels where {size[0]} x {size[1]} were stored")
    if image.mode != "RGB":
        image = image.convert("RGB")
    if wanted is not None and size != wanted:
        image = image.resize(wanted, Image.Resampling.LANCZOS)
    return np.asarray(image).transpose(2, 0, 1)
