"""The layout of a study: its cells in the order they run, and what must be trained before they are known.

Trunks come first, then the tries of learning rates, then the arms: a cell that begins from a trunk has the hash of the
trunk's weights in its key, so its key is known when the trunk is finished.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fulcrum.judge.schema import RateSearch, Try
from fulcrum.levers.catalog import files_of
from fulcrum.spec.edit import digest, keys, put
from fulcrum.spec.phrase import Catalogue, Phrase, parse
from fulcrum.spec.remark import remark
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import at_rate
from fulcrum.study.plan.arms import Arm, against, baseline_of, prove, prove_levers
from fulcrum.study.plan.design import trunks
from fulcrum.study.plan.plan import Plan, Sweep
from fulcrum.study.run.cell import PENDING, Cell, Measuring, finished
from fulcrum.study.run.measuring.evaluation_points import at, read_points
from fulcrum.training.fillers import Trunk

AT_EDGE = remark("best-rate-at-edge", "the best lies at the edge of the sweep")


class Layout(NamedTuple):
    arms: list[Arm]
    cells: list[Cell]  # of the arms, seed by seed, so that pairs are whole early
    before: list[Cell]  # trunks and tries, in the order in which they become known
    searches: list[RateSearch]  # for rates, those that have ended
    trunk_runs: dict[str, RunSpec] = {}  # by scale
    levers: list[Arm] = []  # of a fractional design: each alone on the baseline; not run as such, but what is compared

    @property
    def proven(self) -> list[Arm]:
        """All that must be seen to differ from its baseline: the arms, and every lever by itself."""
        names = {arm.name for arm in self.arms}
        return [*self.arms, *(lever for lever in self.levers if lever.name not in names)]


def measuring(plan: Plan) -> Measuring:
    return Measuring(plan.samples, plan.evaluations, plan.judges)


def unmeasured_on_the_way(plan: Plan, layout: Layout, out: Path) -> str:
    """Said of cells that an earlier study finished without measuring where this one would; empty: there are none."""
    how, wanted = measuring(plan).how, {share for share in plan.evaluations if share < 1}
    done = [cell for cell in layout.cells if finished(out, cell, how) is not None]
    bare = [cell for cell in done if len(read_points(out / cell.key, cell.run, how, plan.evaluations)) < len(wanted)]
    if not bare:
        return ""
    return (
        f"{len(bare)} of {len(done)} finished cells were not measured on the way: nothing can be read from them at equal "
        "time or FLOPs; train them anew with another --out"
    )


def lay_out(plan: Plan, catalogue: Catalogue, user_files: Mapping[str, str], out: Path) -> Layout:
    levers, arms = prove_levers(plan, catalogue), prove(plan, catalogue)
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


def _cells(arm: str, phrase: Phrase, runs: Mapping[int, RunSpec | None], user_files: Mapping[str, str]) -> list[Cell]:
    """One cell per seed; a run that several seeds share is read for its key only once."""
    own, text = files_of(phrase, user_files), str(phrase)
    named = {id(run): keys(run, own) for run in {id(run): run for run in runs.values()}.values() if run is not None}
    return [
        Cell(arm, seed, phrase.run, text, PENDING + digest([arm, seed])[:8], own)
        if run is None
        else Cell(arm, seed, run, text, named[id(run)](seed), own)
        for seed, run in runs.items()
    ]


def _try(arm: Arm, multiple: float, seed: int, run: RunSpec | None, sweep: Sweep, user_files: Mapping[str, str]) -> Cell:
    short = put(at_rate(run or arm.run, arm.run.optim.lr * multiple), "budget.images", at(arm.run, sweep.share))
    (cell,) = _cells(arm.name, arm.phrase, {seed: None if run is None else short}, user_files)
    return cell._replace(kind="rate", rate=multiple, run=short, key=cell.key if cell.known else f"{cell.key}-{multiple:g}")


def _chosen(arm: Arm, tries: Sequence[Cell], out: Path, how: str) -> RateSearch | None:
    """The rate with the lowest held-out loss over the sweep's seeds, when all were tried."""
    results = {(cell.rate, cell.seed): finished(out, cell, how) for cell in tries}
    losses = {place: math.inf if one["loss"] is None else float(one["loss"]) for place, one in results.items() if one}
    if len(losses) < len(tries):
        return None
    mean = {multiple: sum(loss for (other, _), loss in losses.items() if other == multiple) for multiple, _ in losses}
    chosen, lr = min(mean, key=lambda multiple: (mean[multiple], multiple)), arm.run.optim.lr
    return RateSearch(
        arm=arm.name,
        metric="validation_loss",
        tries=tuple(Try(rate=lr * multiple, seed=seed, value=loss) for (multiple, seed), loss in losses.items()),
        chosen=lr * chosen,
        images=sum(cell.run.budget.images for cell in tries),
        note=AT_EDGE.text if chosen in (min(mean), max(mean)) else "",
        codes=(AT_EDGE,) if chosen in (min(mean), max(mean)) else (),
    )


def _tuned(arm: Arm, base: Arm, rates: Mapping[str, float]) -> Arm:
    def tuned(one: Arm) -> RunSpec:
        return at_rate(one.run, rates[one.name]) if one.name in rates else one.run

    return against(tuned(arm), arm, tuned(base))
