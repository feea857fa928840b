"""How long a study of many finished cells takes to lay out, read, judge and show, in seconds.

    python bench/analysis.py [--arms 100] [--seeds 100] [--profile]

Writes files as real cells leave them (but for weights and pictures) into a new folder, and removes
it. The target: ten thousand cells in under ten seconds.
"""

import argparse
import cProfile
import json
import os
import pstats
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fulcrum.files.sealed import seal
from fulcrum.judge.metrics import SHOWN
from fulcrum.judge.page import write
from fulcrum.judge.schema import TimedCost
from fulcrum.levers.catalog import CATALOG
from fulcrum.studies.cell import Layout, lay_out, measuring
from fulcrum.studies.plan import Plan
from fulcrum.studies.result import StudyState, assemble_result, collect

SMALL = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "data.source.count=64",
    "sample.steps=2",
)
PIXEL = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5Erk"
    "Jggg=="
)
Found = TypeVar("Found")


def study(arms: int, seeds: int) -> Plan:
    """A plan of `arms` arms, the baseline among them."""
    return Plan(
        title="Many",
        baseline="spark",
        arms=tuple(f"muon(lr_ratio={0.01 * k:.2f})" for k in range(1, arms)),
        seeds=tuple(range(seeds)),
        images=48,
        settings=SMALL,
        samples=64,
    )


def fill(out: Path, layout: Layout, how: str) -> None:
    """Finished cells: result, record, curve, measured values and pictures; all draws are keyed."""
    rng = np.random.default_rng(0)
    record = "".join(
        json.dumps({"images": 80 * k, "loss": 1.0 / k, "seconds": k}) + "\n" for k in range(1, 41)
    )
    for cell in layout.cells:
        folder = out / cell.key
        folder.mkdir(parents=True)
        level = 1.0 + 0.1 * rng.standard_normal()
        result = {"key": cell.key, "weights_sha256": cell.key, "images": 48, "seconds": 1.0}
        curve = [
            {"images": 8 * k, "seconds": k, "validation_loss": level / k, "bins": []}
            for k in range(1, 7)
        ]
        metrics = {
            name: {
                "value": level + 0.01 * rng.standard_normal(),
                "low": 0.0,
                "high": 9.0,
                "card": {
                    "metric": name,
                    "better": "higher",
                    "estimator": "as usual",
                    "interval": "as usual",
                    "n": 512,
                    "prompts": "abc",
                },
            }
            for name in SHOWN
        }
        (folder / "record.jsonl").write_text(record)
        (folder / "curve.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))
        (folder / "result.json").write_text(json.dumps(result))
        measured = {
            "arm": cell.arm,
            "seed": cell.seed,
            "key": cell.key,
            "result": result,
            "metrics": metrics,
            "seconds": {"training": 1.0, "evaluation": 1.0},
        }
        shown = {"prompts": ["a"], "pictures": [PIXEL]}
        for name, value in ((f"pictures-{how}.json", shown), (f"measured-{how}.json", measured)):
            (folder / name).write_text(
                json.dumps({**value, "check": seal(value)}, indent=1, sort_keys=True)
            )


def timed(name: str, act: Callable[[], Found], spent: dict[str, float]) -> Found:
    before, begun = os.times(), time.perf_counter()
    result = act()
    after, wall = os.times(), time.perf_counter() - begun
    spent[name] = after.user + after.system - before.user - before.system
    print(
        f"{name:>9}  {spent[name]:6.2f} s of the processor  {wall:6.2f} s by the clock", flush=True
    )
    return result


def analyse(asked: Plan, out: Path) -> dict[str, float]:
    """Phase -> seconds of the processor. Reading is done alone here, and not again by judging."""
    spent: dict[str, float] = {}
    layout = timed("layout", lambda: lay_out(asked, CATALOG, {}, out), spent)
    kept: dict[str, Any] = {}
    timed("reading", lambda: collect(layout.cells, out, measuring(asked).how, kept), spent)
    costs = {
        arm.name: TimedCost(
            flops_ratio=1.0, time_ratio=1.02 if arm.changes else 1.0, parameters_ratio=1.0
        )
        for arm in layout.arms
    }
    result = timed(
        "analysis",
        lambda: assemble_result(asked, layout, out, "bench", StudyState(costs=costs), kept),
        spent,
    )
    timed("page", lambda: write(result, out / "study-bench"), spent)
    return spent


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--arms", type=int, default=100)
    reader.add_argument("--seeds", type=int, default=100)
    reader.add_argument("--profile", action="store_true", help="say where the time went; slower")
    given = reader.parse_args()
    asked, out = study(given.arms, given.seeds), Path(tempfile.mkdtemp())
    try:
        fill(out, lay_out(asked, CATALOG, {}, out), measuring(asked).how)
        profile = cProfile.Profile()
        spent = profile.runcall(analyse, asked, out) if given.profile else analyse(asked, out)
        print(
            f"    total  {sum(spent.values()):6.2f} s of the processor for"
            f" {given.arms * given.seeds:,} cells"
        )
        if given.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    finally:
        shutil.rmtree(out)


if __name__ == "__main__":
    main()
