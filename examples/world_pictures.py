"""Pictures of the embedded world as if they were somebody's own, with captions of one clause:
something to caption anew.

fulcrum data import 4000 bad_captions --with examples/world_pictures.py --size 32
fulcrum caption bad_captions good_captions --model world --score world
"""

import io
from collections.abc import Iterator

import numpy as np
from PIL import Image

from fulcrum.data.readers.reader import Given, Reader
from fulcrum.data.world.scene import render, scenes
from fulcrum.data.world.words import captions

CHUNK = 256


class WorldPictures(Reader):
    kind = "the embedded world, captioned in one clause"

    def __init__(self, source: str) -> None:  # how many
        self.count, self.done = int(source), 0

    def __iter__(self) -> Iterator[Given]:
        for first in range(0, self.count, CHUNK):
            drawn = scenes("train", np.arange(first, min(first + CHUNK, self.count)))
            for image, text in zip(
                render(drawn, 32, "real"), captions(drawn, "short").texts, strict=True
            ):
                stream = io.BytesIO()
                Image.fromarray(image.transpose(1, 2, 0)).save(stream, "PNG")
                yield Given(f"scene {self.done}", stream.getvalue(), {"short": [text]})
                self.done += 1

    def share(self) -> float:
        return self.done / max(self.count, 1)
