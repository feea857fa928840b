"""Faults that pictures can have on their way to a metric: of their pixels, and of which of them are there.

B pictures of a batch, n pictures of a set, d feature width
"""

import io
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fulcrum.measure.metrics.mmd import unit_norm

KEPT = 8  # of n pictures one in so many remains when diversity collapses
NOISES = 32  # distinct pictures when noises are shared: the published study had 32 for 10,000 samples (A3)


# --- faults of pixels: (B, 3, H, W) uint8 -> the same ------------------------------------------------------------------
def negated(images: Tensor) -> Tensor:
    return 255 - images


def wrong_range(images: Tensor) -> Tensor:
    """[0, 1] taken for [-1, 1]: everything lies in the brighter half."""
    return (127.5 + images.float() / 2).round().to(torch.uint8)


def swapped_channels(images: Tensor) -> Tensor:
    return images.flip(1)


def blurred(images: Tensor) -> Tensor:
    """Three passes of a box of a sixteenth of the side: nearly a Gaussian."""
    size = max(min(images.shape[-2:]) // 16, 1) * 2 + 1
    soft = images.float()
    for _ in range(3):
        soft = F.avg_pool2d(F.pad(soft, [size // 2] * 4, mode="replicate"), size, stride=1)
    return soft.round().to(torch.uint8)


def jpeg(images: Tensor, quality: int = 10) -> Tensor:
    from PIL import Image

    out = []
    for image in images:
        stream = io.BytesIO()
        Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, "JPEG", quality=quality)
        out.append(torch.from_numpy(np.asarray(Image.open(stream)).copy()).permute(2, 0, 1))
    return torch.stack(out)


PIXELS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "negated": negated,
    "wrong_range": wrong_range,
    "swapped_channels": swapped_channels,
    "blurred": blurred,
    "jpeg": jpeg,
}


# --- faults of the choice of pictures: which of n, in which order -------------------------------------------------------
def halved(rows: Tensor) -> Tensor:
    return _shuffled(torch.arange(len(rows)))[: len(rows) // 2]


def duplicated(rows: Tensor) -> Tensor:
    kept = _shuffled(torch.arange(len(rows)))[:NOISES]
    return _shuffled(kept.repeat(-(-len(rows) // NOISES))[: len(rows)])


def collapsed(rows: Tensor) -> Tensor:
    """An eighth of the pictures, repeated, chosen so that their mean direction is that of all: what a distance of means
    cannot see (A14). Exchanges one picture at a time while that brings the mean nearer."""
    unit = unit_norm(rows)
    unit = unit - unit.mean(dim=0)
    count = len(rows) // KEPT
    chosen = torch.zeros(len(rows), dtype=torch.bool)
    chosen[_shuffled(torch.arange(len(rows)))[:count]] = True
    total, norms = unit[chosen].sum(dim=0), unit.square().sum(dim=1)
    for _ in range(20 * count):
        inside, outside = chosen.nonzero()[:, 0], (~chosen).nonzero()[:, 0]
        # |total - a + b|^2 for every a inside and b outside
        away = norms[inside] - 2 * unit[inside] @ total
        into = norms[outside] + 2 * unit[outside] @ total
        change = away[:, None] + into[None] - 2 * unit[inside] @ unit[outside].T
        best = int(change.argmin())
        a, b = inside[best // len(outside)], outside[best % len(outside)]
        if float(change.flatten()[best]) >= -1e-12:
            break
        chosen[a], chosen[b] = False, True
        total = total - unit[a] + unit[b]
    return _shuffled(chosen.nonzero()[:, 0].repeat(KEPT)[: len(rows)])


CHOICES: Mapping[str, Callable[[Tensor], Tensor]] = {"halved": halved, "duplicated": duplicated, "collapsed": collapsed}


def _shuffled(index: Tensor) -> Tensor:
    return index[torch.randperm(len(index), generator=torch.Generator().manual_seed(0))]
