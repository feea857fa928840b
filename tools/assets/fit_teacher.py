"""Trains and measures the vision teacher: dense questions per 4 x 4 cell, and painting the clean picture.

The judges answer per place; the teacher answers per cell what covers it, from noisy pictures, and repaints them.

B batch, N cells, O = 3 objects
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world import vocabulary as v
from fulcrum.data.world.scene import Scenes
from fulcrum.encode.networks.world_teacher import PATCH, Teacher
from fulcrum.encode.unit_pixels import to_unit
from tools.assets.fit import Effort, Progress, fit
from tools.assets.pictures import ATTRIBUTES, DOMAINS, Pictures, pictures

EFFORT = Effort(steps=900, batch=64, lr=1.5e-3, seed=53)
SCENES, FIRST = 30_000, 100_000  # scenes that no judge has seen
QUESTIONS = {
    "shape": len(v.SHAPES) + 1,
    "colour": len(v.COLOURS) + 1,
    "texture": len(v.TEXTURES) + 1,
    "size": len(v.SIZES) + 1,
}  # class 0: background


def cells(scenes: Scenes, side: int) -> dict[str, Tensor]:
    """For each cell of the grid, what covers its centre (0 = background): name -> (n, N) int64."""
    count = side // PATCH
    middle = (torch.arange(count) + 0.5) / count
    y, x = (part.flatten() for part in torch.meshgrid(middle, middle, indexing="ij"))  # (N,)
    far = torch.hypot(torch.from_numpy(scenes.x)[..., None] - x, torch.from_numpy(scenes.y)[..., None] - y)
    reach = torch.from_numpy(scenes.radius)[..., None] + 0.35 / count  # (n, O, 1)
    far = torch.where(torch.from_numpy(scenes.place)[..., None] >= 0, far / reach, torch.inf)
    near, who = far.min(dim=1)  # (n, N)
    return {
        name: torch.where(near < 1, torch.from_numpy(getattr(scenes, name)).gather(1, who) + 1, 0) for name in ATTRIBUTES
    }


class Homework(nn.Module):
    """What the teacher learns from; thrown away afterwards."""

    def __init__(self, teacher: Teacher) -> None:
        super().__init__()
        self.teacher = teacher
        self.heads = nn.ModuleDict({name: nn.Linear(teacher.width, count) for name, count in QUESTIONS.items()})
        self.paint = nn.Linear(teacher.width, 3 * PATCH * PATCH)
        self.backdrop = nn.Linear(teacher.width, len(v.BACKGROUNDS))

    def forward(self, noisy: Tensor, clean: Tensor, wanted: dict[str, Tensor], backdrop: Tensor) -> Tensor:
        tokens = self.teacher(noisy)  # (B, N, E)
        weight = torch.where(wanted["shape"] > 0, 1.0, 0.3).flatten()  # objects are rare
        total = torch.zeros(())
        for name, head in self.heads.items():
            error = F.cross_entropy(head(tokens).flatten(0, 1), wanted[name].flatten(), reduction="none")
            total = total + (error * weight).sum() / weight.sum()
        patches = F.pixel_unshuffle(clean, PATCH).flatten(2).transpose(1, 2)  # (B, N, 48)
        kinds = self.backdrop(tokens).mean(1)
        return total + 4 * F.mse_loss(self.paint(tokens), patches) + 0.3 * F.cross_entropy(kinds, backdrop)


def fit_teacher(effort: Effort = EFFORT, progress: Progress = print) -> tuple[Teacher, dict[str, Any]]:
    """Pictures with up to 0.4 of noise; the tokens must know the clean picture and what covers each cell."""
    pool = pictures("assets", min(SCENES, effort.steps * effort.batch), start=FIRST)
    wanted, backdrop = cells(pool.scenes, 32), torch.from_numpy(pool.scenes.background)
    torch.manual_seed(effort.seed)
    homework = Homework(Teacher())

    def loss(step: int, generator: torch.Generator) -> Tensor:
        images, row, domain = pool.draw(effort.batch, generator)
        clean = to_unit(images)
        amount = 0.4 * torch.rand(len(clean), 1, 1, 1, generator=generator) ** 2
        noisy = clean + amount * torch.randn(clean.shape, generator=generator)
        return homework(noisy, clean, {name: values[row] for name, values in wanted.items()}, backdrop[row])  # type: ignore[no-any-return]

    seconds = fit("teacher", homework, loss, effort, progress)
    return homework.teacher, {**asdict(effort), "scenes": SCENES, "seconds": round(seconds, 1)}


@torch.no_grad()
def measure_teacher(teacher: Teacher, count: int = 1000) -> dict[str, Any]:
    """Accuracy of a ridge probe on the frozen tokens: fitted on half of the validation scenes, read on the rest."""
    pool: Pictures = pictures("validation", max(count, 2))
    wanted = cells(pool.scenes, 32)
    half = pool.images.shape[1] // 2
    quality: dict[str, Any] = {"probe": "ridge on cells covered by an object"}
    for domain, images in zip(DOMAINS, pool.images, strict=True):
        tokens = torch.cat([teacher.tokens(to_unit(chunk)) for chunk in images.split(128)])  # (n, N, E)
        tokens = F.pad(tokens, (0, 1), value=1.0).double()
        right = {}
        for name, classes in QUESTIONS.items():
            seen = wanted[name] > 0
            fit_on, read_on = seen.clone(), seen.clone()
            fit_on[half:], read_on[:half] = False, False
            one_hot = F.one_hot(wanted[name][fit_on], classes).double()
            a = tokens[fit_on]
            map_ = torch.linalg.solve(a.T @ a + torch.eye(a.shape[1], dtype=a.dtype), a.T @ one_hot)
            found = (tokens[read_on] @ map_).argmax(-1)
            right[name] = round((found == wanted[name][read_on]).double().mean().item(), 4)
        quality[domain] = right
    return quality
