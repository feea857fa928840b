"""A cell: one arm under one seed, trained and measured. It runs in a worker process and never twice.

A study also trains cells that only prepare others: the trunk of a seed, and the tries of a learning rate.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from fulcrum.dist.start import ALONE, Ranks
from fulcrum.files.paths import read_regular
from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.files.shipped import asset_hash
from fulcrum.measure.card import MEASURE_VERSION
from fulcrum.spec.edit import digest
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.run import RunSpec
from fulcrum.spec.system import System
from fulcrum.study.run.clock import Clock
from fulcrum.study.run.curve_lines import hashes, require_unchanged
from fulcrum.study.run.measuring.evaluation_points import HINT, Paused, Points, at, pause, point_path
from fulcrum.study.run.measuring.plan_judges import judge_hash
from fulcrum.study.run.measuring.preview import previews
from fulcrum.study.run.measuring.run_evaluation import REFERENCE, SEED, VALIDATION, Held, measure, prompts
from fulcrum.train.build import Built
from fulcrum.train.drawing.painter import Painter
from fulcrum.train.drawing.picture_files import data_uri
from fulcrum.train.drawing.sampling_weights import drawn_weights
from fulcrum.train.loop import Look, Observer
from fulcrum.train.run_folder import RunFolder
from fulcrum.train.session import Order, perform, trained_weights
from fulcrum.train.state import State
from fulcrum.train.trackers import RunLabels, Trackers

SHOWN = 12  # pictures of each cell in the report
FORM = 2  # of the files; raise it when they are read in another way
PENDING = "pending-"  # a cell not known yet: its trunk or rate comes first

Kind = Literal["arm", "trunk", "rate"]


class Cell(NamedTuple):
    arm: str
    seed: int
    run: RunSpec
    phrase: str
    key: str
    user_files: dict[str, str] = {}
    kind: Kind = "arm"
    rate: float = 1.0  # of a try: multiple of the recipe's

    @property
    def known(self) -> bool:
        return not self.key.startswith(PENDING)


class Measuring(NamedTuple):
    """How cells are measured."""

    samples: int
    evaluations: tuple[float, ...] = (1.0,)  # shares of the budget
    judges: tuple[str, ...] = ()

    @property
    def how(self) -> str:
        """A short name for everything that decides the numbers: files are named by it."""
        return digest(
            [
                self.samples,
                REFERENCE,
                VALIDATION,
                SHOWN,
                SEED,
                asset_hash("judge"),
                asset_hash("features"),
                MEASURE_VERSION,
                FORM,
                *([judge_hash(self.judges)] if self.judges else []),
            ]
        )[:12]


class Tracked(NamedTuple):
    """Where a study's cells are shown as they train, beside its own page."""

    names: tuple[str, ...] = ()  # of trackers
    group: str = ""  # the study

    def of(self, cell: Cell) -> Trackers:
        arm = f"{cell.arm}, {cell.rate:g} x rate" if cell.kind == "rate" else cell.arm
        return Trackers(self.names, RunLabels(self.group, arm, cell.seed))


NOWHERE = Tracked()


def finished(out: Path, cell: Cell, how: str) -> dict[str, Any] | None:
    """What was measured of a finished cell, or None; a file that was changed by hand or belongs elsewhere is refused."""
    if not cell.known:
        return None
    if cell.kind == "trunk":
        return RunFolder(out / cell.key).result()
    path = out.joinpath(cell.key, f"measured-{how}.json" if cell.kind == "arm" else f"rate-{how}.json")
    if not os.path.exists(path):
        return None
    measured = read_sealed(path, HINT)
    if measured["key"] != cell.key:
        raise BadInput(f"{path} belongs to the cell {measured['key']}", "it was copied there by hand: " + HINT)
    if cell.kind == "rate":
        return measured
    try:
        result = read_regular(out.joinpath(cell.key, "result.json")).decode(errors="replace")
    except OSError:
        return None
    if not os.path.exists(out.joinpath(cell.key, f"pictures-{how}.json")):
        return None
    if measured["result"]["weights_sha256"] not in result:
        RunFolder(out / cell.key).result()  # one that cannot be read is named as such
        raise BadInput(f"{path} was measured with other weights than {cell.key} ended with", HINT)
    return measured


