"""Decode an untrusted picture or SVG drawing and fit it to a wanted size."""

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageOps, TiffImagePlugin, UnidentifiedImageError

from fulcrum.data.readers.reader import MOST_BYTES, too_large
from fulcrum.spec.errors import BadInput, install_extra

# --------------------------------------------------------------------------------------------------
# A picture's bytes that nobody vouches for, opened safely: judged by the header before a pixel is
# unfolded.


MOST_PIXELS = 1 << 26  # 67 million: some kilobytes can unfold to gigabytes
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
TURNED = "turned as its EXIF says"
Colour = tuple[int, int, int]
_EXIF_TURN, _TIFF_BITS = 0x0112, 258


class Refused(Exception):
    """A picture that cannot be used; whoever knows its name adds it."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.why, self.hint = why, hint


class Opened(NamedTuple):
    image: Image.Image  # of whatever mode the file has; upright
    turned: bool  # it was not, and its EXIF said so

    @property
    def see_through(self) -> bool:
        """It may be: a file can have an alpha channel that hides nothing."""
        return self.image.mode in ("RGBA", "LA", "PA") or "transparency" in self.image.info

    def is_opaque(self) -> bool:
        return self.image.convert("RGBA").getchannel("A").getextrema()[0] == 255

    def over(self, colour: Colour) -> Image.Image:
        """With a colour behind it."""
        picture = self.image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, (*colour, 255)), picture)


def open_picture(data: bytes, refuse: type[Refused] = Refused) -> Opened:
    """The picture in a file's bytes; what cannot be one is refused, with a reason."""
    if len(data) > MOST_BYTES:
        raise refuse(too_large(len(data)))
    if not data:
        raise refuse("an empty file, not a picture that can be read")
    try:
        with warnings.catch_warnings():
            # Pillow warns of large pictures and odd tags: judged below
            warnings.simplefilter("ignore")
            image: Image.Image = Image.open(io.BytesIO(data), formats=FORMATS)
            _admit(image, data, refuse)
            turned = image.getexif().get(_EXIF_TURN, 1) not in (0, 1)
            image.load()
            return Opened(ImageOps.exif_transpose(image) if turned else image, turned)
    except UnidentifiedImageError:
        raise refuse("not a picture that can be read") from None
    except Image.DecompressionBombError as error:
        raise refuse(f"too many pixels: {error}") from None
    except refuse:
        raise
    except Exception as error:  # decoders raise many kinds on damaged files
        raise refuse(f"damaged or cut off ({type(error).__name__}: {str(error)[:100]})") from None


def _admit(image: Image.Image, data: bytes, refuse: type[Refused]) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise refuse(
            f"too many pixels: {width} x {height}, the limit is {MOST_PIXELS:,}: a decompression"
            " bomb?"
        )
    # n_frames would go through all of them: minutes for some megabytes
    if getattr(image, "is_animated", False):
        raise refuse(
            "several frames, and which one counts is not ours to choose", "save one frame each"
        )
    if image.mode in ("I", "F") or image.mode.startswith("I;") or _bits(image, data) > 8:
        raise refuse(
            "more than 8 bits per channel", "save it with 8 bits: how to scale is your decision"
        )


def _bits(image: Image.Image, data: bytes) -> int:
    """Bits per channel as the file has them: Pillow cuts 16-bit colour down to 8 without a word."""
    if image.format == "PNG":
        return data[24]  # of IHDR, always the first chunk
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return int(max(image.tag_v2.get(_TIFF_BITS, (8,))))
    if image.format == "PPM":
        head = re.sub(rb"#[^\n]*\n", b" ", data[:200]).split()
        return (
            16
            if len(head) > 3 and head[0] in (b"P2", b"P3", b"P5", b"P6") and int(head[3]) > 255
            else 8
        )
    return 8


