"""Trains and measures the captioner: the next word of captions in four styles, given the picture,
in both domains.

Nothing but pictures and their captions is learned from: no attribute is asked for.

n scenes, B captions, L words
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import Scenes, scenes, tokenize
from fulcrum.data.world.words import WORDS, captions
from fulcrum.networks.captioner import END, PAD, WorldCaptioner, word_dice
from fulcrum.networks.network_hash import to_unit
from tools.assets.fit import Effort, Loss, Progress, fit
from tools.assets.pictures import DOMAINS, Pictures, disturbed, pictures
from tools.assets.told import marks, mentions_right

EFFORT = Effort(steps=2400, batch=48, lr=2e-3, seed=89)
SECOND = Effort(steps=1000, batch=48, lr=1.5e-3, seed=97, kernels=3e-3)
SCENES, FIRST = 40_000, 400_000  # scenes of the split that no other part was trained on
STYLES = {"long": 48, "medium": 32, "short": 10, "tags": 24}  # and the most words that one has
PARTS = 4  # groups of captions of about one length: hardly any padding is computed


def tags(drawn: Scenes) -> list[str]:
    """Objects from left to right and top to bottom, then the background: no sentence."""
    texts = []
    for row in range(len(drawn)):
        objects = []
        for slot in np.argsort(drawn.place[row, : int(drawn.count[row])]):
            size, texture, colour, shape = (
                words[int(getattr(drawn, name)[row, slot])]
                for name, words in (
                    ("size", v.SIZES),
                    ("texture", v.TEXTURES),
                    ("colour", v.COLOURS),
                    ("shape", v.SHAPES),
                )
            )
            objects.append(f"{size} {texture} {colour} {shape}")
        ground = [v.BACKGROUND_COLOURS[c] for c in drawn.background_colour[row].tolist() if c >= 0]
        how = {
            "plain": "plain {}",
            "gradient": "{} fades to {}",
            "horizon": "{} above {}",
            "striped": "striped {} and {}",
        }
        kind = how[v.BACKGROUNDS[int(drawn.background[row])]].format(*ground)
        texts.append(", ".join([*objects, f"{kind} background"]))
    return texts


def fit_captioner(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[WorldCaptioner, dict[str, Any]]:
    """Two rounds: the second begins from what the first would ship, rounded, with a seed of its own
    and a lower rate. Which words belong to one object is learned last."""
    pool = pictures("assets", min(SCENES, 64 * effort.steps), start=FIRST)
    torch.manual_seed(effort.seed)
    captioner = WorldCaptioner(WORDS, STYLES)
    second = replace(SECOND, steps=min(SECOND.steps, effort.steps))
    seconds = fit("captioner", captioner, lesson(captioner, pool, effort.batch), effort, progress)
    captioner.half().float().requires_grad_(True)
    seconds += fit(
        "captioner again", captioner, lesson(captioner, pool, second.batch), second, progress
    )
    facts = {**asdict(effort), "again": asdict(second), "scenes": SCENES, "first_scene": FIRST}
    return captioner, {**facts, "seconds": round(seconds, 1)}


def lesson(captioner: WorldCaptioner, pool: Pictures, batch: int) -> Loss:
    """The loss of a step: each picture is told twice, once at length, once in another wording or
    style."""
    told = _told(captioner, pool.scenes)  # (wordings, n, L)

    def loss(step: int, generator: torch.Generator) -> Tensor:
        images, row, domain = pool.draw(batch, generator)
        pixels, damage = disturbed(to_unit(images), generator, blur=0.6, noise=0.06, light=0.05)
        seen = captioner.eye(pixels)
        first = torch.randint(2, (batch,), generator=generator)
        other = torch.randint(1, len(told), (batch,), generator=generator)
        ids = torch.cat([told[first, row], told[other, row]]).long()  # (B, L)
        order = (ids != PAD).sum(1).argsort()
        total, count = torch.zeros(()), 0
        for rows in order.chunk(PARTS):
            part = ids[rows, : int((ids[rows] != PAD).sum(1).max())]
            logits = captioner(seen[rows % batch], part[:, :-1])
            total = total + F.cross_entropy(
                logits.flatten(0, 1), part[:, 1:].flatten(), ignore_index=PAD, reduction="sum"
            )
            count += int((part[:, 1:] != PAD).sum())
        return total / count

    return loss


def _told(captioner: WorldCaptioner, drawn: Scenes) -> Tensor:
    """(5, n, L) uint8: two wordings at length, and one in each other style."""
    again = drawn.index + 2**40
    worded = [
        ("long", captions(drawn, "long").texts),
        ("long", captions(drawn, "long", again).texts),
    ]
    worded += [(style, captions(drawn, style).texts) for style in ("medium", "short")] + [
        ("tags", tags(drawn))
    ]
    told = torch.full((len(worded), len(drawn), max(STYLES.values()) + 2), PAD, dtype=torch.uint8)
    for part, (style, texts) in enumerate(worded):
        for row, text in enumerate(texts):
            ids = [captioner.start(style), *(captioner.index[word] for word in tokenize(text)), END]
            told[part, row, : len(ids)] = torch.tensor(ids, dtype=torch.uint8)
    return told


def measure_captioner(captioner: WorldCaptioner, count: int = 1000) -> dict[str, Any]:
    """What its captions of held-out pictures tell, against the scenes: shares of pictures, by
    domain and style."""
    drawn = scenes("validation", np.arange(count, dtype=np.int64))
    pool = pictures("validation", count)
    dice = word_dice(drawn.index, "long")
    quality: dict[str, Any] = {
        "marks": "shares of pictures; drawn: words drawn by their probability, not the likeliest"
    }
    for domain, images in zip(DOMAINS, pool.images, strict=True):
        quality[domain] = {
            style: marks(captioner.write(images, style), drawn)
            for style in ("long", "medium", "tags")
        }
        quality[domain]["long, drawn"] = marks(captioner.write(images, "long", dice), drawn)
        quality[domain]["short"] = {
            "mentions_right": mentions_right(captioner.write(images, "short"), drawn)
        }
    return quality