def reached(out: Path, cell: Cell, how: str, until: float | None) -> bool:
    """Is a cell finished, or as far as was asked?"""
    if finished(out, cell, how) is not None:
        return True
    return until is not None and cell.known and point_path(out / cell.key, how, at(cell.run, until)).exists()


def pictures(out: Path, key: str, how: str) -> dict[str, Any]:
    """{prompts, pictures} of a finished cell."""
    return read_sealed(out / key / f"pictures-{how}.json", HINT)


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
    """Train the cell (or take it as it stands), draw, measure, write down. `until` a share of the budget: go no further.

    Many processes train it together; the first of them measures.
    """
    with tracked.of(cell) as trackers:
        _run(cell, out, system, measuring, say, until, trackers, ranks)


class FinalWeights:
    """An observer: what a run draws with at its end, which need not be read from its checkpoint then."""

    weights: dict[str, torch.Tensor] | None = None

    def __call__(self, look: Look) -> None:
        if look.state.images >= look.built.run.budget.images:
            self.weights = drawn_weights(look.built.step, look.built.average)

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
    ranks: Ranks,
) -> None:
    torch.set_num_threads(system.threads)
    begun, clock, final = time.perf_counter(), Clock(), FinalWeights()
    order = Order(
        cell.run, cell.seed, cell.phrase, out, system, cell.user_files, quiet=True, label=f"{cell.arm}/{cell.seed}"
    )
    if cell.kind == "rate":
        return _try_rate(cell, order, measuring.how, say, trackers, ranks)

    def observers(built: Built, folder: RunFolder, state: State) -> list[Observer]:
        watching = [clock.steps(state), *trackers.watch(built, folder, state)]
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
        watching += [*(clock.timed("drawing", one) for one in drawn), final]
        return [*watching, pause(cell.run, folder, until)] if until else watching

    try:
        result = perform(order, say, observers, ranks)
    except Paused:
        return
    if cell.kind == "arm" and ranks.first:
        with clock.counting("drawing"):
            metrics = _measure(cell, out, measuring, result, begun, system.bare(), final)
        trackers.tell(RunFolder(out / cell.key), quality(metrics), cell.run.budget.images)
    if ranks.first:
        clock.write(out / cell.key)


def quality(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Measured values under the names that trackers show."""
    return {f"quality/{name}": float(value["value"]) for name, value in metrics.items()}


def _measure(
    cell: Cell, out: Path, measuring: Measuring, result: dict[str, Any], begun: float, bare: System, final: FinalWeights
) -> Mapping[str, Any]:
    """Draw and measure a trained cell, write that down, and return the metrics."""
    trained = time.perf_counter()
    folder, how = RunFolder(out / cell.key), measuring.how
    path, drawn_path = folder.path / f"measured-{how}.json", folder.path / f"pictures-{how}.json"
    before = read_sealed(path, HINT) if path.exists() else {}
    before = before if before.get("result") == result else {}  # else it was trained again, with other times
    require_unchanged(folder.path, before)
    if before and drawn_path.exists():
        return dict(before["metrics"])
    run, weights = cell.run, final.of(folder)
    codec, text = run.encode.codec.build(None), run.encode.text.build(None)
    painter = Painter(run, weights, codec, text, bare)
    measured = measure(run, painter, out / "cache", measuring.samples, judges=measuring.judges)
    measured["validation_loss"] = Held(run, codec, text, out / "cache", bare).loss(weights).measured()
    metrics = {name: value.model_dump() for name, value in measured.items()}
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
            "seconds": {"training": round(trained - begun, 2), "evaluation": round(time.perf_counter() - trained, 2)},
        },
    )
    return metrics


def _try_rate(cell: Cell, order: Order, how: str, say: Callable[[str], None], trackers: Trackers, ranks: Ranks) -> None:
    """The held-out loss after a short training. A rate that is too high has no loss: that is a finding, not a failure."""
    folder, final = RunFolder(order.out / cell.key), FinalWeights()
    begun, loss = time.perf_counter(), math.inf
    try:
        perform(order, say, lambda *built: [*trackers.watch(*built), final], ranks)
        if not ranks.first:
            return
        weights = final.of(folder)
        codec, text = cell.run.encode.codec.build(None), cell.run.encode.text.build(None)
        loss = Held(cell.run, codec, text, order.out / "cache", order.system.bare()).loss(weights).loss
    except RunFailed as error:
        if "not finite" not in error.message:
            raise
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
