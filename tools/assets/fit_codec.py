"""Trains and measures the KL codecs: squared error, absolute error and a light KL on the assets
split; one of them is aligned to the teacher as well.

B batch, S side, C latent channels, E teacher width, N = (S/4)^2 cells
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world.scene import Scenes
from fulcrum.files.shipped import asset_hash
from fulcrum.networks.codec import Downsample, KLCodec, ResnetBlock, Upsample
from fulcrum.networks.network_hash import to_bytes, to_unit
from fulcrum.networks.teacher import load_teacher
from tools.assets.fit import Effort, Progress, fit
from tools.assets.pictures import DOMAINS, Pictures, pictures

# of every codec
EFFORT = Effort(steps=6000, batch=16, lr=2e-3, seed=11, kernels=8e-3, weight_decay=0.0)
KL = 3e-4  # the evidence bound at 27 dB would ask for about 3e-3: reconstruction comes first
ABSOLUTE = 0.1  # keeps edges crisp where squared error alone lets them wash out
SCENES, LARGE = 24_000, 4_000
# weight of a pixel near an object: background grain is most of the error, not of the picture
OBJECT = 6.0
SHARE = 8  # one row in eight is a crop of a larger picture
NEAR = 1.3  # in radii of the object
ALIGN = 1.0  # weight of 1 - cosine(projected latent, teacher's token)
CHANNELS, WIDE = 8, 16
LOG_VARIANCE = -6.0  # at the beginning: with noise as large as the latent it learns slowly


def fit_codec(
    effort: Effort = EFFORT,
    progress: Progress = print,
    channels: int = CHANNELS,
    align: float = 0.0,
) -> tuple[KLCodec, dict[str, Any]]:
    """Whole 32 px pictures, and some 32 px crops of 64 px ones: any size must work.

    With `align` the latent is drawn towards the teacher through a projector that is thrown away
    afterwards.
    """
    small = pictures("assets", min(SCENES, effort.steps * effort.batch), 32)
    large = pictures("assets", min(LARGE, effort.steps * effort.batch), 64, start=SCENES)
    pools = [(pool, near(pool.scenes, pool.images.shape[-1])) for pool in (small, large)]
    torch.manual_seed(effort.seed)
    codec = begun(channels)
    teacher = load_teacher() if align else None
    projector = alignment_projector(channels, teacher.width) if teacher else None

    def loss(_: int, generator: torch.Generator) -> Tensor:
        pixels, weight = _batch(pools, effort.batch, generator)
        mean, log_variance = codec.posterior(pixels)
        raw = mean + (0.5 * log_variance).exp() * torch.randn(mean.shape, generator=generator)
        error = codec.raw_decode(raw) - pixels
        cost = (error.square() + ABSOLUTE * error.abs()).mean(1)  # (B, S, S)
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
        total = (cost * weight).sum() / weight.sum() + KL * kl
        if teacher is None or projector is None:
            return total
        return (
            total
            + align
            * (1 - F.cosine_similarity(projector(raw), teacher.tokens(pixels), dim=-1)).mean()
        )

    name = "codec" if not align else "codec, aligned"
    seconds = fit(
        name,
        codec if projector is None else nn.ModuleList([codec, projector]),
        loss,
        effort,
        progress,
    )
    _normalise(codec, small)
    facts = {
        **asdict(effort),
        "kl": KL,
        "absolute": ABSOLUTE,
        "object": OBJECT,
        "scenes": SCENES,
        "large": LARGE,
        "seconds": round(seconds, 1),
    }
    return codec, facts | ({"align": align, "teacher": asset_hash("teacher")[:16]} if align else {})


def fit_wide(effort: Effort = EFFORT, progress: Progress = print) -> tuple[KLCodec, dict[str, Any]]:
    """More channels, everything else the same."""
    return fit_codec(effort, progress, channels=WIDE)


def fit_aligned(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[KLCodec, dict[str, Any]]:
    """The same sizes, and the latent aligned to the teacher."""
    return fit_codec(effort, progress, align=ALIGN)


@torch.no_grad()
def begun(channels: int) -> KLCodec:
    """A codec as its fitting begins, where pictures pass from the first step on: residual blocks
    add nothing yet, what changes the sides averages or repeats, and the posterior is narrow.  200
    steps of 16, widths 16, 32, 48: 23.9 dB, and 21.2 dB from PyTorch's own beginning."""
    codec = KLCodec(channels)
    for layer in codec.modules():
        if isinstance(layer, ResnetBlock):
            nn.init.zeros_(layer.conv2.weight)
        elif isinstance(layer, Downsample | Upsample):
            layer.conv.weight.mul_(0.3)
            same = torch.eye(len(layer.conv.weight))
            if isinstance(layer, Upsample):
                layer.conv.weight[:, :, 1, 1] += same
            else:
                layer.conv.weight[:, :, :2, :2] += same[:, :, None, None] / 4
    codec.encoder.conv_out.weight[:channels] *= 3.0
    codec.encoder.conv_out.weight[channels:] *= 0.1
    nn.init.dirac_(codec.quant_conv.weight)
    nn.init.dirac_(codec.post_quant_conv.weight)
    codec.quant_conv.bias.copy_(torch.tensor([0.0, LOG_VARIANCE]).repeat_interleave(channels))  # type: ignore[union-attr]
    return codec


