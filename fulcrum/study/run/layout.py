"""The layout of a study: its cells in the order they run, and what must be trained before they are known.

Trunks come first, then the tries of learning rates, then the arms: a cell that begins from a trunk has the hash of the
trunk's weights in its key, so its key is known when the trunk is finished.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fulcrum.levers.catalog import files_of
from fulcrum.spec.edit import digest, keys, put, put_all
from fulcrum.spec.phrase import Catalogue, Phrase, parse
from fulcrum.spec.run import RunSpec
from fulcrum.study.plan.arm_proof import Arm, against, baseline_of, prove
from fulcrum.study.plan.design import trunks
from fulcrum.study.plan.plan import Plan, Sweep
from fulcrum.study.run.cell import PENDING, Cell, Measuring, finished
from fulcrum.study.run.evaluation_points import at
from fulcrum.train.fillers import Trunk


class Tried(NamedTuple):
    """What the search for an arm's rate found."""

    arm: str
    losses: dict[tuple[float, int], float]  # (multiple, seed) -> held-out loss; infinite where it diverged
    lr: float  # the recipe's
    chosen: float  # multiple
    images: int  # spent

    @property
    def at_edge(self) -> bool:
        multiples = sorted({multiple for multiple, _ in self.losses})
        return self.chosen in (multiples[0], multiples[-1])


class Layout(NamedTuple):
    arms: list[Arm]
    cells: list[Cell]  # of the arms, seed by seed, so that pairs are whole early
    before: list[Cell]  # trunks and tries, in the order in which they become known
    tried: list[Tried]
    trunk_runs: dict[str, RunSpec] = {}  # by scale


def measuring(plan: Plan) -> Measuring:
    return Measuring(plan.samples, plan.evaluations, plan.judges)


def lay_out(plan: Plan, catalogue: Catalogue, user_files: Mapping[str, str], out: Path) -> Layout:
    arms = prove(plan, catalogue)
    how = measuring(plan).how
    stems = {scale: parse(asked.phrase, catalogue, asked.settings) for scale, asked in trunks(plan).items()}
    sweep = plan.learning_rates if isinstance(plan.learning_rates, Sweep) else None
    seeds = [*plan.seeds, *(sweep.seeds if sweep else ())]
    stem_cells = {
        (scale, cell.seed): cell._replace(kind="trunk")
        for scale, stem in stems.items()
        for cell in _cells(f"trunk {scale}".strip(), stem, dict.fromkeys(seeds, stem.run), user_files)
    }

    def begun(run: RunSpec, scale: str, seed: int) -> RunSpec | None:
        """The run from where it begins; None while its trunk is not there."""
        if not stems:
            return run
        stem = stem_cells[scale, seed]
        result = finished(out, stem, how)
        return put(run, "start", Trunk(run=stem.key, weights_sha256=result["weights_sha256"])) if result else None

    tries: list[Cell] = []
    tried: list[Tried] = []
    if sweep:
        for arm in arms:
            own = [
                _try(arm, multiple, seed, begun(arm.run, arm.scale, seed), sweep, user_files)
                for multiple in sweep.sweep
                for seed in sweep.seeds
            ]
            tries += own
            found = _chosen(arm, own, out, how)
            tried += [found] if found else []
        rates = {one.arm: one for one in tried}
        arms = [_tuned(arm, baseline_of(arm, arms), rates) for arm in arms]
    ready = not sweep or len(tried) == len(arms)
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
    return Layout(arms, cells, [*stem_cells.values(), *tries], tried, {scale: stem.run for scale, stem in stems.items()})


def _cells(arm: str, phrase: Phrase, runs: Mapping[int, RunSpec | None], user_files: Mapping[str, str]) -> list[Cell]:
    """One cell per seed; a run that several seeds share is read for its key only once."""
    own, told = files_of(phrase, user_files), str(phrase)
    named = {id(run): keys(run, own) for run in {id(run): run for run in runs.values()}.values() if run is not None}
    return [
        Cell(arm, seed, phrase.run, told, PENDING + digest([arm, seed])[:8], own)
        if run is None
        else Cell(arm, seed, run, told, named[id(run)](seed), own)
        for seed, run in runs.items()
    ]


def _try(arm: Arm, multiple: float, seed: int, run: RunSpec | None, sweep: Sweep, user_files: Mapping[str, str]) -> Cell:
    short = put_all(
        run or arm.run, [("optim.lr", arm.run.optim.lr * multiple), ("budget.images", at(arm.run, sweep.share))]
    )
    (cell,) = _cells(arm.name, arm.phrase, {seed: None if run is None else short}, user_files)
    return cell._replace(kind="rate", rate=multiple, run=short, key=cell.key if cell.known else f"{cell.key}-{multiple:g}")


def _chosen(arm: Arm, tries: Sequence[Cell], out: Path, how: str) -> Tried | None:
    """The rate with the lowest held-out loss over the sweep's seeds, when all were tried."""
    found = {(cell.rate, cell.seed): finished(out, cell, how) for cell in tries}
    losses = {place: math.inf if one["loss"] is None else float(one["loss"]) for place, one in found.items() if one}
    if len(losses) < len(tries):
        return None
    mean = {rate: sum(loss for (other, _), loss in losses.items() if other == rate) for rate, _ in losses}
    return Tried(
        arm.name,
        losses,
        arm.run.optim.lr,
        min(mean, key=lambda rate: (mean[rate], rate)),
        sum(cell.run.budget.images for cell in tries),
    )


def _tuned(arm: Arm, base: Arm, rates: Mapping[str, Tried]) -> Arm:
    def at_rate(one: Arm) -> RunSpec:
        return put(one.run, "optim.lr", one.run.optim.lr * rates[one.name].chosen) if one.name in rates else one.run

    return against(at_rate(arm), arm, at_rate(base))
