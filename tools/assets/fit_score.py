"""Trains and measures the pair score: which caption belongs to which picture, in both domains and
all caption styles.

Only the two small heads learn; what the frozen teacher and text encoder say of each scene is
computed once.

n scenes, B pairs, L text tokens, E token width, P = 9 places
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.data.captions import Chooser
from fulcrum.data.source import WorldSource
from fulcrum.data.world.words import MAX_TOKENS, STYLES, captions
from fulcrum.files.shipped import asset_hash
from fulcrum.networks.captioner import READS, PairScore, Scorer, by_place
from fulcrum.networks.network_hash import to_unit
from fulcrum.networks.teacher import load_teacher
from fulcrum.networks.text import load_text
from tools.assets.fit import Effort, Progress, fit
from tools.assets.pictures import DOMAINS, pictures

EFFORT = Effort(steps=2500, batch=256, lr=2e-3, seed=71)
SCENES, FIRST = 12_000, 300_000  # scenes of the split that no other part was trained on


def fit_score(
    effort: Effort = EFFORT, progress: Progress = print
) -> tuple[PairScore, dict[str, Any]]:
    """Every pair of a batch is a question: does this caption belong to this picture?"""
    pool = pictures("assets", min(SCENES, 64 * effort.steps), start=FIRST)
    teacher, text = load_teacher(), load_text()
    seen = torch.stack(
        [
            torch.cat([by_place(teacher.tokens(to_unit(chunk))) for chunk in images.split(256)])
            for images in pool.images
        ]
    )  # (2, n, P * E)
    captioned = [_tokens(text, captions(pool.scenes, style).texts) for style in STYLES]
    torch.manual_seed(effort.seed)
    pair = PairScore(reads={name: asset_hash(name) for name in READS})
    same = torch.eye(effort.batch) * 2 - 1  # +1 where they belong together

    def loss(_: int, generator: torch.Generator) -> Tensor:
        row = torch.randint(len(pool.scenes), (effort.batch,), generator=generator)
        domain = torch.randint(len(DOMAINS), (effort.batch,), generator=generator)
        style = torch.randint(len(STYLES), (effort.batch,), generator=generator)
        emb, mask = (
            torch.stack(
                [captioned[s][part][r] for s, r in zip(style.tolist(), row.tolist(), strict=True)]
            )
            for part in (0, 1)
        )
        length = int(mask.sum(1).max())
        # (B, B)
        cosine = (
            pair.see(seen[domain, row]) @ pair.read(emb[:, :length].float(), mask[:, :length]).T
        )
        return -F.logsigmoid(same * pair.logit(cosine)).sum() / effort.batch

    seconds = fit("score", pair, loss, effort, progress)
    return pair, {**asdict(effort), "scenes": SCENES, "seconds": round(seconds, 1)}


def _tokens(text: Any, prompts: list[str]) -> tuple[Tensor, Tensor]:
    """Embeddings (n, L, E) as float16 and mask (n, L) of all prompts."""
    parts = [
        text.encode(prompts[first : first + 256], MAX_TOKENS)
        for first in range(0, len(prompts), 256)
    ]
    return torch.cat([emb.half() for emb, _ in parts]), torch.cat([mask for _, mask in parts])


def auc(higher: Tensor, lower: Tensor) -> float:
    """How often a member of the first group scores above a member of the second; ties count
    half."""
    values = torch.cat([higher, lower]).double()
    _, place, count = torch.unique(values, return_inverse=True, return_counts=True)
    rank = (count.cumsum(0) - (count - 1) / 2)[place]  # from 1, ties share theirs
    n, m = len(higher), len(lower)
    return float((rank[:n].sum() - n * (n + 1) / 2) / (n * m))


def measure_score(pair: PairScore, count: int = 1000) -> dict[str, Any]:
    """AUC of true pairs against planted wrong ones; and with a tenth planted, their share among as
    many worst pairs."""
    scorer, index = Scorer(pair, load_teacher(), load_text()), np.arange(count)
    quality: dict[str, Any] = {"auc": "of true pairs against mislabelled ones, by caption style"}
    for domain in DOMAINS:
        right, wrong = (
            WorldSource("validation", domain, 32, count, mislabelled=share) for share in (0.0, 1.0)
        )
        images = torch.from_numpy(right.read(index).images)
        planted = WorldSource("validation", domain, 32, count, mislabelled=0.1).planted(index)
        quality[domain] = {}
        for name, chooser in {
            **{style: Chooser((style,), (1.0,)) for style in STYLES},
            "mixed": Chooser(STYLES, (1.0,) * len(STYLES)),
        }.items():
            true, false = (
                torch.cat(
                    [
                        scorer.score(images[rows], source.prompts(chooser, rows))
                        for rows in np.array_split(index, -(-count // 256))
                    ]
                )
                for source in (right, wrong)
            )
            worst = torch.where(torch.from_numpy(planted), false, true).argsort()[
                : max(int(planted.sum()), 1)
            ]
            quality[domain][name] = {
                "auc": round(auc(true, false), 4),
                "planted_among_worst": round(float(planted[worst].mean()), 4),
            }
    return quality