# --------------------------------------------------------------------------------------------------
# SVG drawings, drawn by the package resvg_py where it is installed; else named, so that nobody
# wonders where they went.
#
# A drawing that nobody vouches for may point at files and addresses: one that holds anything but
# itself is refused.


SVG = ".svg"
MOST = 4 << 20  # bytes of a drawing
SIDE = 1024  # pixels of the longer side: an import makes it smaller
MOST_ASPECT = 16  # longer to shorter side
MOST_USES = 24  # parts that are drawn again: nested, they multiply
_USE = re.compile(r"<\s*use\b", re.I)
_OUTSIDE = re.compile(
    r"""<\s*(image|foreignObject|script)\b|<!ENTITY|@import|url\(\s*['"]?(?!\s*['"]?#)|href\s*=\s*['"](?!#)""",
    re.I,
)


def drawn(data: bytes) -> bytes:
    """A PNG of a drawing; a ValueError says why there is none."""
    renderer = _renderer()
    if renderer is None:
        raise ValueError(
            f"an SVG drawing, which needs a renderer: {install_extra('svg')}; or save it as a PNG"
        )
    if len(data) > MOST:
        raise ValueError(too_large(len(data)))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("its SVG is not UTF-8") from None
    if outside := _OUTSIDE.search(text):
        raise ValueError(
            f"its SVG points outside itself ({outside.group(0)[:40]!r}); save it as a PNG"
        )
    if len(_USE.findall(text)) > MOST_USES:
        raise ValueError(
            f"its SVG repeats parts more than {MOST_USES} times: parts of parts could grow"
            " without end"
        )
    width, height = _size(text)
    if max(width, height) > MOST_ASPECT * min(width, height):
        raise ValueError(f"its SVG is {width:g} by {height:g}: too long and thin to draw")
    try:
        return bytes(
            renderer(svg_string=text, **({"width": SIDE} if width >= height else {"height": SIDE}))
        )
    except Exception as error:  # the renderer raises what it likes
        raise ValueError(f"its SVG cannot be drawn ({str(error)[:100]})") from None


def _size(text: str) -> tuple[float, float]:
    """Width and height of a drawing, in units of its own; a ValueError where it does not say."""
    root = re.search(r"<\s*svg\b[^>]*>", text)
    if box := re.search(r"""viewBox\s*=\s*['"]([^'"]*)['"]""", root.group(0) if root else ""):
        sides = re.split(r"[\s,]+", box.group(1).strip())[2:]
    else:
        sides = [side.group(1) for side in map(_side(root), ("width", "height")) if side]
    try:
        width, height = map(float, sides)
    except ValueError:
        width = height = 0.0
    if not (0 < width < 1e6 and 0 < height < 1e6):
        raise ValueError("its SVG does not state its size: a viewBox, or width and height")
    return width, height


def _side(root: "re.Match[str] | None") -> "Callable[[str], re.Match[str] | None]":
    text = root.group(0) if root else ""
    return lambda name: re.search(rf"""\b{name}\s*=\s*['"]([\d.]+)(?:px)?['"]""", text)


def _renderer() -> Any:
    try:
        import resvg_py
    except ImportError:
        return None
    return resvg_py.svg_to_bytes


# --------------------------------------------------------------------------------------------------
# One picture, from bytes that nobody vouches for to RGB of a wanted size; what cannot be used is
# refused and says why.


LEAST_SIDE = 8
# What was done to a picture; the place of each is its bit in the store. The fifth keeps a name
# older than --background.
ALPHA = "alpha over white"
CHANGES = (
    "cropped",
    "resized",
    "enlarged",
    TURNED,
    ALPHA,
    "colours converted",
    "repeated",
    "padded",
)
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
        raise BadSample(
            f"too small: {image.size[0]} x {image.size[1]} pixels, a side has at least {LEAST_SIDE}"
        )
    if opened.see_through and not opened.is_opaque():
        changes.add(ALPHA)
        image = opened.over(background)
    elif image.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
        changes.add("colours converted")
    return RgbPicture(image.convert("RGB"), frozenset(changes))