def alignment_projector(channels: int, width: int, hidden: int = 128) -> nn.Sequential:
    """(B, C, h, w) -> (B, N, E), each cell for itself: what a cell means must be in the cell."""
    return nn.Sequential(
        nn.Conv2d(channels, hidden, 1),
        nn.SiLU(),
        nn.Conv2d(hidden, hidden, 1),
        nn.SiLU(),
        nn.Conv2d(hidden, width, 1),
        nn.Flatten(2),
        Cells(),
    )


class Cells(nn.Module):
    """A grid flattened to tokens: (B, E, N) -> (B, N, E)."""

    def forward(self, h: Tensor) -> Tensor:
        return h.transpose(1, 2)


def near(scenes: Scenes, side: int) -> Tensor:
    """(n, S, S) bool: pixels on or beside an object."""
    middle = (torch.arange(side) + 0.5) / side
    close = torch.zeros(len(scenes), side, side, dtype=torch.bool)
    for slot in range(scenes.x.shape[1]):
        x, y, reach = (
            torch.from_numpy(part[:, slot])[:, None]
            for part in (scenes.x, scenes.y, NEAR * scenes.radius)
        )
        close |= ((middle - y) ** 2)[:, :, None] + ((middle - x) ** 2)[:, None, :] < reach[
            :, :, None
        ] ** 2
    return close  # an absent object has radius 0


def _batch(
    pools: list[tuple[Pictures, Tensor]], rows: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Pixels (B, 3, 32, 32) and the weight of each, (B, 32, 32)."""
    images, weights = [], []
    for (pool, close), count in zip(pools, (rows - rows // SHARE, rows // SHARE), strict=True):
        drawn, row, _ = pool.draw(count, generator)
        top, left = (
            int(torch.randint(drawn.shape[-1] - 31, (), generator=generator)) for _ in range(2)
        )
        images.append(drawn[:, :, top : top + 32, left : left + 32])
        weights.append(close[row, top : top + 32, left : left + 32])
    pixels, weight = to_unit(torch.cat(images)), torch.where(torch.cat(weights), OBJECT, 1.0)
    if torch.rand((), generator=generator) < 0.5:
        pixels, weight = pixels.flip(-1), weight.flip(-1)
    return pixels, weight


@torch.no_grad()
def _normalise(codec: KLCodec, small: Pictures) -> None:
    """Zero mean and unit variance of every channel over both domains."""
    count = min(2048, small.images.shape[1])
    raw = torch.cat(
        [
            codec.posterior(to_unit(chunk))[0]
            for half in small.images
            for chunk in torch.split(half[:count], 256)
        ]
    )
    codec.fold(raw.mean((0, 2, 3)), 1 / raw.std((0, 2, 3)))


def psnr(decoded: Tensor, wanted: Tensor) -> float:
    """Peak signal to noise ratio in dB of uint8 pictures, of the error pooled over all of them."""
    error = (decoded.float() - wanted.float()).square().mean(dtype=torch.float64).item()
    return math.inf if error == 0 else 10 * math.log10(255.0**2 / error)


@torch.no_grad()
def measure_codec(codec: KLCodec, count: int = 1000) -> dict[str, Any]:
    """PSNR per domain and side on the validation split, with the posterior's mean as latent; latent
    statistics."""
    quality: dict[str, Any] = {}
    for side, scenes in ((32, count), (64, max(1, count // 4)), (128, max(1, count // 16))):
        pool = pictures("validation", scenes, side)
        close = near(pool.scenes, side)[:, None].expand(-1, 3, -1, -1)
        for domain, images in zip(DOMAINS, pool.images, strict=True):
            latents = [codec.encode(to_unit(chunk)) for chunk in torch.split(images, 64)]
            decoded = torch.cat([to_bytes(codec.decode(chunk)) for chunk in latents])
            quality[f"psnr_{domain}_{side}"] = round(psnr(decoded, images), 2)
            if side == 32:
                z = torch.cat(latents)
                quality[f"psnr_objects_{domain}_{side}"] = round(
                    psnr(decoded[close], images[close]), 2
                )
                quality[f"latent_std_{domain}"] = [round(v, 3) for v in z.std((0, 2, 3)).tolist()]
                quality[f"latent_mean_{domain}"] = [round(v, 3) for v in z.mean((0, 2, 3)).tolist()]
    return quality
