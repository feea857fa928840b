"""Made-up studies with all that a study may hold: nine levers and every optional part; three levers
at three scales."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np

SMALL = runpy.run_path(str(Path(__file__).with_name("fake_study.py")))
MORE: list[tuple[Any, ...]] = [
    (
        "repa",
        "REPA",
        "spark + repa",
        "Align a middle layer with a frozen teacher's features.",
        (0.041, -2.4, -0.004),
        (1.06, 1.17, 1.04, 1.02),
        [("terms", {}, {"repa": {"kind": "alignment", "layer": 3, "weight": 0.5}})],
        [("fid", -3.9, "256 px latents, 256 tokens, 100k steps", "PRX Part 2", "")],
    ),
    (
        "contrastive_flow",
        "Contrastive flow",
        "spark + contrastive_flow",
        "Push predictions of different samples apart.",
        (0.011, -0.2, None),
        (1.0, 1.02, 1.01, 1.0),
        [("terms", {}, {"contrast": {"kind": "contrastive", "weight": 0.05}})],
        [("fid", -0.4, "256 px latents, 100k steps", "PRX Part 2", "")],
    ),
    (
        "tread",
        "TREAD",
        "spark + tread",
        "Half of the tokens take a shortcut around the middle blocks.",
        (-0.055, 1.9, 0.003),
        (0.78, 0.81, 0.84, 1.0),
        [("model.route", {"kind": "dense"}, {"kind": "carry", "drop": 0.5})],
        [
            ("fid", 3.41, "256 px latents, 256 tokens, 100k steps", "PRX Part 2", ""),
            (
                "fid",
                -3.32,
                "1024 px pixels, 1,024 tokens, 100k steps",
                "PRX Part 2",
                "carries to many tokens only",
            ),
        ],
    ),
    (
        "ema",
        "Averaged weights",
        "spark + ema",
        "Draw with an exponential average of the weights.",
        (0.006, -0.3, -0.0004),
        (1.0, 1.01, 1.25, 1.0),
        [("average", {"kind": "none"}, {"kind": "ema", "horizon": 0.02})],
        [],
    ),
    (
        "x_prediction",
        "Predict the image",
        "spark + x_prediction",
        "The network predicts the picture, not the velocity.",
        (0.018, -0.9, None),
        (1.0, 1.0, 1.0, 1.0),
        [("flow.predict", {"kind": "velocity"}, {"kind": "x"})],
        [("fid", 1.1, "256 px latents, 100k steps", "PRX Part 2", "")],
    ),
    (
        "min_snr",
        "Min-SNR weights",
        "spark + min_snr",
        "Weigh times by their signal-to-noise ratio.",
        (-0.012, 0.5, None),
        (1.0, 1.0, 1.0, 1.0),
        [("flow.weight", {"kind": "one"}, {"kind": "min_snr", "gamma": 5.0})],
        [],
    ),
]
PROBES = {
    "negated": "colours negated",
    "swapped_channels": "red and blue exchanged",
    "blurred": "details lost",
    "halved": "half as many pictures",
    "collapsed": "one picture in 8, repeated",
    "copy": "the reference itself",
}
SEEN = {
    "frechet": ("worse", "worse", "worse", "worse", "worse", "better"),
    "mmd_published": ("worse", "worse", "worse", "stays", "stays", "better"),
    "attribute_accuracy": ("worse", "worse", "worse", "stays", "stays", "better"),
}


def rich_study() -> dict[str, Any]:
    """Nine levers on one baseline, with interactions, time to target, a sweep, a front and the
    probe table."""
    study = SMALL["fake_study"]()
    rng = np.random.default_rng(11)
    base = {
        cell["seed"]: np.array(list(cell["final"].values())) for cell in study["arms"][0]["cells"]
    }
    for row in MORE:
        row = (*row[:4], tuple(0.0 if one is None else one for one in row[4]), *row[5:])
        study["arms"].append(SMALL["_arm"](row, base, rng))
    study["effects"] = [
        _judged(arm, study["arms"][0], metric)
        for arm in study["arms"][1:]
        for metric in SMALL["METRICS"]
    ]
    for row in [row for row in study["effects"] if row["metric"] == "attribute_accuracy"]:
        cost = (
            next(arm for arm in study["arms"] if arm["name"] == row["arm"])["cost"]["time_ratio"]
            or 1.0
        )
        study["effects"].append(_moved(row, -0.12 * (cost - 1.0), "time"))
    blurs = (0.08, 0.45, 0.05, 0.1, 0.04, 0.08, 0.2, 0.08, 0.06, 0.12)
    study["grids"]["arms"] = [
        {
            "arm": arm["name"],
            "seed": seed,
            "images": [SMALL["picture"](k, blur, seed) for k in range(len(SMALL["PROMPTS"]))],
        }
        for seed in (0, 1)
        for arm, blur in zip(study["arms"], blurs, strict=True)
    ]
    study["arms"][5]["labels"] = [
        "is trained on captions of one kind and judged by prompts of another"
    ]
    name = "attribute_accuracy"
    study.update(
        title=(
            "Which training decisions matter for following captions? (an example with made-up"
            " numbers)"
        ),
        interactions=[
            {
                "a": "muon",
                "b": "repa",
                "metric": name,
                "n": 6,
                "mean": -0.021,
                "low": -0.034,
                "high": -0.008,
                "p_adjusted": 0.031,
                "verdict": "worse together",
            },
            {
                "a": "muon",
                "b": "ema",
                "metric": name,
                "n": 6,
                "mean": 0.002,
                "low": -0.011,
                "high": 0.015,
                "p_adjusted": 0.7,
                "verdict": "adds up",
            },
        ],
        time_to_target=[
            {
                "arm": arm,
                "metric": name,
                "target": 0.78,
                "unit": unit,
                "n": 6,
                "reached": reached,
                "ratio": ratio,
                "low": low,
                "high": high,
            }
            for arm, reached, ratio, low, high in (
                ("muon", 6, 0.71, 0.64, 0.79),
                ("repa", 6, 0.66, 0.6, 0.73),
                ("short_captions", 0, None, None, None),
            )
            for unit in ("images", "time")
        ],
        sweeps=[
            {
                "arm": arm,
                "metric": "validation_loss",
                "images": 60_000,
                "chosen": best,
                "note": "the best lies at the edge of the sweep" if best == 3.0 else "",
                "tries": [
                    {
                        "rate": rate,
                        "seed": seed,
                        "value": 0.44 + 0.02 * abs(np.log(rate / best)) + 0.001 * seed,
                    }
                    for rate in (0.3, 1.0, 3.0)
                    for seed in (0, 1)
                ],
            }
            for arm, best in (("baseline", 1.0), ("muon", 3.0), ("bf16_stored", 1.0))
        ],
        pareto=[
            {
                "metric": name,
                "cost": "time_ratio",
                "points": [
                    {"arm": arm, "cost": cost, "mean": mean, "front": True}
                    for arm, cost, mean in (
                        ("tread", 0.81, 0.72),
                        ("x_prediction", 1.0, 0.8),
                        ("repa", 1.17, 0.82),
                    )
                ],
            }
        ],
        probes={
            "n": 512,
            "pictures": "the embedded world",
            "probes": PROBES,
            "extractors": [{"name": "eye-v1"}],
            "fair": [
                {
                    "metric": metric,
                    "better": "higher" if "acc" in metric else "lower",
                    "value": 1.0,
                    "low": 0.9,
                    "high": 1.1,
                }
                for metric in SEEN
            ],
            "cells": [
                {
                    "probe": probe,
                    "metric": metric,
                    "declared": "stays" if probe == "halved" else reaction,
                    "found": reaction,
                    "value": 2.0,
                    "low": 1.9,
                    "high": 2.1,
                }
                for metric, all_found in SEEN.items()
                for probe, reaction in zip(PROBES, all_found, strict=True)
            ],
        },
        progress={"done": 60, "total": 60, "seconds_left": None},
    )
    return study


def scaled_study() -> dict[str, Any]:
    """Three levers at three scales, each scale with a baseline of its own, and the trends over
    them."""
    study = SMALL["fake_study"]()
    arms, effects = [], []
    for place, scale in enumerate(("small", "middle", "large")):
        for arm in study["arms"]:
            arms.append(
                {
                    **arm,
                    "name": f"{arm['name']} [{scale}]",
                    "against": f"baseline [{scale}]",
                    "scale": scale,
                    "label": f"{arm['label']} [{scale}]",
                }
            )
        for row in study["effects"]:
            shift = (1 - 0.3 * place) if row["arm"] == "muon" else 1.0
            effects.append(
                {
                    **row,
                    "arm": f"{row['arm']} [{scale}]",
                    **{end: row[end] * shift for end in ("mean", "low", "high")},
                }
            )
    study.update(
        arms=arms,
        effects=effects,
        grids=None,
        scales=[
            {
                "name": scale,
                "at": 40.0 + 2 * place,
                "settings": [f"model.width={64 << place}"],
                "parameters": 400_000 << (2 * place),
                "tokens": 64,
                "flops": 2.0 ** (40 + 2 * place),
            }
            for place, scale in enumerate(("small", "middle", "large"))
        ],
        trends=[
            {
                "arm": arm,
                "metric": "attribute_accuracy",
                "slope": slope,
                "low": slope - 0.002,
                "high": slope + 0.002,
                "n": 6,
                "verdict": verdict,
            }
            for arm, slope, verdict in (
                ("muon", -0.004, "fades"),
                ("short_captions", 0.0001, "holds"),
                ("bf16_stored", 0.0, "holds"),
            )
        ],
    )
    return study


def _judged(
    arm: dict[str, Any], baseline: dict[str, Any], metric: dict[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = SMALL["_effect"](arm, baseline, metric)
    if metric["name"] == "attribute_accuracy" and row["low"] > -0.02 and row["high"] < 0.02:
        row["verdict"] = "tie"
    claimed = arm["claims"] and metric["name"] == "frechet"
    if not claimed:
        return {**row, "claim_verdict": None}
    said = "better" if arm["claims"][0]["change"] < 0 else "worse"
    verdict = {said: "replicated", "inconclusive": "underpowered", "tie": "out of scope"}.get(
        row["verdict"], "contradicted"
    )
    arm["claims"][0].update(seen="frechet", verdict=verdict)
    return {**row, "claim_verdict": verdict}


def _moved(row: dict[str, Any], by: float, unit: str) -> dict[str, Any]:
    low, high = row["low"] + by, row["high"] + by
    verdict = "better" if low > 0 else "worse" if high < 0 else "inconclusive"
    return {
        **row,
        "unit": unit,
        "mean": row["mean"] + by,
        "low": low,
        "high": high,
        "claim_verdict": None,
        "verdict": "tie" if low > -0.02 and high < 0.02 else verdict,
    }
