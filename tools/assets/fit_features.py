"""Trains and measures the feature network of the distances: many questions, one vector.

The questions cover what a set of pictures can get wrong: content (what stands where), domain,
background, and damage (blur, grain); features that answered content only would not see a washed-out
picture.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.data.world import scene as v
from fulcrum.networks.judges import FeatureNet
from fulcrum.networks.network_hash import to_bytes, to_unit
from tools.assets.fit import Effort, Progress, fit
from tools.assets.pictures import DOMAINS, Pictures, blurred, disturbed, pictures

EFFORT = Effort(steps=900, batch=96, lr=2e-3, seed=37)
SCENES, FIRST = 40_000, 50_000  # other scenes than the attribute judge's
PLACES = {
    "present": 2,
    "shape": len(v.SHAPES),
    "colour": len(v.COLOURS),
    "texture": len(v.TEXTURES),
    "size": len(v.SIZES),
}
WHOLE = {
    "domain": len(DOMAINS),
    "background": len(v.BACKGROUNDS),
    "background_colour": len(v.BACKGROUND_COLOURS),
    "damage": 2,
}


def fit_features(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[FeatureNet, dict[str, Any]]:
    """Questions by place and about the whole; then the leading directions of the pooled
    activations."""
    pool = pictures("assets", min(SCENES, effort.steps * effort.batch), start=FIRST)
    backdrop = {
        "background": torch.from_numpy(pool.scenes.background),
        "background_colour": torch.from_numpy(pool.scenes.background_colour[:, 0].copy()),
    }
    torch.manual_seed(effort.seed)
    network = FeatureNet(PLACES, WHOLE)

    def loss(step: int, generator: torch.Generator) -> Tensor:
        images, row, domain = pool.draw(effort.batch, generator)
        pixels, damage = disturbed(to_unit(images), generator, blur=1.0, noise=0.15, light=0.0)
        answers = network.asked(*network(pixels))
        total = 3 * F.mse_loss(answers["damage"], damage) + 0.3 * F.cross_entropy(
            answers["domain"], domain
        )
        for name, values in backdrop.items():
            total = total + 0.3 * F.cross_entropy(answers[name], values[row])
        for name in PLACES:
            wanted = pool.grid[name][row].flatten()  # -1 where empty
            total = total + F.cross_entropy(answers[name].flatten(0, 1), wanted, ignore_index=-1)
        return total

    seconds = fit("features", network, loss, effort, progress)
    _whiten(network, pool)
    return network, {**asdict(effort), "scenes": SCENES, "seconds": round(seconds, 1)}


@torch.no_grad()
def _whiten(network: FeatureNet, pool: Pictures) -> None:
    """The leading directions over real pictures, scaled to unit variance.

    Every activation is standardised first; statistics of the whole and activations by place share
    the variance alike.
    """
    seen = torch.cat(
        [network.pooled(chunk) for chunk in torch.split(pool.images[1][:4096], 256)]
    ).double()
    whole, rest = network.statistics, seen.shape[1] - network.statistics
    share = torch.tensor([1 / whole] * whole + [1 / rest] * rest, dtype=seen.dtype).sqrt()
    scale = share / (seen.std(0) + 1e-3)
    values, axes = torch.linalg.eigh(torch.cov(((seen - seen.mean(0)) * scale).T))
    keep = network.project.shape[1]
    values, axes = values[-keep:].flip(0), axes[:, -keep:].flip(1)
    axes = axes * axes.sum(0).sign()  # the sign of an axis is arbitrary: fix it
    network.centre.copy_(seen.mean(0))
    network.project.copy_(scale[:, None] * axes / (values + 1e-9).sqrt())


def frechet(first: Tensor, second: Tensor) -> float:
    """Frechet distance of the Gaussians of two feature sets (n, d); here only to show that damage
    is seen."""
    a, b = first.double(), second.double()
    root = torch.linalg.eigvals(torch.cov(a.T) @ torch.cov(b.T)).real.clamp_min(0).sqrt().sum()
    gap = (a.mean(0) - b.mean(0)).square().sum()
    return float(gap + torch.cov(a.T).trace() + torch.cov(b.T).trace() - 2 * root)


@torch.no_grad()
def measure_features(network: FeatureNet, count: int = 1000) -> dict[str, Any]:
    """Held-out answers, and how far one set of real pictures lies from another set, untouched and
    damaged."""
    pool = pictures("validation", count)
    here = pool.grid["present"] == 1
    quality: dict[str, Any] = {}
    for index, (domain, images) in enumerate(zip(DOMAINS, pool.images, strict=True)):
        answers = {
            name: answer.argmax(-1)
            for name, answer in network.asked(*network(to_unit(images))).items()
        }
        right = {
            name: answers[name][here] == pool.grid[name][here]
            for name in PLACES
            if name != "present"
        }
        right["present"] = answers["present"] == pool.grid["present"]
        right["domain"] = answers["domain"] == index
        right["background"] = answers["background"] == torch.from_numpy(pool.scenes.background)
        quality[domain] = {
            name: round(hits.double().mean().item(), 4) for name, hits in right.items()
        }
    quality["frechet_from_real"] = _distances(network, pool.images[1], count)
    return quality


def _distances(network: FeatureNet, base: Tensor, count: int) -> dict[str, float]:
    """Always other scenes than the base: pairs of the same scene would hide what chance alone
    gives."""
    other = pictures("validation", count, start=count).images
    real = to_unit(other[1])
    noise = torch.randn(real.shape, generator=torch.Generator().manual_seed(0))
    few = torch.arange(count) % max(1, count // 8)  # an eighth of the scenes, each eight times
    sets = {
        "same": other[1],
        "blur": to_bytes(blurred(real, 0.6)),
        "grain": to_bytes(real + 0.1 * noise),
        "eighth_of_the_modes": other[1][few],
        "synthetic": other[0],
    }
    features = network.features(base)
    return {
        name: round(frechet(features, network.features(images)), 3) for name, images in sets.items()
    }
