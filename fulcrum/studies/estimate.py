"""What a plan will cost and what it can see, before it runs."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.judge.metrics import FAMILY, values_of
from fulcrum.judge.power import detectable, fraction_detectable
from fulcrum.judge.schema import TimedCost
from fulcrum.judge.statistics import noise_floor
from fulcrum.measure.evaluation import prompts
from fulcrum.spec.run import Device
from fulcrum.studies.arm_cost import costs
from fulcrum.studies.arms import Arm, bases_of
from fulcrum.studies.cell import Cell, Layout, cell_record, failed, finished, measuring
from fulcrum.studies.judging import metrics_of
from fulcrum.studies.plan import Plan
from fulcrum.training.cost_record import count_training
from fulcrum.training.dist.machine import at_hand

# --------------------------------------------------------------------------------------------------
# What a plan will cost and what it can see, before it runs: cells, FLOPs, time from a few steps,
# detectable effects.


DRAWN = 16  # pictures drawn to time the drawing


class Estimate(NamedTuple):
    cells: int
    finished: int
    before: int  # trunks and tries of rates
    images: int  # of all trainings that are left, the tries counted
    flops: float  # of all trainings, the tries counted
    seconds: float | None  # of one lane for all that is left; None: not asked
    by: str  # what the seconds come from
    detectable: float | None  # on the primary metric
    noise: str  # where that comes from, in words
    scatters: float | None  # the same in units of the scatter of paired differences


def estimate(plan: Plan, layout: Layout, out: Path, timed: bool = True) -> Estimate:
    how = measuring(plan).how
    measured = {cell.key: finished(out, cell, how) for cell in (*layout.cells, *layout.before)}
    left = [
        cell
        for cell in (*layout.before, *layout.cells)
        # one that failed is not run again
        if measured[cell.key] is None and failed(out, cell, how) is None
    ]
    flops = sum(
        count_training(cell.run).training() * cell.run.budget.images
        for cell in (*layout.before, *layout.cells)
    )
    seconds, by = _seconds(plan, layout, left, measured, out) if timed else (None, "not timed")
    done = [measured[cell.key] for cell in layout.cells if measured[cell.key]]
    visible, noise = _detectable(plan, layout, measured)
    return Estimate(
        len(layout.cells),
        len(done),
        len(layout.before),
        sum(cell.run.budget.images for cell in left),
        flops,
        seconds,
        by,
        visible,
        noise,
        _in_scatters(plan, layout),
    )


def _seconds(
    plan: Plan, layout: Layout, left: Sequence[Cell], measured: Mapping[str, Any], out: Path
) -> tuple[float, str]:
    """From finished cells of the same arm where there are any, else from a few eager steps and
    pictures here."""
    known: dict[str, list[float]] = {}
    for cell in layout.cells:
        if measured[cell.key]:
            known.setdefault(cell.arm, []).append(sum(measured[cell.key]["seconds"].values()))
    new = [arm for arm in layout.arms if arm.name not in known]
    needed = {base.name for arm in new for base in bases_of(arm, layout.arms)}
    timed = (
        [arm for arm in layout.arms if arm in new or arm.name in needed]
        if new or layout.before
        else []
    )
    device = at_hand(plan.device)
    steps = costs(timed, out / "cache", plan.threads, rounds=2, device=device) if timed else {}
    picture = _picture_seconds(timed[0], out, device) if timed and left else 0.0
    total = 0.0
    for cell in left:
        if cell.kind == "arm" and cell.arm in known:
            total += sum(known[cell.arm]) / len(known[cell.arm])
        else:
            total += _cell_seconds(cell, plan, layout, steps, picture)
    parts = [f"{len(known)} arms with finished cells"] * bool(known) + [
        f"a few eager steps of {len(new)} arms"
        + " on the CPU: no GPU is here" * (device != plan.device)
    ] * bool(new)
    return total, " and ".join(parts) or "nothing is left to run"


def _cell_seconds(
    cell: Cell, plan: Plan, layout: Layout, steps: Mapping[str, TimedCost], picture: float
) -> float:
    cost = steps.get(cell.arm) or next(iter(steps.values()), None)
    step = (cost.step_seconds or 0.0) if cost else 0.0
    drawn = plan.samples * len(plan.evaluations) if cell.kind == "arm" else 0
    return step * cell.run.budget.images / cell.run.budget.batch + drawn * picture


def _picture_seconds(arm: Arm, out: Path, device: Device) -> float:
    import numpy as np

    from fulcrum.measure.evaluation import SEED
    from fulcrum.spec.run import System
    from fulcrum.training.build import assemble
    from fulcrum.training.feed import Feed
    from fulcrum.training.painter import Painter

    painter = Painter.of(
        assemble(arm.run, 0, System(device=device), Feed(arm.run, 0, out / "cache", device=device))
    )
    texts = prompts(arm.run, DRAWN).texts
    begun = time.perf_counter()
    for _ in painter.pictures(texts, SEED, np.arange(DRAWN)):
        pass
    return (time.perf_counter() - begun) / DRAWN


def _detectable(
    plan: Plan, layout: Layout, measured: Mapping[str, Any]
) -> tuple[float | None, str]:
    """The smallest true effect on the primary metric that gets its verdict in four studies of
    five."""
    base = layout.arms[0].name
    done = {
        cell.seed: cell_record(base, cell.seed, measured[cell.key])
        for cell in layout.cells
        if cell.arm == base and measured[cell.key]
    }
    values = values_of({base: done}, base, plan.primary)
    if len(values) < 2:
        return None, "how far repeated baselines scatter is not known before two are finished"
    floor = noise_floor(values, plan.primary)
    if not floor.sd:
        return None, "the finished baselines do not differ at all: their scatter says nothing"
    # whose scatter the units count, if pairing gives nothing
    cells = 1 if plan.design == "fractional" else 2
    spread, units = floor.sd * cells**0.5, _in_scatters(plan, layout)
    return (
        None if units is None else units * spread,
        (
            f"from {len(values)} finished baselines that scatter by {floor.sd:.4g}, without any"
            " help from pairing"
        ),
    )


def _in_scatters(plan: Plan, layout: Layout) -> float | None:
    if plan.design == "fractional":
        return fraction_detectable(plan)  # of single cells
    return detectable(
        len(plan.seeds), min(sum(judged_together(plan, layout)), FAMILY), alpha=plan.alpha
    )


def judged_together(plan: Plan, layout: Layout) -> list[int]:
    """Arms that are compared in one family, metric by metric: of the primary alone, or of all, as
    the plan confirms."""
    arms, metrics = sum(not arm.is_baseline for arm in layout.arms), 1
    if plan.confirm == "all":
        metrics = len(metrics_of(plan, layout.arms[0].run))
    return [arms] * metrics
