"""Made-up kept studies for the evidence page: the published table with every kind of verdict, and
the studies beside it."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.judge.schema import StudyResult

SMALL = runpy.run_path(str(Path(__file__).parents[1] / "fake_study.py"))
PRIMARY = "attribute_accuracy"


class Row(NamedTuple):
    """An arm: its change on the primary metric with half the interval, what was made of it, and
    what it costs."""

    name: str
    change: float | None
    half: float = 0.01
    verdict: str = ""
    time: float | None = 1.0
    flops: float | None = 1.0
    claims: tuple[tuple[Any, ...], ...] = ()  # published metric, change, verdict, why
    against: str = ""
    labels: tuple[str, ...] = ()
    label: str = ""
    compound: bool = False
    pairs: int = 8


TABLE = (
    Row(
        "muon",
        0.124,
        0.012,
        time=1.29,
        flops=1.03,
        claims=(("fid", -2.65, "replicated", "the direction is as claimed"),),
    ),
    Row(
        "aligned_codec",
        0.061,
        0.015,
        claims=(("fid", -6.12, "not comparable", "the published arm also had REPA on"),),
    ),
    Row(
        "wide_codec",
        0.035,
        0.012,
        time=1.02,
        claims=(("fid", -6.13, "replicated", ""), ("cmmd", -0.32, "underpowered", "")),
    ),
    Row("repa", 0.041, 0.013, time=1.17, flops=1.06, claims=(("fid", -3.56, "replicated", ""),)),
    Row("repa(until=0.5)", 0.033, 0.014, time=1.08, flops=1.03, label="REPA(until=0.5)"),
    Row("ema", 0.004, 0.009, "tie"),
    Row(
        "x_prediction",
        -0.013,
        0.022,
        claims=(("fid", -1.40, "opposite here", "the other direction, at 32 px"),),
        pairs=16,
    ),
    Row(
        "bf16_storage",
        -0.021,
        0.028,
        "inconclusive",
        time=0.98,
        claims=(("fid", 3.67, "underpowered", ""),),
        pairs=16,
    ),
    Row("bf16_op(op=norm)", 0.001, 0.007, "tie", time=0.99, label="BF16 op(op=norm)"),
    Row(
        "tread",
        -0.055,
        0.018,
        time=0.78,
        flops=0.8,
        claims=(("fid", 3.41, "out of scope", "at another scale"),),
        label="TREAD",
    ),
    Row(
        "contrastive_flow",
        None,
        verdict="failed",
        time=1.02,
        claims=(("fid", 1.83, "not comparable", "every seed failed"),),
    ),
    Row("edm", -0.09, 0.02, compound=True, label="EDM"),
    Row(
        "short_captions",
        -0.69,
        0.02,
        time=0.97,
        claims=(("fid", 18.64, "replicated", ""),),
        labels=("is judged by long prompts",),
    ),
)


def study(rows: tuple[Row, ...] = TABLE, **changes: Any) -> dict[str, Any]:
    """A finished study of these arms; `changes` of the plan."""
    base = SMALL["fake_study"]()
    seeds = list(range(max(row.pairs for row in rows)))
    arms = [_arm(Row("baseline", 0.0, label="the baseline"), base, seeds, "spark")]
    arms += [_arm(row, base, seeds, f"spark + {row.name.partition(' on ')[0]}") for row in rows]
    names = [arm["name"] for arm in arms]
    base["plan"].update(
        {"hash": "c719a737c24afd48", "seeds": seeds, "data": "the embedded world, 32 px"} | changes
    )
    base["made"]["command"] = (
        "fulcrum study run examples/replication.toml --out /home/someone/runs --threads 1"
    )
    base["metrics"][0] = base["metrics"][0] | {"floors": {"noise": 0.1}, "ceiling": 0.99}
    grids = base["grids"]
    grids |= {"prompts": grids["prompts"][:2], "reference": None}
    grids["arms"] = [
        {
            "arm": name,
            "seed": 0,
            "images": [
                SMALL["picture"](k, 0.05 + 0.4 * (name == "short_captions"), 0) for k in range(2)
            ],
        }
        for name in names
        if name != "contrastive_flow"
    ]
    base |= {
        "arms": arms,
        "effects": [effect for row in rows for effect in _effects(row)],
        "progress": {
            "done": 8 * len(arms),
            "total": 8 * len(arms),
            "failed": 8,
            "seconds_left": None,
        },
        "detectable": {},
    }
    return base


def result(rows: tuple[Row, ...] = TABLE, **changes: Any) -> StudyResult:
    return StudyResult.model_validate(study(rows, **changes))


def _arm(row: Row, base: dict[str, Any], seeds: list[int], phrase: str) -> dict[str, Any]:
    words = row.name.replace("_", " ")
    failed = row.verdict == "failed"
    return {
        "name": row.name,
        "phrase": phrase,
        "says": f"about {words}",
        "label": row.label or words[:1].upper() + words[1:],
        "compound": row.compound,
        "against": row.against,
        "labels": list(row.labels),
        "cost": {"time_ratio": row.time, "flops_ratio": row.flops},
        "claims": [_claim(*claim) for claim in row.claims],
        "cells": [
            {
                "seed": seed,
                "key": f"{row.name}-{seed}",
                "state": "failed" if failed else "done",
                "images": 19200,
                "final": (
                    {} if failed else {PRIMARY: 0.76 + (row.change or 0.0) + 0.01 * (seed % 3 - 1)}
                ),
                "failure": "the loss was not finite" if failed else "",
                "machine": "AMD EPYC 7763, AVX2, torch 2.13.0",
            }
            for seed in seeds[: row.pairs]
        ],
    }


def _claim(metric: str, change: float, verdict: str, why: str) -> dict[str, Any]:
    seen = "" if verdict == "not comparable" else "frechet"
    scope = "256 px latents, 100k steps"
    return {
        "metric": metric,
        "change": change,
        "scope": scope,
        "source": "PRX Part 2",
        "note": "",
        "verdict": verdict,
        "why": why,
        "seen": seen,
    }


def _effects(row: Row) -> list[dict[str, Any]]:
    word = row.verdict or ("better" if (row.change or 0) > 0 else "worse")
    if row.change is not None and not row.verdict and abs(row.change) < row.half:
        word = "inconclusive"
    one = {
        "arm": row.name,
        "metric": PRIMARY,
        "unit": "images",
        "n": row.pairs,
        "mean": row.change,
        "low": None,
        "high": None,
        "correlation": 0.4,
        "p_adjusted": 0.008,
        "verdict": word,
        "claim_verdict": None,
        "planned": row.pairs,
        "margin": 0.02,
    }
    if row.change is None:
        return [one | {"n": 0, "failed": row.pairs, "correlation": None, "p_adjusted": None}]
    one |= {"low": row.change - row.half, "high": row.change + row.half}
    other = one | {
        "metric": "frechet",
        "mean": -30 * row.change,
        "low": -30 * row.change - 1,
        "high": -30 * row.change + 1,
    }
    return [one, other | {"verdict": "exploratory", "exploratory": True}]
