"""The record that the report shows: what every cell found, effects with verdicts, noise, cost, contrasts, remarks."""

import contextlib
import datetime
import gc
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fulcrum.files.sealed import read_json
from fulcrum.judge.looks import looks_of
from fulcrum.judge.schema import CellCounts, CellResult, CurvePoint, Effect, Front, Probes, Provenance, StudyResult, Target
from fulcrum.judge.statistics import PairedEffect, noise_floor, student_interval
from fulcrum.spec.edit import explain
from fulcrum.spec.errors import BadInput
from fulcrum.spec.remark import Remark, remark
from fulcrum.study.judge.claims import study_claims
from fulcrum.study.judge.contrast import interactions, scales, trends
from fulcrum.study.judge.equal_cost import Curves, at_equal_cost, fronts, targets
from fulcrum.study.judge.findings import all_findings, confirmed, effects_on
from fulcrum.study.judge.fraction_result import as_fraction
from fulcrum.study.judge.pairing import Measurements, not_stopped, other_loss, values_of
from fulcrum.study.judge.plan_facts import plan_facts
from fulcrum.study.judge.remarks import disturbed, remarks
from fulcrum.study.judge.report_arms import curve_of, grids, shown_arm, shown_cell
from fulcrum.study.judge.sequence import sequence, sequential_findings
from fulcrum.study.judge.shown_metrics import FAMILY, metrics_of, shown_metric
from fulcrum.study.plan.arms import Arm, baseline_of
from fulcrum.study.plan.frozen_plan import added_seeds
from fulcrum.study.plan.plan import Plan
from fulcrum.study.plan.power import detectable
from fulcrum.study.run.arm_cost import TimedCost
from fulcrum.study.run.cell import Cell, failed, finished
from fulcrum.study.run.layout import Layout, measuring
from fulcrum.study.run.workers.runner import Board
from fulcrum.training.dist.machine import fulcrum_version

LOSS_POINTS = 80_000  # of all cells' training losses together: what a page can hold


class StoppedArm(NamedTuple):
    """An arm that the crossing guard ended."""

    share: float  # of the budget
    effect: PairedEffect  # on the primary metric there

    @property
    def arm(self) -> str:
        return self.effect.arm


class StudyState(NamedTuple):
    """How far a study is."""

    board: Board | None = None
    seconds_left: float | None = None
    costs: Mapping[str, TimedCost] | None = None
    seconds: float | None = None
    stopped: tuple[StoppedArm, ...] = ()
    ended: bool = False  # the study was stopped, or failed, before its end


NOT_BEGUN = StudyState()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Ten thousand cells are millions of small objects that all stay: to look through them for rubbish, again and again,
    would take a quarter of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_uncollected()
def collect(cells: Sequence[Cell], out: Path, how: str, kept: dict[str, Any] | None = None) -> dict[str, dict[int, Any]]:
    """arm -> seed -> what was measured, finished cells only; `kept` remembers between calls, as a finished cell stays."""
    kept = {} if kept is None else kept
    measured: dict[str, dict[int, Any]] = {}
    for cell in cells:
        if cell.key not in kept:
            values = finished(out, cell, how)
            if values is None:
                continue
            kept[cell.key] = values
        measured.setdefault(cell.arm, {})[cell.seed] = kept[cell.key]
    return measured


