"""A made-up table of measured rows: what `python -m tools.evidence` will have written when studies
are finished."""

import json

from fulcrum.spec.run import SCIENCE

# lever's arm, change, half of its interval, verdict, time of a step
HERE = (
    ("muon", 0.12, 0.01, "better", 1.29),
    ("aligned_codec", 0.06, 0.015, "better", 1.0),
    ("repa", 0.04, 0.013, "better", 1.17),
    ("repa(until=0.5)", 0.035, 0.014, "better", 1.08),
    ("wide_codec", -0.03, 0.012, "worse", 1.5),
    ("ema", 0.004, 0.009, "tie", 1.0),
    ("x_prediction", -0.013, 0.022, "inconclusive", 1.0),
    ("bf16_storage", -0.02, 0.012, "worse", 0.98),
    ("bf16_optimizer_state", -0.015, 0.01, "worse", 1.0),
    ("tread", -0.055, 0.018, "worse", 0.78),
    ("short_captions", -0.69, 0.02, "worse", 0.97),
)
LARGER = (
    ("muon", 0.09, 0.02, "better", 1.2),
    ("repa", 0.07, 0.02, "better", 1.15),
    ("uniform_time", -0.04, 0.02, "worse", 1.0),
)


def row(arm, change, half, verdict, time=None, **facts):
    return {
        "lever": arm.partition("(")[0],
        "recipe": "spark",
        "science": SCIENCE,
        "metric": "attribute_f1",
        "change": change,
        "low": change - half,
        "high": change + half,
        "pairs": 8,
        "verdict": verdict,
        "date": "2026-01-01",
        "note": "",
        "arm": arm,
        "base": "spark",
        "settings": [],
        "images": 19200,
        "plan": "c719a737c24afd48",
        "time": time,
        "flops": 1.0,
        "alike": True,
    } | facts


def rows():
    larger = [row(*one, recipe="pocket", base="pocket", plan="d4e8dbe06e98479a") for one in LARGER]
    return [*(row(*one) for one in HERE), *larger]


def table(folder, some=None):
    """A file with these rows."""
    path = folder / "measured.json"
    path.write_text(json.dumps(rows() if some is None else some))
    return path
