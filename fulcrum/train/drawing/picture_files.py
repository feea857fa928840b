"""Pictures as files and as parts of a page.

B pictures, H, W pixels.
"""

import base64
import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from fulcrum.files.atomic import write_atomic
from fulcrum.files.refusals import explained


def to_image(picture: Tensor, scale: int = 1) -> Image.Image:
    """One uint8 picture (3, H, W), enlarged without smoothing: pixels are what was drawn."""
    image = Image.fromarray(np.ascontiguousarray(picture.permute(1, 2, 0).numpy()))
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST) if scale > 1 else image


def data_uri(picture: Tensor) -> str:
    stream = io.BytesIO()
    to_image(picture).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def save_pictures(pictures: Tensor, prompts: Sequence[str], folder: Path, seed: int, scale: int) -> list[Path]:
    """One PNG per picture, named by its prompt, number and seed."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, picture in enumerate(pictures):
        words = "-".join(re.findall("[a-z]+", prompts[number].lower()))[:48]
        path = folder / f"{words or 'empty'}-{number:03d}-seed{seed}.png"
        to_image(picture, scale).save(path)
        files.append(path)
    (folder / "prompts.txt").write_text(
        "".join(f"{path.name}\t{prompt}\n" for path, prompt in zip(files, prompts, strict=True))
    )
    return files


def save_grid(pictures: Tensor, path: Path, columns: int, scale: int = 4, gap: int = 4) -> Path:
    """All pictures on one sheet."""
    height, width = pictures.shape[2] * scale, pictures.shape[3] * scale
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (width + gap) - gap, rows * (height + gap) - gap), "white")
    for number, picture in enumerate(pictures):
        sheet.paste(to_image(picture, scale), ((number % columns) * (width + gap), (number // columns) * (height + gap)))
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    with explained("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, stream.getvalue(), flush=False)
    return path
