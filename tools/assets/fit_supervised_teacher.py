"""Trains the supervised teacher: the world's own attributes, asked per 4 x 4 cell, and painting the
clean picture.

It knows the exam: what it passes on is partly what the judges ask.  Kept to be compared with
(`teacher=supervised`).

B batch, N cells
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world import scene as v
from fulcrum.networks.network_hash import to_unit
from fulcrum.networks.teacher import PATCH, Teacher
from tools.assets.fit import Effort, Progress, fit
from tools.assets.pictures import pictures
from tools.assets.teacher_probe import QUESTIONS, cells

EFFORT = Effort(steps=900, batch=64, lr=1.5e-3, seed=53)
SCENES, FIRST = 30_000, 100_000  # scenes that no judge has seen


class Homework(nn.Module):
    """The questions that it learns from; thrown away afterwards."""

    def __init__(self, teacher: Teacher) -> None:
        super().__init__()
        self.teacher = teacher
        self.heads = nn.ModuleDict(
            {name: nn.Linear(teacher.width, count) for name, count in QUESTIONS.items()}
        )
        self.paint = nn.Linear(teacher.width, 3 * PATCH * PATCH)
        self.backdrop = nn.Linear(teacher.width, len(v.BACKGROUNDS))

    def forward(
        self, noisy: Tensor, clean: Tensor, wanted: dict[str, Tensor], backdrop: Tensor
    ) -> Tensor:
        tokens = self.teacher(noisy)  # (B, N, E)
        weight = torch.where(wanted["shape"] > 0, 1.0, 0.3).flatten()  # objects are rare
        total = torch.zeros(())
        for name, head in self.heads.items():
            error = F.cross_entropy(
                head(tokens).flatten(0, 1), wanted[name].flatten(), reduction="none"
            )
            total = total + (error * weight).sum() / weight.sum()
        patches = F.pixel_unshuffle(clean, PATCH).flatten(2).transpose(1, 2)  # (B, N, 48)
        kinds = self.backdrop(tokens).mean(1)
        return (
            total
            + 4 * F.mse_loss(self.paint(tokens), patches)
            + 0.3 * F.cross_entropy(kinds, backdrop)
        )


def fit_supervised_teacher(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[Teacher, dict[str, Any]]:
    """Pictures with up to 0.4 of noise; the tokens must know the clean picture and what covers each
    cell."""
    pool = pictures("assets", min(SCENES, effort.steps * effort.batch), start=FIRST)
    wanted, backdrop = cells(pool.scenes, 32), torch.from_numpy(pool.scenes.background)
    torch.manual_seed(effort.seed)
    homework = Homework(Teacher())

    def loss(step: int, generator: torch.Generator) -> Tensor:
        images, row, domain = pool.draw(effort.batch, generator)
        clean = to_unit(images)
        amount = 0.4 * torch.rand(len(clean), 1, 1, 1, generator=generator) ** 2
        noisy = clean + amount * torch.randn(clean.shape, generator=generator)
        asked = {name: values[row] for name, values in wanted.items()}
        return homework(noisy, clean, asked, backdrop[row])  # type: ignore[no-any-return]

    seconds = fit("teacher_supervised", homework, loss, effort, progress)
    return homework.teacher, {**asdict(effort), "scenes": SCENES, "seconds": round(seconds, 1)}
