"""A cell: one arm under one seed; its evaluation points, its state on disk, and the layout of all
cells."""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from torch import Tensor

from fulcrum.files.paths import read_regular, remove, set_aside
from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.files.shipped import asset_hash
from fulcrum.judge.card import MEASURE_VERSION, Measured
from fulcrum.judge.cells import CellRecord, MetricValue
from fulcrum.judge.schema import RateSearch, Try
from fulcrum.levers.catalog import files_of
from fulcrum.measure.evaluation import REFERENCE, SEED, VALIDATION, Held, judge_hash, measure
from fulcrum.measure.features.extractor import BadImages
from fulcrum.measure.metrics.base import NoValue
from fulcrum.measure.preview import line_hashes
from fulcrum.spec.edit import digest, keys, put
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.phrase import Catalogue, Phrase, parse
from fulcrum.spec.remark import remark
from fulcrum.spec.run import RunSpec, System
from fulcrum.spec.stage import at_rate
from fulcrum.studies.arms import Arm, against, baseline_of, prove, prove_levers, trunks
from fulcrum.studies.plan import Plan, Sweep
from fulcrum.training.average import shared_weights
from fulcrum.training.build import Built
from fulcrum.training.dist.collectives import of_first
from fulcrum.training.dist.machine import MACHINE, machine_facts
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.fillers import Trunk
from fulcrum.training.loop import Observer, StepReport
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import SaveAndLeave
from fulcrum.training.trackers import RunLabels, Trackers

# --------------------------------------------------------------------------------------------------
# Evaluation points: pictures drawn and measured while a cell trains, and a pause at one of them.


HINT = "remove the file and run the study again: it is measured anew from the saved weights"
POINT = {"metrics": dict}  # what its file must hold
COLLAPSED = "what it draws has collapsed: lower its learning rate, or leave the arm out"
# hears what was measured, and after how many images
Tell = Callable[[Mapping[str, Any], int], None]


class Paused(SaveAndLeave):
    """The cell stands at its point, saved, and goes on when asked."""


def at(run: RunSpec, share: float) -> int:
    """Images of a share of the budget, in whole batches."""
    batch = run.budget.batch
    return min(max(round(share * run.budget.images / batch), 1) * batch, run.budget.images)


def point_path(folder: Path, how: str, images: int) -> Path:
    return folder / f"point-{images:012d}-{how}.json"


def read_points(
    folder: Path, run: RunSpec, how: str, shares: Sequence[float]
) -> dict[int, dict[str, Any]]:
    """Images -> metrics, of the points before the end that are there."""
    points = {}
    for images in sorted({at(run, share) for share in shares if share < 1}):
        path = point_path(folder, how, images)
        if path.exists():
            points[images] = read_sealed(path, HINT, fields=POINT)["metrics"]
    return points


