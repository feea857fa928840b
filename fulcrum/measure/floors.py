"""What a share is worth: its values on pictures that show nothing of what was asked for, and on real ones.

A judge gives points to anything. Uniform noise, a grey picture and the picture of another scene say where a share begins,
real pictures where it ends; a model between noise and the picture of another scene has not learned it.

B pictures of a chunk, n of all, 2k counts of a picture
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.measure.features.extractor import Extractor
from fulcrum.measure.metrics.attributes import SHARES, count_rows, pooled, score
from fulcrum.spec.keyed import key, uniform

PICTURES = 1024  # reference pictures that are looked at
FLOORS = ("noise", "grey", "another scene")


# A floor lies below the ceiling. Noise has every object that was asked for and grey has none too many: neither is a floor
# of those two shares, which mean little alone.
DISTINCT = 0.05


class Limits(NamedTuple):
    """The ends of one share's scale."""

    floors: dict[str, float]
    ceiling: float


def limit_counts(source: Any, judge: Extractor, index: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """What is right in some of the first `count` reference pictures, and in what stands in for them.  (B, 4, 2k)"""
    images = torch.from_numpy(source.read(index).images)  # (B, 3, S, S) uint8
    truth, other = source.scenes(index).grid(), source.scenes((index + 1) % count).grid()
    real = _judged(judge, images)
    noise, grey = _judged(judge, noise_pictures(index, images.shape[2])), _judged(judge, torch.full_like(images, 128))
    pairs = ((noise, truth), (grey, truth), (real, other), (real, truth))  # FLOORS, then the ceiling
    return np.stack([count_rows(score(*pair)).numpy().astype(np.int64) for pair in pairs], axis=1)


def limits_of(counts: NDArray[np.int64]) -> dict[str, Limits]:
    """The limits of every share, from the counts of all pictures.  (n, 4, 2k)"""
    *floors, real = (pooled(counts[:, k]) for k in range(counts.shape[1]))
    limits = {}
    for share in SHARES:
        worth = {name: round(values[share], 4) for name, values in zip(FLOORS, floors, strict=True)}
        apart = {name: value for name, value in worth.items() if abs(value - real[share]) > DISTINCT}
        limits[share] = Limits(apart, round(real[share], 4))
    return limits


def noise_pictures(index: NDArray[np.int64], side: int) -> Tensor:
    """Every number uniform and on its own, keyed by the picture's number.  (B, 3, S, S) uint8"""
    numbers = uniform(key("noise floor", index), 3 * side * side)
    return torch.from_numpy((256 * numbers).astype(np.uint8)).reshape(-1, 3, side, side)


def _judged(judge: Extractor, images: Tensor) -> Mapping[str, Tensor]:
    network: Any = judge.network
    answers: Mapping[str, Tensor] = network.judge(images)
    return answers
