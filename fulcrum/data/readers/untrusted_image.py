"""A picture's bytes that nobody vouches for, opened safely: judged by the header before a pixel is unfolded."""

import io
import re
import warnings
from typing import NamedTuple

from PIL import Image, ImageOps, TiffImagePlugin, UnidentifiedImageError

from fulcrum.data.readers.untrusted_file import MOST_BYTES, too_large

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
            warnings.simplefilter("ignore")  # Pillow warns of large pictures and odd tags: judged below
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
        raise refuse(f"too many pixels: {width} x {height}, the limit is {MOST_PIXELS:,}: a decompression bomb?")
    if getattr(image, "is_animated", False):  # n_frames would go through all of them: minutes for some megabytes
        raise refuse("several frames, and which one counts is not ours to choose", "save one frame each")
    if image.mode in ("I", "F") or image.mode.startswith("I;") or _bits(image, data) > 8:
        raise refuse("more than 8 bits per channel", "save it with 8 bits: how to scale is your decision")


def _bits(image: Image.Image, data: bytes) -> int:
    """Bits per channel as the file has them: Pillow cuts 16-bit colour down to 8 without a word."""
    if image.format == "PNG":
        return data[24]  # of IHDR, always the first chunk
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return int(max(image.tag_v2.get(_TIFF_BITS, (8,))))
    if image.format == "PPM":
        head = re.sub(rb"#[^\n]*\n", b" ", data[:200]).split()
        return 16 if len(head) > 3 and head[0] in (b"P2", b"P3", b"P5", b"P6") and int(head[3]) > 255 else 8
    return 8