def quality_of(
    run: RunSpec,
    weights: Mapping[str, Tensor],
    parts: tuple[Any, Any],
    cache: Path,
    samples: int,
    judges: Sequence[str],
    system: System,
    ranks: Ranks = ALONE,
) -> tuple[dict[str, Any], Painter]:
    """Every metric of a cell's weights, by name, and what draws with them; `parts` are codec and
    text encoder.

    Many processes ask together, and the first gets the metrics. Pictures that have collapsed so far
    that they cannot be measured are the training's failure, not the metric's: it fails on all
    processes.
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
    """Measures at each share of the budget before its end; the end is measured from the saved
    weights."""

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
        self.folder, self.samples, self.how, self.judges, self.tell = (
            folder.path,
            samples,
            how,
            judges,
            tell,
        )
        self.due = {at(built.run, share) for share in shares if share < 1}

    def __call__(self, look: StepReport) -> None:
        images = look.state.images
        path = point_path(self.folder, self.how, images)
        if images not in self.due or images >= look.built.run.budget.images:
            return
        ranks = look.built.ranks
        # a resumed cell passes points that it measured before
        there = of_first(path.exists(), ranks)
        metrics = {} if there else self._measure(look, path)
        if ranks.first:
            self.tell(
                read_sealed(path, HINT, fields=POINT)["metrics"] if there else metrics, images
            )

    def _measure(self, look: StepReport, path: Path) -> Mapping[str, Any]:
        run, feed, ranks = look.built.run, look.built.feed, look.built.ranks
        weights, parts = (
            shared_weights(look.built.step, look.built.average, ranks),
            (feed.codec(), feed.text()),
        )
        bare = look.built.system.bare()
        metrics, _ = quality_of(
            run, weights, parts, feed.root, self.samples, self.judges, bare, ranks
        )
        feed.let_go(look.state.images)  # else they lay beside the next step
        if ranks.first:
            write_sealed(path, {"images": look.state.images, "metrics": metrics})
        return metrics


def pause(run: RunSpec, share: float) -> Observer:
    """An observer that saves the run and leaves at a share of its budget."""
    stop = at(run, share)

    def look_out(look: StepReport) -> None:
        if stop <= look.state.images < run.budget.images:
            raise Paused

    return look_out


# --------------------------------------------------------------------------------------------------
# A cell: one arm under one seed, and what is known of it on the disk: not run, failed, or finished
# with its numbers.
#
# A study also trains cells that only prepare others: the trunk of a seed, and the tries of a
# learning rate.


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
                asset_hash("judge_second"),
                asset_hash("features"),
                MEASURE_VERSION,
                FORM,
                *([judge_hash(self.judges)] if self.judges else []),
            ]
        )[:12]


class Tracked(NamedTuple):
    """What looks on while a study's cells train, beside its own page."""

    names: tuple[str, ...] = ()  # of trackers
    group: str = ""  # the study
    kept: int = 0  # points of the training whose weights are kept: fulcrum gallery draws with them

    def of(self, cell: Cell) -> Trackers:
        arm = f"{cell.arm}, {cell.rate:g} x rate" if cell.kind == "rate" else cell.arm
        return Trackers(self.names, RunLabels(self.group, arm, cell.seed))


NOWHERE = Tracked()


def finished(out: Path, cell: Cell, how: str) -> dict[str, Any] | None:
    """What was measured of a finished cell, or None; a file that was changed by hand or belongs
    elsewhere is refused."""
    if not cell.known:
        return None
    if cell.kind == "trunk":
        return RunFolder(out / cell.key).result()
    path = out.joinpath(
        cell.key, f"measured-{how}.json" if cell.kind == "arm" else f"rate-{how}.json"
    )
    if not os.path.exists(path):
        return None
    fields = {"key": str, "result": dict, "metrics": dict} if cell.kind == "arm" else {"key": str}
    measured = read_sealed(path, HINT, fields=fields)
    if measured["key"] != cell.key:
        raise BadInput(
            f"{path} belongs to the cell {measured['key']}", "it was copied there by hand: " + HINT
        )
    if cell.kind == "rate":
        return measured
    try:
        result = read_regular(out.joinpath(cell.key, "result.json")).decode(errors="replace")
    except OSError:
        return None
    if not os.path.exists(out.joinpath(cell.key, f"pictures-{how}.json")):
        return None
    if str(measured["result"].get("weights_sha256")) not in result:
        RunFolder(out / cell.key).result()  # one that cannot be read is named as such
        raise BadInput(f"{path} was measured with other weights than {cell.key} ended with", HINT)
    return measured


def failed(out: Path, cell: Cell, how: str) -> dict[str, Any] | None:
    """How a cell failed by itself, which is what it found: {why, images, ...}; None of one that did
    not.

    A finished cell has not failed. A file that cannot be read is set aside: the cell is run again.
    """
    path = out.joinpath(cell.key, f"failed-{how}.json")
    if not cell.known or cell.kind != "arm" or not os.path.lexists(path):
        return None
    try:
        outcome = read_sealed(path, HINT)
    except BadInput:
        outcome = {}
    shape = {"key": str, "why": str, "images": int, MACHINE: dict}
    if outcome.get("key") != cell.key or not all(
        isinstance(outcome.get(name), kind) for name, kind in shape.items()
    ):
        set_aside(path)
        return None
    return None if finished(out, cell, how) else outcome


def cell_record(arm: str, seed: int, outcome: Mapping[str, Any]) -> CellRecord:
    """The record of a cell from what its file says: what was measured of it, or how it failed."""
    result = outcome.get("result", {})
    return CellRecord(
        arm,
        seed,
        metrics={
            name: MetricValue(value["value"], value["card"])
            for name, value in outcome.get("metrics", {}).items()
        },
        failure=None if "metrics" in outcome else str(outcome.get("why", "")),
        images=result.get("images", outcome.get("images", 0)),
        machine=outcome.get(MACHINE, {}),
        seconds=sum(outcome.get("seconds", {}).values()),
        skipped=result.get("skipped") or 0,
        rolled_back=len(result.get("rolled_back") or ()),
        lines=line_hashes(outcome),
    )


