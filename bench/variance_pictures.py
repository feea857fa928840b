"""The pictures of a finished study for variance.py: drawn again, judged, and kept in
RUNS/variance."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.files.sealed import read_json
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.evaluation import SEED, Held, prompts
from fulcrum.measure.features.extractor import attributes
from fulcrum.measure.metrics.means import score
from fulcrum.studies.cell import Cell, lay_out
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import from_plain
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.start_weights import trained_weights

Floats = NDArray[np.float64]


class Counts(NamedTuple):
    """Of each picture: attributes right, attributes asked for, attributes of the objects seen.
    (N,) each"""

    right: Floats
    asked: Floats
    seen: Floats


# What twice the right ones are divided by, of each picture.
METRICS: dict[str, Callable[[Counts], Floats]] = {
    "attribute F-score": lambda counts: counts.asked + counts.seen,
    "attribute recall": lambda counts: 2.0 * counts.asked,
}


class Study:
    """A finished study: its cells, and what they draw."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.plan: Plan = from_plain(read_json(next(runs.glob("study-*/plan.json")), ""))
        self.layout = lay_out(self.plan, CATALOG, {}, runs)
        self.cells = {(cell.arm, cell.seed): cell for cell in self.layout.cells}
        self.arms = [arm.name for arm in self.layout.arms if not arm.is_baseline]

    def counts(self, arm: str, seed: int, kind: str, pictures: int) -> Counts:
        kept = np.load(self._drawn(self.cells[arm, seed], kind, pictures))
        return Counts(kept["right"], kept["asked"], kept["seen"])

    def values(self, arm: str, metric: str, kind: str, pictures: int) -> Floats:
        """Numbers of every picture whose means are the metric of each seed: a ratio of sums,
        linearised.  (S, N)"""
        rows = []
        for seed in self.plan.seeds:
            counts = self.counts(arm, seed, kind, pictures)
            under = METRICS[metric](counts)
            whole = 2.0 * counts.right.sum() / under.sum()
            rows.append(whole + (2.0 * counts.right - whole * under) / under.mean())
        return np.stack(rows)

    def losses(self, arm: str) -> Floats:
        """Validation loss of each seed.  (S,)"""
        kept = []
        for seed in self.plan.seeds:
            cell = self.cells[arm, seed]
            path = self.runs / "variance" / f"{cell.key}-loss.npy"
            if not path.exists():
                codec, text = cell.run.encode.codec.build(None), cell.run.encode.text.build(None)
                held = Held(cell.run, codec, text, self.runs / "cache")
                np.save(path, held.loss(trained_weights(RunFolder(self.runs / cell.key))).loss)
            kept.append(float(np.load(path)))
        return np.array(kept)

    def seconds(self, pictures: int) -> tuple[float, float]:
        """Of a cell's training, and of one picture drawn and judged: of the quickest, as a busy
        machine only adds."""
        drawn = [
            float(np.load(self._drawn(cell, "shared", pictures))["seconds"])
            for cell in self.cells.values()
        ]
        results = [RunFolder(self.runs / cell.key).result() or {} for cell in self.cells.values()]
        return min(one["seconds"] for one in results), min(drawn) / pictures

    def _drawn(self, cell: Cell, kind: str, pictures: int) -> Path:
        path = self.runs / "variance" / f"{cell.key}-{kind}-{pictures}.npz"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            begun = time.perf_counter()
            counts = _draw(cell, self.runs / cell.key, kind, pictures)
            seconds = time.perf_counter() - begun
            np.savez(path, seconds=seconds, **counts._asdict())
            print(
                f"  drew {pictures:,} pictures of {cell.arm}, seed {cell.seed}, {kind}:"
                f" {seconds:.1f} s",
                flush=True,
            )
        return path


def _draw(cell: Cell, folder: Path, kind: str, pictures: int) -> Counts:
    run = cell.run
    codec, text = run.encode.codec.build(None), run.encode.text.build(None)
    painter = Painter(run, trained_weights(RunFolder(folder)), codec, text)
    if kind == "mirrored":  # -eps in the place of eps
        painter.run = run.model_copy(
            update={"flow": run.flow.model_copy(update={"noise_scale": -run.flow.noise_scale})}
        )
    wanted, first = prompts(run, pictures), 0
    judge: Any = attributes().network
    parts = []
    for images in painter.pictures(wanted.texts, SEED + (kind == "other noise")):
        answers = score(
            judge.judge(images), wanted.scenes.take(np.arange(first, first + len(images))).grid()
        )
        (right, asked), (_, seen) = answers["attribute_accuracy"], answers["attribute_precision"]
        parts.append(np.stack([right, asked, seen]))
        first += len(images)
    return Counts(*np.concatenate(parts, axis=1).astype(np.float64))
