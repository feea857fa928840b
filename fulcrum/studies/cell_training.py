"""A cell trained and measured, in a worker process: what it found, or how it failed, is written
into its folder."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.measure.evaluation import SEED, Held, prompts
from fulcrum.measure.preview import hashes, previews, require_unchanged
from fulcrum.spec.errors import TrainingFailed
from fulcrum.spec.run import System
from fulcrum.studies.arm_cost import Clock
from fulcrum.studies.cell import (
    HINT,
    NOWHERE,
    SHOWN,
    Cell,
    Measuring,
    Paused,
    Points,
    Tracked,
    pause,
    quality_of,
    write_failure,
)
from fulcrum.training.average import shared_weights
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.collectives import of_first
from fulcrum.training.dist.machine import MACHINE, machine_facts
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.kept_weights import keeping
from fulcrum.training.loop import Observer, StepReport
from fulcrum.training.pictures import data_uri
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights
from fulcrum.training.trackers import Trackers, Watchers


def run_cell(
    cell: Cell,
    out: Path,
    system: System,
    measuring: Measuring,
    say: Callable[[str], None],
    until: float | None = None,
    tracked: Tracked = NOWHERE,
    ranks: Ranks = ALONE,
) -> None:
    """Train the cell (or take it as it stands), draw, measure, write down. `until` a share of the
    budget: go no further.

    Many processes train it together, and draw together; the first of them judges. A training that
    comes to nothing is written down as what the cell found, and raised.
    """
    final = FinalWeights()
    with tracked.of(cell) as trackers:
        try:
            _run(
                cell,
                out,
                system,
                measuring,
                say,
                until,
                trackers,
                keeping(tracked.kept),
                ranks,
                final,
            )
        except TrainingFailed as error:
            if cell.kind == "arm":
                write_failure(out, cell, measuring.how, error, final.images, system)
            raise


class FinalWeights:
    """An observer: how far a run is, and what it draws with at its end, which need not be read from
    its checkpoint then."""

    weights: dict[str, torch.Tensor] | None = None
    images = 0

    def __call__(self, look: StepReport) -> None:
        self.images = look.state.images
        if look.state.images >= look.built.run.budget.images:
            self.weights = shared_weights(look.built.step, look.built.average, look.built.ranks)

    def of(self, folder: RunFolder) -> dict[str, torch.Tensor]:
        """Of a run that was trained before, those of its checkpoint."""
        return trained_weights(folder) if self.weights is None else self.weights


def _run(
    cell: Cell,
    out: Path,
    system: System,
    measuring: Measuring,
    say: Callable[[str], None],
    until: float | None,
    trackers: Trackers,
    keep: Watchers,
    ranks: Ranks,
    final: FinalWeights,
) -> None:
    torch.set_num_threads(system.threads)
    begun, clock = time.perf_counter(), Clock()
    order = Order(
        cell.run,
        cell.seed,
        cell.phrase,
        out,
        system,
        cell.user_files,
        quiet=True,
        label=f"{cell.arm}/{cell.seed}",
    )
    if cell.kind == "rate":
        return _try_rate(cell, order, measuring.how, say, trackers, ranks)

    def observers(built: Built, folder: RunFolder, state: State) -> list[Observer]:
        final.images = state.images
        watching: list[Observer] = [
            final,
            clock.steps(state),
            *trackers.watch(built, folder, state),
        ]
        watching += [clock.timed("drawing", one) for one in keep(built, folder, state)]
        if cell.kind == "trunk":
            return watching
        points = Points(
            built,
            folder,
            measuring.samples,
            measuring.how,
            measuring.evaluations,
            measuring.judges,
            lambda metrics, images: trackers.tell(folder, quality(metrics), images),
        )
        with clock.counting("drawing"):
            drawn: list[Observer] = [*previews(built, folder, state), points]
        watching += [clock.timed("drawing", one) for one in drawn]
        return [*watching, pause(cell.run, until)] if until else watching

    try:
        result = perform(order, say, observers, ranks)
    except Paused:
        return
    final.images = result["images"]
    if cell.kind == "arm":
        with clock.counting("drawing"):
            metrics = _measure(cell, out, measuring, result, begun, system, final, ranks)
        if ranks.first:
            trackers.tell(RunFolder(out / cell.key), quality(metrics), cell.run.budget.images)
    if ranks.first:
        clock.write(out / cell.key)


def quality(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Measured values under the names that trackers show."""
    return {f"quality/{name}": float(value["value"]) for name, value in metrics.items()}


def _measure(
    cell: Cell,
    out: Path,
    measuring: Measuring,
    result: dict[str, Any],
    begun: float,
    system: System,
    final: FinalWeights,
    ranks: Ranks,
) -> Mapping[str, Any]:
    """Draw and measure a trained cell, write that down, and return the metrics, which are the first
    process's."""
    trained = time.perf_counter()
    folder, how = RunFolder(out / cell.key), measuring.how
    path, drawn_path = folder.path / f"measured-{how}.json", folder.path / f"pictures-{how}.json"
    before = read_sealed(path, HINT) if ranks.first and path.exists() else {}
    # else it was trained again, with other times
    before = before if before.get("result") == result else {}
    if ranks.first:
        require_unchanged(folder.path, before)
    if of_first(bool(before) and drawn_path.exists(), ranks):
        return dict(before.get("metrics", {}))
    run, weights = cell.run, final.of(folder)
    parts = run.encode.codec.build(None), run.encode.text.build(None)
    asked = measuring.samples, measuring.judges, system.bare(), ranks
    metrics, painter = quality_of(run, weights, parts, out / "cache", *asked)
    if not ranks.first:
        return metrics
    shown = prompts(run, SHOWN).texts
    drawn = torch.cat(list(painter.pictures(shown, SEED, np.arange(SHOWN))))
    write_sealed(drawn_path, {"prompts": shown, "pictures": [data_uri(one) for one in drawn]})
    write_sealed(
        path,
        {
            "arm": cell.arm,
            "seed": cell.seed,
            "key": cell.key,
            "result": result,
            "lines": hashes(folder.path),
            "metrics": metrics,
            MACHINE: machine_facts(system),
            "seconds": {
                "training": round(trained - begun, 2),
                "evaluation": round(time.perf_counter() - trained, 2),
            },
        },
    )
    return metrics


def _try_rate(
    cell: Cell, order: Order, how: str, say: Callable[[str], None], trackers: Trackers, ranks: Ranks
) -> None:
    """The held-out loss after a short training. A rate that is too high has no loss: that is a
    finding, not a failure."""
    folder, final = RunFolder(order.out / cell.key), FinalWeights()
    begun, loss = time.perf_counter(), math.inf
    try:
        perform(order, say, lambda *built: [*trackers.watch(*built), final], ranks)
        weights = final.of(folder)
        codec, text = cell.run.encode.codec.build(None), cell.run.encode.text.build(None)
        loss = (
            Held(cell.run, codec, text, order.out / "cache", order.system.bare(), ranks)
            .loss(weights)
            .loss
        )
    except TrainingFailed:
        pass
    if not ranks.first:
        return
    write_sealed(
        folder.path / f"rate-{how}.json",
        {
            "arm": cell.arm,
            "seed": cell.seed,
            "key": cell.key,
            "rate": cell.rate,
            "loss": loss if math.isfinite(loss) else None,
            "images": cell.run.budget.images,
            "seconds": round(time.perf_counter() - begun, 2),
        },
    )