def write_failure(
    out: Path, cell: Cell, how: str, error: TrainingFailed, images: int, system: System
) -> None:
    """The outcome of a cell whose training came to nothing after so many images."""
    write_sealed(
        out / cell.key / f"failed-{how}.json",
        {
            "arm": cell.arm,
            "seed": cell.seed,
            "key": cell.key,
            "why": error.message,
            "hint": error.hint,
            "images": images,
            MACHINE: machine_facts(system),
        },
    )


def forget_failures(cells: Iterable[Cell], out: Path, how: str) -> int:
    """Remove the outcomes of failed cells, so that they are run again; returns how many there
    were."""
    again = [cell for cell in cells if failed(out, cell, how) is not None]
    for cell in again:
        remove(out / cell.key / f"failed-{how}.json")
    return len(again)


def reached(out: Path, cell: Cell, how: str, until: float | None) -> bool:
    """Is a cell finished, or as far as was asked?"""
    if finished(out, cell, how) is not None:
        return True
    return (
        until is not None
        and cell.known
        and point_path(out / cell.key, how, at(cell.run, until)).exists()
    )


def pictures(out: Path, key: str, how: str) -> dict[str, Any]:
    """{prompts, pictures} of a finished cell."""
    return read_sealed(
        out / key / f"pictures-{how}.json", HINT, fields={"prompts": list, "pictures": list}
    )


# --------------------------------------------------------------------------------------------------
# The layout of a study: its cells in the order they run, and what must be trained before they are
# known.
#
# Trunks come first, then the tries of learning rates, then the arms: a cell that begins from a
# trunk has the hash of the trunk's weights in its key, so its key is known when the trunk is
# finished.


AT_EDGE = remark("best-rate-at-edge", "the best lies at the edge of the sweep")


class Layout(NamedTuple):
    arms: list[Arm]
    cells: list[Cell]  # of the arms, seed by seed, so that pairs are whole early
    before: list[Cell]  # trunks and tries, in the order in which they become known
    searches: list[RateSearch]  # for rates, those that have ended
    trunk_runs: dict[str, RunSpec] = {}  # by scale
    #: of a fractional design: each alone on the baseline; not run as such, but what is compared
    levers: list[Arm] = []

    @property
    def proven(self) -> list[Arm]:
        """All that must be seen to differ from its baseline: the arms, and every lever by
        itself."""
        names = {arm.name for arm in self.arms}
        return [*self.arms, *(lever for lever in self.levers if lever.name not in names)]


def measuring(plan: Plan) -> Measuring:
    return Measuring(plan.samples, plan.evaluations, plan.judges)


def unmeasured_on_the_way(plan: Plan, layout: Layout, out: Path) -> str:
    """Said of cells that an earlier study finished without measuring where this one would; empty:
    there are none."""
    how, wanted = measuring(plan).how, {share for share in plan.evaluations if share < 1}
    done = [cell for cell in layout.cells if finished(out, cell, how) is not None]
    bare = [
        cell
        for cell in done
        if len(read_points(out / cell.key, cell.run, how, plan.evaluations)) < len(wanted)
    ]
    if not bare:
        return ""
    return (
        f"{len(bare)} of {len(done)} finished cells were not measured on the way: nothing can be"
        " read from them at equal time or FLOPs; train them anew with another --out"
    )


