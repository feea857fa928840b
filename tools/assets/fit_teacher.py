"""Trains the default teacher, which is told nothing of the world: it learns to see elsewhere, and
repaints the world.

Elsewhere (procedural outlines and patterns that the world does not have) it says of each 4 x 4 cell
what covers it.  Of the world it sees pictures alone, noised and with cells hidden, and paints what
was there: no attribute and no caption.

B pictures, N cells, M points of a thing's own plane, E token width
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.networks.network_hash import to_unit
from fulcrum.networks.teacher import PATCH, Teacher
from tools.assets.elsewhere import MAP, Elsewhere, Lesson
from tools.assets.fit import Effort, Progress, fit
from tools.assets.pictures import unlabelled

EFFORT = Effort(steps=3000, batch=64, lr=1.5e-3, seed=53)  # pictures of elsewhere in each step
WORLD = 16  # and of the world
SCENES, FIRST = 30_000, 100_000  # scenes that no judge has seen
WEIGHTS = {
    "there": 0.5,  # whether anything covers the cell
    "outline": 0.9,  # which
    "pattern": 0.9,
    "mask": 12.0,  # the outline itself, around its middle, in radii
    "inside": 10.0,  # and what the pattern does there
    "colour": 0.5,
    "size": 0.5,
    "offset": 0.3,  # where its middle is
    "elsewhere": 2.0,  # painting, squared error
    "world": 2.0,
}
# (64, 3) a lattice: linear maps of three numbers name few
TONES = torch.cartesian_prod(*[torch.linspace(0, 1, 4)] * 3)
SPREAD = 0.20  # how near a colour must be to a point of the lattice to count as it
SIZES, NEAR = torch.linspace(-1, 1, 9), 0.15


class Lessons(nn.Module):
    """What the default teacher learns from; thrown away afterwards.  Linear, so that tokens must
    say it plainly."""

    def __init__(self, teacher: Teacher, outlines: int, patterns: int) -> None:
        super().__init__()
        self.teacher = teacher
        sizes = {
            "there": 1,
            "outline": outlines,
            "pattern": patterns,
            "mask": MAP * MAP,
            "inside": MAP * MAP,
            "colour": len(TONES),
            "tone": 3,
            "size": len(SIZES),
            "offset": 2,
            "paint": 3 * PATCH * PATCH,
        }
        self.heads = nn.ModuleDict(
            {name: nn.Linear(teacher.width, count) for name, count in sizes.items()}
        )

    def forward(self, noisy: Tensor, lesson: Lesson, hidden: Tensor, world: Tensor) -> Tensor:
        """`noisy` is the lesson's picture disturbed, `hidden` the world's pictures disturbed."""
        # (B, N, E) each
        tokens, of_world = self.teacher(torch.cat([noisy, hidden])).split([len(noisy), len(hidden)])
        covered = lesson.outline >= 0
        h = tokens[covered]
        clear = lesson.strength[covered].clamp(max=0.6)
        kind = F.cross_entropy(self.heads["pattern"](h), lesson.pattern[covered], reduction="none")
        errors = {
            "there": F.binary_cross_entropy_with_logits(
                self.heads["there"](tokens)[..., 0], covered.float()
            ),
            "outline": F.cross_entropy(self.heads["outline"](h), lesson.outline[covered]),
            "pattern": (kind * clear).sum() / clear.sum(),  # a faint one cannot be told
            "mask": F.mse_loss(self.heads["mask"](h), lesson.mask[covered]),
            "inside": F.mse_loss(self.heads["inside"](h), lesson.inside[covered]),
            "colour": (
                F.cross_entropy(
                    self.heads["colour"](h), nearness(lesson.tone[covered], TONES, SPREAD)
                )
                + 4 * F.mse_loss(self.heads["tone"](h), lesson.tone[covered])
            ),
            "size": F.cross_entropy(
                self.heads["size"](h), nearness(lesson.radius[covered, None], SIZES[:, None], NEAR)
            ),
            "offset": F.mse_loss(self.heads["offset"](h), lesson.offset[covered]),
            "elsewhere": F.mse_loss(self.heads["paint"](tokens), patches(lesson.clean)),
            "world": F.mse_loss(self.heads["paint"](of_world), patches(world)),
        }
        return torch.stack([WEIGHTS[name] * error for name, error in errors.items()]).sum()


def nearness(values: Tensor, points: Tensor, spread: float) -> Tensor:
    """Soft classes: how much each value (n, d) belongs to each point (k, d), rows that sum to
    one."""
    return (-(values[:, None] - points).square().sum(-1) / (2 * spread**2)).softmax(-1)


def patches(pixels: Tensor) -> Tensor:
    """(B, 3, S, S) -> (B, N, 48): the pixels of each cell."""
    return F.pixel_unshuffle(pixels, PATCH).flatten(2).transpose(1, 2)


def noised(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Up to 0.4 of noise, mostly little."""
    amount = 0.4 * torch.rand(len(pixels), 1, 1, 1, generator=generator) ** 2
    return pixels + amount * torch.randn(pixels.shape, generator=generator)


def masked(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Up to 0.3 of the cells grey."""
    rows, side = len(pixels), pixels.shape[-1] // PATCH
    share = 0.3 * torch.rand(rows, 1, 1, 1, generator=generator)
    kept = torch.rand(rows, 1, side, side, generator=generator) >= share
    return pixels * kept.repeat_interleave(PATCH, 2).repeat_interleave(PATCH, 3)


def fit_teacher(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[Teacher, dict[str, Any]]:
    """Elsewhere and the world in every step; the world comes as bytes of pictures, without their
    scenes."""
    # (n, 3, S, S) uint8
    pool = unlabelled("assets", min(SCENES, effort.steps * WORLD), start=FIRST)
    elsewhere = Elsewhere()
    torch.manual_seed(effort.seed)
    lessons = Lessons(Teacher(), len(elsewhere.outlines), len(elsewhere.patterns))

    def loss(_: int, generator: torch.Generator) -> Tensor:
        lesson = elsewhere.draw(effort.batch, generator)
        world = to_unit(pool[torch.randint(len(pool), (WORLD,), generator=generator)])
        clean, hidden = noised(lesson.clean, generator), noised(world, generator)
        return lessons(clean, lesson, masked(hidden, generator), world)  # type: ignore[no-any-return]

    seconds = fit("teacher", lessons, loss, effort, progress)
    facts = {
        "outlines": len(elsewhere.outlines),
        "patterns": len(elsewhere.patterns),
        "world_batch": WORLD,
    }
    return lessons.teacher, {
        **asdict(effort),
        **facts,
        "scenes": SCENES,
        "seconds": round(seconds, 1),
    }
