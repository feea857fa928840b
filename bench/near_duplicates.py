"""How long a search for pictures that look alike takes: hashing a store, then the search; seconds
and peak memory.

python bench/near_duplicates.py [--count 100000] [--size 64] [--bits 4]

A tenth of the pictures are copies with a little noise; what is found of them is printed too.
"""

import argparse
import io
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from fulcrum.data.readers.reader import Given
from fulcrum.data.stores.finish_import import alike, run_import, store_looks
from fulcrum.data.stores.importing import Options
from fulcrum.data.stores.picture_store import PictureStore
from fulcrum.data.world.scene import render, scenes

CHUNK = 1000


class Copies:
    """Scenes of the world; every tenth picture is the one before it with a little noise."""

    kind = "bench"

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size, self.done = count, size, 0

    def __iter__(self) -> Iterator[Given]:
        draw = np.random.default_rng(0)
        for first in range(0, self.count, CHUNK):
            images = render(
                scenes("train", np.arange(first, first + CHUNK)), self.size, "synthetic"
            )
            for number, image in enumerate(images[: self.count - first], first):
                if number % 10 == 9:
                    image = np.clip(
                        images[number - first - 1] + draw.integers(-4, 5, image.shape), 0, 255
                    ).astype(np.uint8)
                stream = io.BytesIO()
                Image.fromarray(image.transpose(1, 2, 0)).save(stream, "PPM")
                self.done = number
                yield Given(str(number), stream.getvalue(), {"long": ["a scene"]})

    def share(self) -> float:
        return self.done / self.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--bits", type=int, default=4)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run_import(
            Copies(asked.count, asked.size),
            Path(place) / "store",
            Options(size=asked.size, encoding="jpeg"),
            print,
        )
        store = PictureStore(Path(place) / "store")
        begun, before = time.perf_counter(), time.process_time()
        hashes, thumbs = store_looks(store, print)
        hashed, between = time.perf_counter(), time.process_time()
        numbers = np.array([int(store.name(row)) for row in range(len(store))])
        owner = alike(hashes, thumbs, numbers, asked.bits)
        ended, after = time.perf_counter(), time.process_time()
    gone = numbers[owner != np.arange(len(store))]
    found, false = np.mean(np.isin(np.arange(9, len(store), 10), gone)), int((gone % 10 != 9).sum())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    times = f"hashed in {hashed - begun:.1f} s ({between - before:.1f} of processor), "
    times += f"searched in {ended - hashed:.1f} s ({after - between:.1f}), peak {peak:.2f} GB"
    print(
        f"{len(store):,} pictures of {asked.size} px: {times}; {found:.1%} of the copies found,"
        f" {false} others too"
    )


if __name__ == "__main__":
    main()