def fit(image: Image.Image, wanted: Size) -> RgbPicture:
    """Centre-crop to the wanted shape, then resize with Lanczos (antialiased); untouched if it fits
    already."""
    if image.size == wanted:
        return RgbPicture(image, frozenset())
    left, top, width, height = centre(image.size, wanted)
    changes = {"cropped"} if (width, height) != image.size else set()
    if (width, height) != wanted:
        changes.add("resized" if width >= wanted[0] and height >= wanted[1] else "enlarged")
    box = (left, top, left + width, top + height)
    # first: resize(box=) looks beyond its box
    taken_out = image.crop(box) if "cropped" in changes else image
    return RgbPicture(taken_out.resize(wanted, Image.Resampling.LANCZOS), frozenset(changes))


def pad(image: Image.Image, wanted: Size, background: Colour = WHITE) -> RgbPicture:
    """The whole picture in the middle of the wanted shape, resized with Lanczos, with a colour
    beside it."""
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
        raise BadInput(
            f"no colour is called '{text}'", "such as white, '#ffeedd' or 'rgb(10, 20, 30)'"
        ) from None
    return red, green, blue


def centre(given: Size, wanted: Size) -> tuple[int, int, int, int]:
    """Left, top, width and height of the largest part in the middle of a picture that has the
    wanted shape."""
    (width, height), (w, h) = given, wanted
    scale = min(width / w, height / h)
    taken = (min(width, round(w * scale)), min(height, round(h * scale)))
    return (width - taken[0]) // 2, (height - taken[1]) // 2, *taken


def buckets(size: int, step: int = 0) -> tuple[Size, ...]:
    """Shapes of about size x size pixels, from 1:2 to 2:1, sides multiples of `step`: an eighth of
    `size`, at least 8."""
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
        range(len(shapes)),
        key=lambda n: (
            abs(math.log(shapes[n][0] / shapes[n][1]) - ratio),
            -shapes[n][0] * shapes[n][1],
        ),
    )


def encode(image: Image.Image, encoding: str, quality: int) -> bytes:
    """The bytes that are stored."""
    stream = io.BytesIO()
    if encoding == "jpeg":
        image.save(stream, "JPEG", quality=quality, subsampling=0 if quality >= 90 else 2)
    else:
        (
            image.save(stream, "PNG", compress_level=6)
            if encoding == "png"
            else image.save(stream, "PPM")
        )
    return stream.getvalue()


def pixels(data: bytes, size: Size, wanted: Size | None = None) -> NDArray[np.uint8]:
    """(3, H, W) of bytes that we stored ourselves, whose checksum was just compared; resized to the
    wanted shape."""
    image = _coloured(_stored(data, size))
    if wanted is not None and size != wanted:
        image = image.resize(wanted, Image.Resampling.LANCZOS)
    return np.asarray(image).transpose(2, 0, 1)


def miniature(data: bytes, size: Size, side: int) -> NDArray[np.uint8]:
    """(side, side, 3): the whole of such a picture in a small square, each pixel the mean of what
    it stands for. Of a JPEG only the coarse frequencies are decoded, which is most of the time
    saved."""
    image = _stored(data, size)
    # the smallest of 1/1 to 1/8 that is no smaller than this; other formats: as they are
    image.draft("RGB", (side, side))
    image = _coloured(image)
    return np.asarray(
        image if image.size == (side, side) else image.resize((side, side), Image.Resampling.BOX)
    )


def _stored(data: bytes, size: Size) -> Image.Image:
    image: Image.Image = Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "PPM"))
    if image.size != size:
        raise BadSample(
            f"{image.size[0]} x {image.size[1]} pixels where {size[0]} x {size[1]} were stored"
        )
    return image


def _coloured(image: Image.Image) -> Image.Image:
    return image if image.mode == "RGB" else image.convert("RGB")  # which would copy it