@_uncollected()
def assemble_result(
    plan: Plan, layout: Layout, out: Path, command: str, state: StudyState = NOT_BEGUN, kept: dict[str, Any] | None = None
) -> StudyResult:
    """Everything the report shows, for a study that is running or finished."""
    arms, cells, how = layout.arms, layout.cells, measuring(plan).how
    measured = collect(cells, out, how, kept)
    outcomes = {cell.key: outcome for cell in cells if (outcome := failed(out, cell, how)) is not None}
    lost = {arm.name: dict[int, str]() for arm in arms}
    for cell in cells:
        if cell.key in outcomes:
            lost[cell.arm][cell.seed] = str(outcomes[cell.key]["why"])
    sequenced = sequence(plan, arms, measured, lost) if plan.looks else None
    spared = {cell.key for cell in cells if sequenced and sequenced.spares(cell.arm, cell.seed)}
    if sequenced:  # what another study has finished or lost beyond the looks is none of this one's
        measured, lost = sequenced.within(measured), sequenced.within(lost)
        outcomes = {cell.key: outcomes[cell.key] for cell in cells if cell.seed in lost[cell.arm]}
    ended = {one.arm for one in state.stopped}
    running = not_stopped(arms, ended)
    metrics = metrics_of(plan, arms[0].run)
    pairs = {metric: effects_on(plan, running, measured, metric, lost) for metric in metrics}
    claims = study_claims(plan, arms, measured, pairs)
    family = len(pairs[plan.primary]) if plan.confirm == "primary" else sum(map(len, pairs.values()))
    at_looks = sequential_findings(plan, arms, measured, lost, sequenced) if sequenced else []
    at_end = {metric: rows for metric, rows in pairs.items() if not (sequenced and metric == plan.primary)}
    effects = [
        confirmed(plan, row.model_copy(update={"detectable": _detectable(plan, row, family)}), claims)
        for row in (*at_looks, *all_findings(plan, running, measured, at_end))
    ]
    curves = {
        cell.key: curve_of(cell, out, plan, measured.get(cell.arm, {}).get(cell.seed), how) for cell in cells if cell.known
    }
    not_run = {cell.key for cell in cells if cell.arm in ended or cell.key in spared}
    censored = sum(
        cell.key in not_run and cell.key not in outcomes and cell.seed not in measured.get(cell.arm, {}) for cell in cells
    )
    done = sum(len(seeds) for seeds in measured.values())
    at_cost, reached = list[Effect](), list[Target]()
    drawn = {name for curve in curves.values() for point in curve for name in point.values}
    for metric in (name for name in metrics if name in drawn and plan.design != "fractional"):
        lines = _by_arm(running, cells, curves, metric)
        if state.costs:
            at_cost += at_equal_cost(plan, running, measured, lines, state.costs, metric, lost)
        reached += targets(plan, running, measured, lines, state.costs, metric)
    most = max(8, LOSS_POINTS // max(len(cells), 1))
    apart = {arm.name for arm in arms if other_loss(arm, baseline_of(arm, arms))}
    shown: dict[str, list[CellResult]] = {arm.name: [] for arm in arms}
    for cell in cells:
        values, curve = measured.get(cell.arm, {}).get(cell.seed), curves.get(cell.key, [])
        shown[cell.arm].append(
            shown_cell(
                cell,
                values,
                state.board,
                out,
                curve,
                most,
                cell.key in not_run,
                cell.arm in apart,
                outcomes.get(cell.key),
            )
        )
    found = (
        *filter(None, [added_seeds(plan, out)]),
        *remarks(plan, arms, layout.searches),
        *disturbed(measured),
        *map(_censored, state.stopped),
    )
    result = StudyResult(
        title=plan.title,
        state="finished" if done + len(outcomes) + censored == len(cells) else "stopped" if state.ended else "running",
        plan=plan_facts(plan, arms[0], measured),
        made=provenance(command, state.seconds),
        metrics=tuple(shown_metric(name, measured, arms[0].name) for name in metrics),
        arms=tuple(
            shown_arm(plan, arm, arms, shown[arm.name], (state.costs or {}).get(arm.name), claims[arm.name]) for arm in arms
        ),
        effects=(*effects, *(one.effect for one in state.stopped), *at_cost),
        noise=tuple(
            noise_floor(values, metric)
            for metric in metrics
            if len(values := values_of(measured, arms[0].name, metric)) > 1
        ),
        detectable=_loudest(effects),
        grids=grids(arms, cells, measured, out, how),
        remarks=tuple(one.text for one in found),
        codes=found,
        interactions=tuple(row for metric in metrics for row in interactions(plan, running, measured, metric, lost)),
        scales=tuple(scales(plan, arms)),
        trends=tuple(row for metric in metrics for row in trends(plan, running, measured, metric, lost)),
        time_to_target=tuple(reached),
        sweeps=tuple(layout.searches),
        pareto=tuple(_fronts(plan, running, measured, state.costs)) if state.costs else (),
        probes=probes(out),
        progress=CellCounts(done=done, total=len(cells) - censored, failed=len(outcomes), seconds_left=state.seconds_left),
    )
    if plan.design != "fractional":
        return result
    return as_fraction(plan, layout, measured, lost, state.costs, result)


def provenance(command: str, seconds: float | None = None) -> Provenance:
    """By what, when and where a result is made."""
    return Provenance(
        version=fulcrum_version(),
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=command,
        machine=f"{platform.system()} {platform.machine()}",
        seconds=seconds,
    )


def probes(out: Path) -> Probes | None:
    """Which metric sees which fault, if `fulcrum measure --probe` was asked under the same folder."""
    path = out / "cache" / "probes.json"
    if not path.exists():
        return None
    hint = "remove it, and make it again with: fulcrum measure --probe"
    try:
        return Probes.model_validate(read_json(path, hint))
    except ValidationError as error:
        raise BadInput(f"{path} holds no table of probes: {explain(error)}", hint) from None


def _by_arm(arms: Sequence[Arm], cells: Sequence[Cell], curves: Mapping[str, Sequence[CurvePoint]], metric: str) -> Curves:
    """arm -> seed -> (share, value) of one metric."""
    lines: dict[str, dict[int, list[tuple[float, float]]]] = {arm.name: {} for arm in arms}
    for cell in cells:
        if cell.arm in lines:
            budget = cell.run.budget.images
            lines[cell.arm][cell.seed] = [
                (point.images / budget, value)
                for point in curves.get(cell.key, ())
                if (value := point.values.get(metric)) is not None
            ]
    return lines


def _detectable(plan: Plan, effect: Effect, arms: int) -> float | None:
    """The smallest true effect that this study would have seen in four of five repeats, with the scatter of this arm's
    differences on this metric. With looks: at the last of them, whatever the earlier ones would have seen."""
    if not isinstance(effect, PairedEffect) or effect.sd <= 0:
        return None
    pairs, alpha = effect.n, plan.alpha
    if plan.looks and effect.metric == plan.primary:
        pairs, _, alpha = looks_of(plan.looks, plan.alpha)[-1]
    scatters = detectable(pairs, min(max(arms, 1), FAMILY), alpha=alpha)
    return None if scatters is None else scatters * effect.sd


def _loudest(effects: Sequence[Effect]) -> dict[str, float | None]:
    """Metric -> what would have been seen of the arm whose differences scatter most."""
    most: dict[str, float | None] = {}
    for effect in effects:
        if effect.detectable is not None:
            most[effect.metric] = max(effect.detectable, most.get(effect.metric) or 0.0)
    return most


def _fronts(plan: Plan, arms: Sequence[Arm], measured: Measurements, costs: Mapping[str, TimedCost]) -> list[Front]:
    means = {}
    for arm in arms:
        values = list(values_of(measured, arm.name, plan.primary).values())
        if len(values) > 1:
            mean = sum(values) / len(values)
            sd = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
            means[arm.name] = (mean, *student_interval(mean, sd, len(values), 1.0 - plan.alpha))
    return fronts(arms, means, costs, plan.primary)


def _censored(one: StoppedArm) -> Remark:
    text = (
        f"{one.arm} was stopped at {one.share:.0%} of the budget by the crossing guard: worse at successive points, "
        "and not coming back by the end. It is counted as censored: it has no final value."
    )
    return remark("stopped-by-guard", text, arm=one.arm, share=one.share)
