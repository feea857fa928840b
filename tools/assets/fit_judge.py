"""Trains and measures the attribute judge: what stands at each place, in both domains, under mild
disturbance."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.data.world import scene as v
from fulcrum.networks.judges import AttributeJudge, PatchJudge
from fulcrum.networks.network_hash import to_unit
from tools.assets.fit import Effort, Progress, fit
from tools.assets.pictures import ATTRIBUTES, DOMAINS, Pictures, disturbed, pictures

EFFORT = Effort(steps=1400, batch=96, lr=3e-3, seed=23)
SCENES = 40_000
CLASSES = {
    "present": 2,
    "shape": len(v.SHAPES),
    "colour": len(v.COLOURS),
    "texture": len(v.TEXTURES),
    "size": len(v.SIZES),
}


def fit_judge(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[AttributeJudge, dict[str, Any]]:
    """Cross entropy of presence at all places, and of the attributes where an object stands."""
    pool = pictures("assets", min(SCENES, effort.steps * effort.batch))
    torch.manual_seed(effort.seed)
    judge = AttributeJudge(CLASSES)

    def loss(step: int, generator: torch.Generator) -> Tensor:
        images, row, domain = pool.draw(effort.batch, generator)
        pixels, damage = disturbed(to_unit(images), generator, blur=1.0, noise=0.12, light=0.10)
        logits = judge(pixels)
        total = 4 * F.cross_entropy(
            logits["present"].flatten(0, 1), pool.grid["present"][row].flatten()
        )
        for name in ATTRIBUTES:
            total = total + F.cross_entropy(
                logits[name].flatten(0, 1), pool.grid[name][row].flatten(), ignore_index=-1
            )
        return total

    seconds = fit("judge", judge, loss, effort, progress)
    return judge, {**asdict(effort), "scenes": SCENES, "seconds": round(seconds, 1)}


def accuracy(
    judge: AttributeJudge | PatchJudge, images: Tensor, grid: dict[str, Tensor]
) -> dict[str, float]:
    """Share of right answers: presence over all places, attributes over the places where an object
    stands."""
    logits: dict[str, list[Tensor]] = {name: [] for name in judge.classes}
    for chunk in torch.split(images, 256):
        for name, part in judge.judge(chunk).items():
            logits[name].append(part.argmax(-1))
    answers = {name: torch.cat(parts) for name, parts in logits.items()}
    here = grid["present"] == 1
    right = {
        name: (answers[name][here] == grid[name][here]).double().mean().item()
        for name in ATTRIBUTES
    }
    return {"present": (answers["present"] == grid["present"]).double().mean().item(), **right}


def measure_judge(judge: AttributeJudge | PatchJudge, count: int = 1000) -> dict[str, Any]:
    """Held-out accuracy per domain and attribute, untouched pictures; shape and texture also by
    size of the object."""
    pool: Pictures = pictures("validation", count)
    quality: dict[str, Any] = {}
    for domain, images in zip(DOMAINS, pool.images, strict=True):
        quality[domain] = {
            name: round(value, 4) for name, value in accuracy(judge, images, pool.grid).items()
        }
        for size, word in enumerate(v.SIZES):
            only = {**pool.grid, "present": (pool.grid["size"] == size).long()}
            right = accuracy(judge, images, only)
            quality[domain][f"texture_of_{word}"] = round(right["texture"], 4)
            quality[domain][f"shape_of_{word}"] = round(right["shape"], 4)
    return quality
