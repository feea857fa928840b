"""Sets of small pictures on disk for the tests of `fulcrum measure`, and an extractor that counts
how often it is asked."""

import io
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from fulcrum.measure.evaluate import Comparison
from fulcrum.measure.features.extractor import Extractor
from fulcrum.measure.folders import Pass, Policy
from fulcrum.measure.metrics.distances import DISTANCES
from fulcrum.measure.pictures import PictureSet

N = 80


def pictures(seed: int, n: int = N, side: int = 16) -> np.ndarray:
    """(n, side, side, 3): a colour with a ramp and some grain."""
    rng = np.random.default_rng(seed)
    colour, ramp = rng.random((n, 1, 1, 3)) * 180, rng.random((n, 1, 1, 3)) * 70
    return (
        colour + ramp * np.linspace(0, 1, side)[:, None] + rng.random((n, side, side, 3)) * 5
    ).astype(np.uint8)


def encoded(image: np.ndarray, kind: str = "PNG", **options) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, kind, **options)
    return stream.getvalue()


def folder(path: Path, images: np.ndarray) -> Path:
    path.mkdir(parents=True)
    for number, image in enumerate(images):
        (path / f"{number:04d}.png").write_bytes(encoded(image))
    return path


def shard(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


class Counting:
    """Six colour statistics, and a memory of how many pictures it was shown."""

    def __init__(self) -> None:
        self.calls = 0

    def extractor(self, name: str = "colours") -> Extractor:
        return Extractor(name, "colours-1" * 5, "none", "uint8", 6, self.features)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.cat([images.float().mean((2, 3)), images.float().std((2, 3))], dim=1)


def look(path: Path, cache: Path, reference: bool = False, part: Extractor | None = None, **policy):
    part = part or Counting().extractor()
    return Pass([Comparison(part, DISTANCES)], cache, reference, Policy(**policy)).look(
        PictureSet(path)
    )