def lay_out(plan: Plan, catalogue: Catalogue, user_files: Mapping[str, str], out: Path) -> Layout:
    levers, arms = prove_levers(plan, catalogue), prove(plan, catalogue)
    how = measuring(plan).how
    stems = {
        scale: parse(asked.phrase, catalogue, asked.settings)
        for scale, asked in trunks(plan).items()
    }
    sweep = plan.learning_rates if isinstance(plan.learning_rates, Sweep) else None
    seeds = [*plan.seeds, *(sweep.seeds if sweep else ())]
    stem_cells = {
        (scale, cell.seed): cell._replace(kind="trunk")
        for scale, stem in stems.items()
        for cell in _cells(
            f"trunk {scale}".strip(), stem, dict.fromkeys(seeds, stem.run), user_files
        )
    }

    def begun(run: RunSpec, scale: str, seed: int) -> RunSpec | None:
        """The run from where it begins; None while its trunk is not there."""
        if not stems:
            return run
        stem = stem_cells[scale, seed]
        result = finished(out, stem, how)
        return (
            put(run, "start", Trunk(run=stem.key, weights_sha256=result["weights_sha256"]))
            if result
            else None
        )

    tries: list[Cell] = []
    searches: list[RateSearch] = []
    if sweep:
        for arm in arms:
            own = [
                _try(arm, multiple, seed, begun(arm.run, arm.scale, seed), sweep, user_files)
                for multiple in sweep.sweep
                for seed in sweep.seeds
            ]
            tries += own
            search = _chosen(arm, own, out, how)
            searches += [search] if search else []
        rates = {search.arm: search.chosen for search in searches}
        arms = [_tuned(arm, baseline_of(arm, arms), rates) for arm in arms]
    ready = not sweep or len(searches) == len(arms)
    rows = [
        _cells(
            arm.name,
            arm.phrase,
            {seed: begun(arm.run, arm.scale, seed) if ready else None for seed in plan.seeds},
            user_files,
        )
        for arm in arms
    ]
    cells = [cell for column in zip(*rows, strict=True) for cell in column]
    trunk_runs = {scale: stem.run for scale, stem in stems.items()}
    return Layout(arms, cells, [*stem_cells.values(), *tries], searches, trunk_runs, levers)


def _cells(
    arm: str, phrase: Phrase, runs: Mapping[int, RunSpec | None], user_files: Mapping[str, str]
) -> list[Cell]:
    """One cell per seed; a run that several seeds share is read for its key only once."""
    own, text = files_of(phrase, user_files), str(phrase)
    named = {
        id(run): keys(run, own)
        for run in {id(run): run for run in runs.values()}.values()
        if run is not None
    }
    return [
        (
            Cell(arm, seed, phrase.run, text, PENDING + digest([arm, seed])[:8], own)
            if run is None
            else Cell(arm, seed, run, text, named[id(run)](seed), own)
        )
        for seed, run in runs.items()
    ]


def _try(
    arm: Arm,
    multiple: float,
    seed: int,
    run: RunSpec | None,
    sweep: Sweep,
    user_files: Mapping[str, str],
) -> Cell:
    short = put(
        at_rate(run or arm.run, arm.run.optim.lr * multiple),
        "budget.images",
        at(arm.run, sweep.share),
    )
    (cell,) = _cells(arm.name, arm.phrase, {seed: None if run is None else short}, user_files)
    return cell._replace(
        kind="rate",
        rate=multiple,
        run=short,
        key=cell.key if cell.known else f"{cell.key}-{multiple:g}",
    )


def _chosen(arm: Arm, tries: Sequence[Cell], out: Path, how: str) -> RateSearch | None:
    """The rate with the lowest held-out loss over the sweep's seeds, when all were tried."""
    results = {(cell.rate, cell.seed): finished(out, cell, how) for cell in tries}
    losses = {
        place: math.inf if one["loss"] is None else float(one["loss"])
        for place, one in results.items()
        if one
    }
    if len(losses) < len(tries):
        return None
    mean = {
        multiple: sum(loss for (other, _), loss in losses.items() if other == multiple)
        for multiple, _ in losses
    }
    chosen, lr = min(mean, key=lambda multiple: (mean[multiple], multiple)), arm.run.optim.lr
    return RateSearch(
        arm=arm.name,
        metric="validation_loss",
        tries=tuple(
            Try(rate=lr * multiple, seed=seed, value=loss)
            for (multiple, seed), loss in losses.items()
        ),
        chosen=lr * chosen,
        images=sum(cell.run.budget.images for cell in tries),
        note=AT_EDGE.text if chosen in (min(mean), max(mean)) else "",
        codes=(AT_EDGE,) if chosen in (min(mean), max(mean)) else (),
    )


def _tuned(arm: Arm, base: Arm, rates: Mapping[str, float]) -> Arm:
    def tuned(one: Arm) -> RunSpec:
        return at_rate(one.run, rates[one.name]) if one.name in rates else one.run

    return against(tuned(arm), arm, tuned(base))
