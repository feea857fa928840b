"""Trains the second judge: on scenes of its own, and on what a generated picture may look like.

The first judge learned from one to three objects in clean pictures. Beside those this one sees, in
every batch, crowds of anything from no object to nine, pictures of nothing (noise, blots, plain
colours), and pictures that went through the codec with a disturbed latent.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.networks.codec import load_codec
from fulcrum.networks.judges import PatchJudge
from fulcrum.networks.network_hash import to_unit
from tools.assets.crowds import crowds
from tools.assets.fit import Effort, Progress, fit
from tools.assets.fit_judge import CLASSES
from tools.assets.pictures import ATTRIBUTES, blurred, disturbed, drawn_pictures, pictures

EFFORT = Effort(steps=2400, batch=96, lr=2e-3, seed=71)
# other scenes than the first judge, the features and the teacher saw
SCENES, FIRST = 40_000, 400_000
# shares of a batch; the rest are pictures as they are
CROWDS, NOTHING, DECODED = 0.25, 0.125, 0.125


def fit_second_judge(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[PatchJudge, dict[str, Any]]:
    """Cross entropy of presence at all places, and of the attributes where an object stands."""
    pool = pictures("assets", min(SCENES, effort.steps * effort.batch), start=FIRST)
    peopled = drawn_pictures(
        crowds(min(SCENES // 4, effort.steps * effort.batch), start=FIRST + SCENES)
    )
    codec = load_codec()
    torch.manual_seed(effort.seed)
    judge = PatchJudge(CLASSES)
    crowded, nothing, decoded = (
        round(share * effort.batch) for share in (CROWDS, NOTHING, DECODED)
    )

    def loss(step: int, generator: torch.Generator) -> Tensor:
        images, row, _ = pool.draw(effort.batch - nothing - crowded, generator)
        many, chosen, _ = peopled.draw(crowded, generator)
        pixels = to_unit(torch.cat([many, images]))
        grid = {
            name: torch.cat([peopled.grid[name][chosen], pool.grid[name][row]])
            for name in ("present", *ATTRIBUTES)
        }
        last = slice(len(pixels) - decoded, None)
        with torch.no_grad():
            latent = codec.encode(pixels[last])
            sigma = 0.4 * torch.rand(decoded, 1, 1, 1, generator=generator)
            pixels[last] = codec.decode(
                latent + sigma * torch.randn(latent.shape, generator=generator)
            )
        pixels, _ = disturbed(pixels, generator, blur=1.0, noise=0.2, light=0.15)
        logits = judge(torch.cat([pixels, _nothing(nothing, generator)]))
        present = torch.cat([grid["present"], torch.zeros(nothing, 9, dtype=torch.long)])
        total = 4 * F.cross_entropy(logits["present"].flatten(0, 1), present.flatten())
        for name in ATTRIBUTES:
            answers = logits[name][: len(pixels)].flatten(0, 1)
            # -1 where a place is empty
            total = total + F.cross_entropy(answers, grid[name].flatten(), ignore_index=-1)
        return total

    seconds = fit("judge_second", judge, loss, effort, progress)
    shares = {"crowds": CROWDS, "nothing": NOTHING, "decoded": DECODED}
    return judge, {
        **asdict(effort),
        "scenes": SCENES,
        "first_scene": FIRST,
        **shares,
        "seconds": round(seconds, 1),
    }


def _nothing(count: int, generator: torch.Generator) -> Tensor:
    """Pictures without an object: noise of every strength, fine or in blots, around any colour.
    (B, 3, 32, 32)"""
    colour = 2 * torch.rand(count, 3, 1, 1, generator=generator) - 1
    strength = (
        1.5
        * torch.rand(count, 1, 1, 1, generator=generator)
        * (torch.rand(count, 1, 1, 1, generator=generator) < 0.8)
    )
    fine = torch.randn(count, 3, 32, 32, generator=generator)
    blots = F.interpolate(
        torch.randn(count, 3, 8, 8, generator=generator),
        size=32,
        mode="bilinear",
        align_corners=False,
    )
    uniform = (2 * torch.rand(count, 3, 32, 32, generator=generator) - 1) * 3**0.5
    soft = 2.5 * blurred(fine, 0.8)
    kind = torch.randint(4, (count, 1, 1, 1), generator=generator)
    noise = torch.where(
        kind == 0, fine, torch.where(kind == 1, blots, torch.where(kind == 2, uniform, soft))
    )
    return (colour + strength * noise).clamp(-1, 1)
