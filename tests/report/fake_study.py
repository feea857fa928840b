"""A made-up but realistic study: four arms, six seeds, statistics computed from its cells, pictures
drawn."""

from __future__ import annotations

import base64
import copy
import hashlib
import io
from functools import cache
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from scipy import stats

SEEDS = list(range(6))
IMAGES = 60_000
POINTS = [IMAGES * k // 8 for k in range(1, 9)]
PROMPTS = [
    (
        "a small red circle with stripes to the left of a large blue square, on a pale green"
        " background"
    ),
    "one yellow triangle in the upper right corner, on a dark grey gradient",
    (
        "three objects: a green star, a purple circle below it, and a white dotted square at the"
        " bottom"
    ),
    "a large orange square, on a blue background",
    "a tiny cyan star above a big brown triangle with checks",
    "a pink circle in the middle, on a noisy beige background",
]
SHAPES = [
    ("ellipse", "#d33"),
    ("polygon", "#e7c81e"),
    ("ellipse", "#7a3fb0"),
    ("rectangle", "#ef8320"),
    ("polygon", "#6d4326"),
    ("ellipse", "#ee86ad"),
]
GROUNDS = ["#bfe0c0", "#444", "#88a", "#2f56b5", "#cfc6a8", "#e0d3b5"]
METRICS: list[dict[str, Any]] = [
    {
        "name": "attribute_accuracy",
        "label": "Attribute accuracy",
        "unit": "share of attributes",
        "better": "higher",
        "explain": (
            "Does the picture show what its caption says? Judged by a classifier that saw neither"
            " arm."
        ),
        "card": {
            "features": "judge-v1",
            "samples": 512,
            "reference": "sha256:41ab",
            "sampler": "euler, 24 steps",
        },
    },
    {
        "name": "frechet",
        "label": "Fréchet distance",
        "unit": "squared feature units",
        "better": "lower",
        "explain": (
            "Distance between two Gaussians fitted to features of samples and of real scenes."
        ),
        "card": {"features": "eye-v1 (64 wide)", "samples": 512, "resize": None},
    },
    {
        "name": "validation_loss",
        "label": "Validation loss",
        "unit": "mean squared velocity",
        "better": "lower",
        "explain": "Flow-matching loss at fixed times and noises on scenes never trained on.",
        "card": {"times": [0.1, 0.5, 0.9]},
    },
]
# name, label, phrase, says, offset of each metric, cost (flops, time, memory, parameters), diff,
# claims
LEVERS: list[tuple[Any, ...]] = [
    (
        "baseline",
        "Baseline",
        "spark",
        "Long captions, AdamW, weights stored in fp32",
        (0, 0, 0),
        (1, 1, 1, 1),
        [],
        [],
    ),
    (
        "short_captions",
        "Short captions",
        "spark + short_captions",
        "Train on one clause instead of a full description of the scene.",
        (-0.21, 6.5, 0.011),
        (0.98, 0.97, 0.99, 1.0),
        [("data.caption", {"kind": "long"}, {"kind": "short"})],
        [
            (
                "fid",
                18.64,
                "256 px latents, 100k steps",
                "PRX Part 2",
                "FID 18.20 became 36.84 there",
            )
        ],
    ),
    (
        "muon",
        "Muon",
        "spark + muon",
        "Orthogonalised momentum for weight matrices, AdamW for the rest.",
        (0.034, -1.9, -0.006),
        (1.01, 1.11, 0.88, 1.0),
        [("optim.kind", "adamw", "muon_adamw"), ("optim.matrix_lr", None, 0.003)],
        [("fid", -2.65, "256 px latents, 256 tokens, 100k steps", "PRX Part 2", "")],
    ),
    (
        "bf16_stored",
        "BF16-stored weights",
        "spark + bf16_stored",
        "Keep the weights themselves in bf16, not only the arithmetic.",
        (-0.004, 0.35, 0.0008),
        (1.0, None, 0.55, 1.0),
        [("precision.storage", "fp32", "bf16")],
        [("fid", 3.67, "256 px latents, 100k steps", "PRX Part 2", "")],
    ),
]


@cache
def picture(prompt: int, blur: float, seed: int) -> str:
    """A 32 px scene as a data URI; `blur` mixes in noise, as an undertrained model would."""
    rng = np.random.default_rng([prompt, seed])
    canvas = Image.new("RGB", (128, 128), GROUNDS[prompt])
    kind, fill = SHAPES[prompt]
    x, y = (int(v) for v in rng.integers(20, 50, 2))
    box = (x, y, x + 56, y + 56)
    draw = ImageDraw.Draw(canvas)
    if kind == "polygon":
        draw.polygon([(x + 28, y), (x + 56, y + 56), (x, y + 56)], fill=fill)
    else:
        getattr(draw, kind)(box, fill=fill)
    pixels = np.asarray(canvas.resize((32, 32), Image.Resampling.BOX), dtype=np.float64)
    pixels = pixels * (1 - blur) + blur * rng.uniform(0, 255, pixels.shape)
    out = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(out, "PNG")
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def fake_study() -> dict[str, Any]:
    """The finished study as the plain dict that the study engine hands over; a fresh copy at every
    call."""
    return copy.deepcopy(_built())


@cache
def _built() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    base = {
        seed: np.array([0.78, 21.0, 0.412]) + rng.normal(0, [0.016, 0.8, 0.002]) for seed in SEEDS
    }
    arms = [_arm(row, base, rng) for row in LEVERS]
    effects = [_effect(arm, arms[0], metric) for arm in arms[1:] for metric in METRICS]
    noise = []
    for metric in METRICS:
        values = [cell["final"][metric["name"]] for cell in arms[0]["cells"]]
        sd = float(np.std(values, ddof=1))
        noise.append(
            {
                "metric": metric["name"],
                "mean": float(np.mean(values)),
                "sd": sd,
                "cv": sd / float(np.mean(values)),
                "n": len(values),
            }
        )
    return {
        "title": "Which training decisions matter for following captions?",
        "state": "finished",
        "plan": {
            "hash": "9f2c41d07a",
            "baseline": "spark",
            "primary_metric": "attribute_accuracy",
            "seeds": SEEDS,
            "images": IMAGES,
            "smallest_effect": 0.02,
            "alpha": 0.05,
            "threads_per_cell": 1,
            "guidance": 2.0,
            "learning_rate_policy": "shared: one rate for all arms; Muon's was not swept",
            "sample_count": 512,
        },
        "made": {
            "version": "0.1.0",
            "date": "2025-01-31",
            "command": "fulcrum study run examples/quick.toml",
            "machine": "2 cores, no GPU, torch 2.13.0",
            "seconds": 1032.0,
        },
        "metrics": METRICS,
        "arms": arms,
        "effects": effects,
        "noise": noise,
        "detectable": {"attribute_accuracy": 0.018, "frechet": 0.9, "validation_loss": 0.0016},
        "grids": {
            "prompts": PROMPTS,
            "arms": [
                {
                    "arm": arm["name"],
                    "seed": seed,
                    "images": [
                        picture(k, (0.08, 0.45, 0.05, 0.1)[i], seed) for k in range(len(PROMPTS))
                    ],
                }
                for seed in (0, 1)
                for i, arm in enumerate(arms)
            ],
            "reference": [picture(k, 0.0, 99) for k in range(len(PROMPTS))],
        },
        "remarks": [
            "Muon ran at an untuned learning rate: a sweep could move its effect either way.",
            (
                "The teacher and the judge are different networks; no metric shares features with"
                " training."
            ),
        ],
        "progress": {"done": 24, "total": 24, "seconds_left": None},
    }


def running_study() -> dict[str, Any]:
    """The same study eight cells in: two seeds of every arm are done, one more is half way."""
    study = fake_study()
    study.update(
        state="running",
        effects=[],
        noise=[],
        detectable={},
        progress={"done": 8, "total": 24, "seconds_left": 421.0},
    )
    study["made"]["seconds"] = None
    study["grids"]["arms"] = [row for row in study["grids"]["arms"] if row["seed"] == 0][:3]
    for arm in study["arms"]:
        for cell in arm["cells"]:
            if cell["seed"] == 2:
                cell.update(
                    state="running",
                    images=IMAGES // 2,
                    final={},
                    curve=cell["curve"][:4],
                    loss=cell["loss"][:20],
                )
            elif cell["seed"] > 2:
                cell.update(state="waiting", images=0, final={}, curve=[], loss=[])
    return study


def _arm(row: tuple[Any, ...], base: dict[int, Any], rng: np.random.Generator) -> dict[str, Any]:
    name, label, phrase, says, offset, cost, diff, claims = row
    cells = []
    for seed in SEEDS:
        ends = base[seed] + (
            np.array(offset) + rng.normal(0, [0.009, 0.4, 0.0008]) if name != "baseline" else 0
        )
        cells.append(_cell(name, seed, ends, cost))
    return {
        "name": name,
        "phrase": phrase,
        "says": says,
        "label": label,
        "compound": False,
        "diff": [{"path": path, "before": before, "after": after} for path, before, after in diff],
        "cost": dict(
            zip(
                ("flops_ratio", "time_ratio", "memory_ratio", "parameters_ratio"), cost, strict=True
            )
        ),
        "claims": [
            dict(zip(("metric", "change", "scope", "source", "note"), claim, strict=True))
            for claim in claims
        ],
        "cells": cells,
    }


def _cell(name: str, seed: int, ends: Any, cost: tuple[float | None, ...]) -> dict[str, Any]:
    rng = np.random.default_rng([seed, len(name)])
    starts, curve = np.array([0.2, 140.0, 0.9]), []
    for point in POINTS:
        left = (np.exp(-4 * point / IMAGES) - np.exp(-4)) / (1 - np.exp(-4))
        now = ends + (starts - ends) * left * (1 + rng.normal(0, 0.05, 3))
        curve.append(
            {
                "images": point,
                "seconds": point / 900 * (cost[1] or 1.02),
                "flops": point * 2.1e9 * (cost[0] or 1),
                "values": dict(zip((m["name"] for m in METRICS), map(float, now), strict=True)),
            }
        )
    steps = np.linspace(256, IMAGES, 60).astype(int)
    loss = [
        {
            "images": int(step),
            "loss": float(ends[2] + 0.7 * np.exp(-6 * step / IMAGES) + rng.normal(0, 0.01)),
        }
        for step in steps
    ]
    return {
        "seed": seed,
        "key": hashlib.sha256(f"{name}{seed}".encode()).hexdigest()[:16],
        "state": "done",
        "images": IMAGES,
        "final": curve[-1]["values"],
        "curve": curve,
        "loss": loss,
    }


def _effect(
    arm: dict[str, Any], baseline: dict[str, Any], metric: dict[str, Any]
) -> dict[str, Any]:
    key = metric["name"]
    before, after = (
        np.array([cell["final"][key] for cell in one["cells"]]) for one in (baseline, arm)
    )
    gap = after - before
    half = stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap))
    mean, good = float(gap.mean()), 1 if metric["better"] == "higher" else -1
    p = 0.03125 if abs(mean) > half else 0.28
    verdict = "tie" if key == "attribute_accuracy" and abs(mean) + half < 0.02 else "inconclusive"
    verdict = ("better" if good * mean > 0 else "worse") if p < 0.05 else verdict
    return {
        "arm": arm["name"],
        "metric": key,
        "unit": "images",
        "n": len(gap),
        "mean": mean,
        "low": mean - half,
        "high": mean + half,
        "correlation": float(np.corrcoef(before, after)[0, 1]),
        "p_adjusted": p,
        "detectable": float(3.1 * gap.std(ddof=1)),
        "verdict": verdict,
        "claim_verdict": "replicated" if verdict in ("better", "worse") else "underpowered",
    }
