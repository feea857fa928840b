"""Pictures as files and as parts of a page: they say how they were drawn, and never take another's place.

B pictures, H, W pixels.
"""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from fulcrum.data.sheets import captioned_sheet
from fulcrum.files.atomic import write_atomic, write_new
from fulcrum.files.paths import explained

CAPTION_LINES = 6  # under a picture of a sheet


def to_image(picture: Tensor, scale: int = 1) -> Image.Image:
    """One uint8 picture (3, H, W), enlarged without smoothing: pixels are what was drawn."""
    image = Image.fromarray(np.ascontiguousarray(picture.permute(1, 2, 0).numpy()))
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST) if scale > 1 else image


def data_uri(picture: Tensor) -> str:
    stream = io.BytesIO()
    to_image(picture).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def png(image: Image.Image, facts: Mapping[str, object]) -> bytes:
    """A PNG that says what it shows: each fact is a text of its own, in any script."""
    notes, stream = PngInfo(), io.BytesIO()
    for name, value in facts.items():
        text = str(value).encode("utf-8", "backslashreplace").decode()  # a shell may hand over bytes that are no text
        notes.add_itxt(name, text.replace("\0", "\\0"))
    image.save(stream, "PNG", pnginfo=notes)
    return stream.getvalue()


def save_picture(picture: Tensor, folder: Path, name: str, facts: Mapping[str, object], scale: int) -> Path:
    """Under this name, or the next free number of it. Returns where."""
    with explained("write to", folder):
        return write_new(folder / f"{name}.png", png(to_image(picture, scale), facts))


def file_words(prompt: str) -> str:
    """The letters of a prompt, as the beginning of a file's name."""
    return "-".join(re.findall("[a-z]+", prompt.lower()))[:48].strip("-") or "empty"


def sheet_of(pictures: Sequence[Tensor], captions: Sequence[str], columns: int, scale: int = 4) -> Image.Image:
    """All pictures on one sheet, each over its caption."""
    images = [to_image(picture, scale) for picture in pictures]
    cells = list(zip(images, captions, strict=True))
    rows = [("", cells[first : first + columns]) for first in range(0, len(cells), columns)]
    return captioned_sheet(rows, min(columns, len(cells)), 0, CAPTION_LINES)


def save_sheet(pictures: Sequence[Tensor], captions: Sequence[str], path: Path, columns: int, scale: int = 4) -> Path:
    """A sheet as a file that is replaced when it is drawn again: a run that resumes draws its previews anew."""
    stream = io.BytesIO()
    sheet_of(pictures, captions, columns, scale).save(stream, "PNG")
    with explained("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, stream.getvalue(), flush=False)
    return path
