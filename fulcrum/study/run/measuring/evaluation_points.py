"""Evaluation points: pictures drawn and measured while a cell trains, and a pause at one of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.judge.card import Measured
from fulcrum.measure.evaluation import Held, measure
from fulcrum.measure.features.extractor import BadImages
from fulcrum.measure.metrics.base import NoValue
from fulcrum.spec.errors import TrainingFailed
from fulcrum.spec.run import RunSpec, System
from fulcrum.training.average import shared_weights
from fulcrum.training.build import Built
from fulcrum.training.dist.collectives import of_first
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.loop import Look, Observer
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import SaveAndLeave

HINT = "remove the file and run the study again: it is measured anew from the saved weights"
POINT = {"metrics": dict}  # what its file must hold
COLLAPSED = "what it draws has collapsed: lower its learning rate, or leave the arm out"
Tell = Callable[[Mapping[str, Any], int], None]  # hears what was measured, and after how many images


class Paused(SaveAndLeave):
    """The cell stands at its point, saved, and goes on when asked."""


def at(run: RunSpec, share: float) -> int:
    """Images of a share of the budget, in whole batches."""
    batch = run.budget.batch
    return min(max(round(share * run.budget.images / batch), 1) * batch, run.budget.images)


def point_path(folder: Path, how: str, images: int) -> Path:
    return folder / f"point-{images:012d}-{how}.json"


def read_points(folder: Path, run: RunSpec, how: str, shares: Sequence[float]) -> dict[int, dict[str, Any]]:
    """Images -> metrics, of the points before the end that are there."""
    points = {}
    for images in sorted({at(run, share) for share in shares if share < 1}):
        path = point_path(folder, how, images)
        if path.exists():
            points[images] = read_sealed(path, HINT, fields=POINT)["metrics"]
    return points


def quality_of(
    run: RunSpec, weights: Mapping[str, Tensor], parts: tuple[Any, Any], cache: Path, samples: int, judges: Sequence[str],
    system: System, ranks: Ranks = ALONE,
) -> tuple[dict[str, Any], Painter]:  # fmt: skip
    """Every metric of a cell's weights, by name, and what draws with them; `parts` are codec and text encoder.

    Many processes ask together, and the first gets the metrics. Pictures that have collapsed so far that they cannot be
    measured are the training's failure, not the metric's: it fails on all processes.
    """
    painter, wrong, cause = Painter(run, weights, *parts, system), "", None
    measured: dict[str, Measured] = {}
    try:
        measured = measure(run, painter, cache, samples, judges=judges, ranks=ranks)
    except (BadImages, NoValue) as error:
        wrong, cause = str(getattr(error, "message", error)), error
    if wrong := of_first(wrong, ranks):
        raise TrainingFailed(f"its pictures cannot be measured: {wrong}", COLLAPSED) from cause
    held = Held(run, *parts, cache, system, ranks).loss(weights)
    if not math.isfinite(held.loss):
        raise TrainingFailed(f"its held-out loss is not finite: {held.loss:g}", COLLAPSED)
    measured["validation_loss"] = held.measured()
    return {name: value.model_dump() for name, value in measured.items()}, painter


class Points:
    """Measures at each share of the budget before its end; the end is measured from the saved weights."""

    def __init__(
        self,
        built: Built,
        folder: RunFolder,
        samples: int,
        how: str,
        shares: Sequence[float],
        judges: Sequence[str] = (),
        tell: Tell = lambda metrics, images: None,
    ) -> None:
        self.folder, self.samples, self.how, self.judges, self.tell = folder.path, samples, how, judges, tell
        self.due = {at(built.run, share) for share in shares if share < 1}

    def __call__(self, look: Look) -> None:
        images = look.images
        path = point_path(self.folder, self.how, images)
        if images not in self.due or images >= look.built.run.budget.images:
            return
        ranks = look.built.ranks
        there = of_first(path.exists(), ranks)  # a resumed cell passes points that it measured before
        metrics = {} if there else self._measure(look, path)
        if ranks.first:
            self.tell(read_sealed(path, HINT, fields=POINT)["metrics"] if there else metrics, images)

    def _measure(self, look: Look, path: Path) -> Mapping[str, Any]:
        run, feed, ranks = look.built.run, look.built.feed, look.built.ranks
        weights, parts = shared_weights(look.built.step, look.built.average, ranks), (feed.codec(), feed.text())
        bare = look.built.system.bare()
        metrics, _ = quality_of(run, weights, parts, feed.root, self.samples, self.judges, bare, ranks)
        feed.let_go(look.images)  # else they lay beside the next step
        if ranks.first:
            write_sealed(path, {"images": look.state.images, "metrics": metrics})
        return metrics


def pause(run: RunSpec, share: float) -> Observer:
    """An observer that saves the run and leaves at a share of its budget."""
    stop = at(run, share)

    def look_out(look: Look) -> None:
        if stop <= look.images < run.budget.images:
            raise Paused

    return look_out
