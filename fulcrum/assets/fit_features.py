"""Trains and measures the feature network of the distances: many questions, one vector.

The questions cover what a set of pictures can get wrong: content (what stands where), domain, background, and
damage (blur, grain); features that answered content only would not see a washed-out picture.
"""
from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.assets.fit import Effort, Progress, fit
from fulcrum.assets.pictures import DOMAINS, Pictures, blurred, disturbed, pictures
from fulcrum.data.world import vocabulary as v
from fulcrum.encode.judge import FeatureNet
from fulcrum.encode.pixels import to_bytes, to_unit

EFFORT = Effort(steps=2000, batch=96, lr=2e-3, seed=37)
SCENES, FIRST = 40_000, 50_000                   # other scenes than the attribute judge's
COUNTS = {"shape": len(v.SHAPES), "colour": len(v.COLOURS), "texture": len(v.TEXTURES), "size": len(v.SIZES)}
TASKS = {"present": 9, **COUNTS, "where_colour": 9 * (COUNTS["colour"] + 1), "where_shape": 9 * (COUNTS["shape"] + 1),
         "domain": len(DOMAINS), "background": len(v.BACKGROUNDS), "background_colour": len(v.BACKGROUND_COLOURS),
         "damage": 2}


def _any(values: Tensor, count: int) -> Tensor:
    """(n, 9) classes, -1 = empty -> (n, count) 0/1: does the class stand anywhere in the picture."""
    return torch.stack([(values == k).any(1) for k in range(count)], dim=1).float()


def _targets(pool: Pictures) -> dict[str, Tensor]:
    targets = {name: _any(pool.grid[name], count) for name, count in COUNTS.items()}
    targets["present"] = pool.grid["present"].float()
    targets["where_colour"], targets["where_shape"] = pool.grid["colour"] + 1, pool.grid["shape"] + 1   # 0 = empty
    targets["background"] = torch.from_numpy(pool.scenes.background)
    targets["background_colour"] = torch.from_numpy(pool.scenes.background_colour[:, 0].copy())
    return targets


def fit_features(effort: Effort = EFFORT, progress: Progress = print) -> tuple[FeatureNet, dict[str, Any]]:
    """Every question is answered linearly from the features."""
    pool = pictures("assets", min(SCENES, effort.steps * effort.batch), start=FIRST)
    wanted = _targets(pool)
    torch.manual_seed(effort.seed)
    network = FeatureNet(TASKS)

    def loss(_: int, generator: torch.Generator) -> Tensor:
        images, row, domain = pool.draw(effort.batch, generator)
        pixels, damage = disturbed(to_unit(images), generator, blur=1.0, noise=0.15, light=0.0)
        said = network.answers(network(pixels))
        total = 3 * F.binary_cross_entropy_with_logits(said["present"], wanted["present"][row])
        for name in COUNTS:
            total = total + F.binary_cross_entropy_with_logits(said[name], wanted[name][row])
        for name in ("where_colour", "where_shape"):
            logits = said[name].unflatten(1, (9, -1)).flatten(0, 1)                          # (B * 9, K + 1)
            total = total + 2 * F.cross_entropy(logits, wanted[name][row].flatten())
        total = total + 0.3 * F.cross_entropy(said["domain"], domain)
        for name in ("background", "background_colour"):
            total = total + 0.3 * F.cross_entropy(said[name], wanted[name][row])
        return total + 3 * F.mse_loss(said["damage"], damage)

    seconds = fit("features", network, loss, effort, progress)
    return network, {**asdict(effort), "scenes": SCENES, "seconds": round(seconds, 1)}


def frechet(first: Tensor, second: Tensor) -> float:
    """Frechet distance of the Gaussians of two feature sets (n, d); here only to show that damage is seen."""
    a, b = first.double(), second.double()
    root = torch.linalg.eigvals(torch.cov(a.T) @ torch.cov(b.T)).real.clamp_min(0).sqrt().sum()
    gap = (a.mean(0) - b.mean(0)).square().sum()
    return float(gap + torch.cov(a.T).trace() + torch.cov(b.T).trace() - 2 * root)


@torch.no_grad()
def measure_features(network: FeatureNet, count: int = 1000) -> dict[str, Any]:
    """Held-out answers, and how far sets of real pictures lie from another such set, untouched and damaged."""
    pool = pictures("validation", count)
    wanted = _targets(pool)
    quality: dict[str, Any] = {}
    features = [torch.cat([network.features(chunk) for chunk in images.split(256)]) for images in pool.images]
    for index, (domain, found) in enumerate(zip(DOMAINS, features, strict=True)):
        said = network.answers(found)
        right = {name: ((said[name] > 0) == (wanted[name] > 0.5)).double().mean().item()
                 for name in ("present", *COUNTS)}
        for name in ("where_colour", "where_shape"):
            picked, here = said[name].unflatten(1, (9, -1)).argmax(-1), wanted[name] > 0
            right[name] = (picked[here] == wanted[name][here]).double().mean().item()
        right["domain"] = (said["domain"].argmax(1) == index).double().mean().item()
        for name in ("background", "background_colour"):
            right[name] = (said[name].argmax(1) == wanted[name]).double().mean().item()
        quality[domain] = {name: round(value, 4) for name, value in right.items()}
    quality["frechet_from_real"] = _distances(network, pool, features, count)
    return quality


def _distances(network: FeatureNet, pool: Pictures, features: list[Tensor], count: int) -> dict[str, float]:
    other = pictures("validation", count, start=count).images[1]
    real = to_unit(pool.images[1])
    noise = torch.randn(real.shape, generator=torch.Generator().manual_seed(0))
    few = torch.arange(count) % max(1, count // 8)                       # an eighth of the scenes, each eight times
    sets = {"same": other, "blur": to_bytes(blurred(real, 0.8)), "grain": to_bytes(real + 0.1 * noise),
            "eighth_of_the_modes": pool.images[1][few], "synthetic": pool.images[0]}
    base = features[1] if count > 1 else torch.cat([features[1]] * 2)
    return {name: round(frechet(base, torch.cat([network.features(chunk) for chunk in images.split(256)])), 3)
            for name, images in sets.items()}


