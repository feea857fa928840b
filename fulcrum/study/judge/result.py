"""The record that the report shows: what every cell found, effects with verdicts, noise, cost, contrasts, remarks."""

import contextlib
import datetime
import gc
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.measure.card import JUDGED, METRICS
from fulcrum.report.schema import StudyResult
from fulcrum.spec.edit import get
from fulcrum.study.arm_cost import Cost
from fulcrum.study.judge.contrast import interactions, scales, trends
from fulcrum.study.judge.effect import noise_floor, student_interval
from fulcrum.study.judge.equal_cost import Curves, at_equal_cost, fronts, targets
from fulcrum.study.judge.findings import Found, findings, may_differ, other_loss, remarks, value_of
from fulcrum.study.judge.report_arms import curve_of, grids, shown_arm, shown_cell
from fulcrum.study.judge.verdict import Finding
from fulcrum.study.plan.arm_proof import Arm, baseline_of
from fulcrum.study.plan.plan import Plan
from fulcrum.study.plan.power import rule_detectable
from fulcrum.study.run.cell import Cell, finished
from fulcrum.study.run.evaluate import can_measure
from fulcrum.study.run.layout import Layout, Tried, measuring
from fulcrum.study.run.runner import Board

__all__ = ["assemble_result", "collect", "findings", "may_differ", "remarks"]

SHOWN = (
    "attribute_accuracy",
    "frechet",
    "mmd",
    "validation_loss",
    "colour_accuracy",
    "shape_accuracy",
    "texture_accuracy",
    "size_accuracy",
    "presence_accuracy",
    "extra_objects",
    "mmd_published",
)
LOSS_POINTS = 80_000  # of all cells' training losses together: what a page can hold


class Stopped(NamedTuple):
    """An arm that the crossing guard ended."""

    arm: str
    share: float  # of the budget
    row: dict[str, Any]  # its effect on the primary metric there


class Progress(NamedTuple):
    """How a study stands."""

    board: Board | None = None
    seconds_left: float | None = None
    costs: Mapping[str, Cost] | None = None
    seconds: float | None = None
    stopped: tuple[Stopped, ...] = ()
    ended: bool = False  # the study was stopped, or failed, before its end


NOT_BEGUN = Progress()


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
    """arm -> seed -> what the cell found, finished cells only; `kept` remembers between calls, as a finished cell stays."""
    kept = {} if kept is None else kept
    found: dict[str, dict[int, Any]] = {}
    for cell in cells:
        if cell.key not in kept:
            values = finished(out, cell, how)
            if values is None:
                continue
            kept[cell.key] = values
        found.setdefault(cell.arm, {})[cell.seed] = kept[cell.key]
    return found


@_uncollected()
def assemble_result(
    plan: Plan, layout: Layout, out: Path, command: str, progress: Progress = NOT_BEGUN, kept: dict[str, Any] | None = None
) -> StudyResult:
    """Everything the report shows, for a study that is running or finished."""
    arms, cells, how = layout.arms, layout.cells, measuring(plan).how
    found = collect(cells, out, how, kept)
    ended = {one.arm: one for one in progress.stopped}
    running = [arm for arm in arms if arm.name not in ended]
    metrics = [name for name in dict.fromkeys((plan.primary, *_shown(plan))) if can_measure(arms[0].run, name)]
    rows = [finding for metric in metrics for finding in findings(plan, arms, found, metric, ended)]
    curves = {
        cell.key: curve_of(cell, out, plan, found.get(cell.arm, {}).get(cell.seed), how) for cell in cells if cell.known
    }
    censored = sum(cell.arm in ended and cell.seed not in found.get(cell.arm, {}) for cell in cells)
    done = sum(len(seeds) for seeds in found.values())
    base = found.get(arms[0].name, {})
    floors = [
        noise_floor({seed: value_of(cell, metric) for seed, cell in base.items()}, metric)
        for metric in metrics
        if len(base) > 1
    ]
    visible = _Visible(len(running) - 1, plan.alpha)
    effects = [{**finding.row(), "note": "", "detectable": visible.by(finding)} for finding in rows]
    effects += [one.row for one in progress.stopped]
    reached: list[dict[str, Any]] = []
    drawn = {name for curve in curves.values() for point in curve for name in point["values"]}
    for metric in (name for name in metrics if name in drawn):
        lines = _by_arm(running, cells, curves, metric)
        if progress.costs:
            effects += at_equal_cost(plan, running, found, lines, progress.costs, metric)
        reached += targets(plan, running, found, lines, progress.costs, metric)
    most = max(8, LOSS_POINTS // max(len(cells), 1))
    own, apart = _cells_of(cells), {arm.name for arm in arms if other_loss(arm, baseline_of(arm, arms))}
    state = "finished" if done + censored == len(cells) else "stopped" if progress.ended else "running"
    return StudyResult.model_validate(
        {
            "title": plan.title,
            "state": state,
            "plan": {
                "hash": plan.hash,
                "baseline": str(arms[0].phrase),
                "primary_metric": plan.primary,
                "seeds": plan.seeds,
                "images": arms[0].run.budget.images,
                "smallest_effect": plan.smallest_effect,
                "alpha": plan.alpha,
                "threads_per_cell": plan.threads,
                "guidance": float(get(arms[0].run, "sample.guide.scale")),
                "learning_rate_policy": plan.rate_policy,
                "sample_count": plan.samples,
            },
            "made": {
                "version": _version(),
                "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
                "command": command,
                "machine": f"{platform.system()} {platform.machine()}",
                "seconds": progress.seconds,
            },
            "metrics": [_metric(name, base) for name in metrics],
            "arms": [
                shown_arm(
                    arm,
                    arms,
                    [
                        shown_cell(
                            cell,
                            found.get(arm.name, {}).get(cell.seed),
                            progress.board,
                            out,
                            curves,
                            most,
                            arm.name in ended,
                            arm.name in apart,
                        )
                        for cell in own.get(arm.name, ())
                    ],
                    (progress.costs or {}).get(arm.name),
                    rows,
                )
                for arm in arms
            ],
            "effects": effects,
            "noise": [
                {"metric": floor.metric, "mean": floor.mean, "sd": floor.sd, "cv": floor.cv, "n": floor.n}
                for floor in floors
            ],
            "detectable": _loudest(rows, visible),
            "grids": grids(arms, cells, found, out, how),
            "remarks": remarks(plan, arms, found, layout.tried) + [_censored(one) for one in progress.stopped],
            "interactions": [row for metric in metrics for row in interactions(plan, running, found, metric)],
            "scales": scales(plan, arms),
            "trends": [row for metric in metrics for row in trends(plan, running, found, metric)],
            "time_to_target": reached,
            "sweeps": [_sweep(one) for one in layout.tried],
            "pareto": _fronts(running, found, progress.costs, plan.primary) if progress.costs else [],
            "probes": probes(out),
            "progress": {"done": done, "total": len(cells) - censored, "seconds_left": progress.seconds_left},
        }
    )


def _shown(plan: Plan) -> tuple[str, ...]:
    """Where real networks judge, the distances of the embedded one, which was made for the embedded world, are left out."""
    if not plan.judges:
        return SHOWN
    embedded = ("frechet", "mmd", "mmd_published")
    return (*(name for judge in plan.judges for name in JUDGED[judge]), *(name for name in SHOWN if name not in embedded))


def probes(out: Path) -> Any:
    """Which metric sees which fault, if `fulcrum measure --probe` was asked under the same folder."""
    path = out / "cache" / "probes.json"
    return json.loads(path.read_text()) if path.is_file() else None


@cache
def _version() -> str:
    from importlib.metadata import version

    return version("fulcrum-lab")


def _cells_of(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    own: dict[str, list[Cell]] = {}
    for cell in cells:
        own.setdefault(cell.arm, []).append(cell)
    return own


def _metric(name: str, base: Mapping[int, Any]) -> dict[str, Any]:
    meta = METRICS[name]
    card = next(iter(base.values()))["metrics"][name]["card"] if base else {}
    return {
        "name": name,
        "label": meta.label,
        "unit": meta.unit,
        "better": meta.better,
        "explain": meta.explain,
        "card": card,
    }


def _by_arm(
    arms: Sequence[Arm], cells: Sequence[Cell], curves: Mapping[str, Sequence[Mapping[str, Any]]], metric: str
) -> Curves:
    """arm -> seed -> (share, value) of one metric."""
    found: dict[str, dict[int, list[tuple[float, float]]]] = {arm.name: {} for arm in arms}
    for cell in cells:
        if cell.arm in found:
            budget = cell.run.budget.images
            found[cell.arm][cell.seed] = [
                (point["images"] / budget, point["values"][metric])
                for point in curves.get(cell.key, ())
                if metric in point["values"]
            ]
    return found


class _Visible(NamedTuple):
    """The smallest true effect that this study would have seen in four of five repeats."""

    arms: int
    alpha: float

    def by(self, row: Finding) -> float | None:
        """With the scatter of this arm's differences on this metric."""
        return rule_detectable(row.effect.sd, row.effect.n, arms=self.arms, alpha=self.alpha) if row.effect.sd > 0 else None


def _loudest(rows: Sequence[Finding], visible: _Visible) -> dict[str, float]:
    """Metric -> what would have been seen of the arm whose differences scatter most."""
    found: dict[str, float] = {}
    for row in rows:
        seen = visible.by(row)
        if seen is not None:
            found[row.effect.metric] = max(seen, found.get(row.effect.metric, 0.0))
    return found


def _fronts(arms: Sequence[Arm], found: Found, costs: Mapping[str, Cost], metric: str) -> list[dict[str, Any]]:
    means = {}
    for arm in arms:
        values = [value_of(cell, metric) for cell in found.get(arm.name, {}).values()]
        if len(values) > 1:
            mean = sum(values) / len(values)
            sd = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
            means[arm.name] = (mean, *student_interval(mean, sd, len(values)))
    return fronts(arms, means, costs, metric)


def _sweep(tried: Tried) -> dict[str, Any]:
    return {
        "arm": tried.arm,
        "metric": "validation_loss",
        "better": "lower",
        "tries": [
            {"rate": tried.lr * multiple, "seed": seed, "value": loss} for (multiple, seed), loss in tried.losses.items()
        ],
        "chosen": tried.lr * tried.chosen,
        "images": tried.images,
        "note": "the best lies at the edge of the sweep" if tried.at_edge else "",
    }


def _censored(one: Stopped) -> str:
    return (
        f"{one.arm} was stopped at {one.share:.0%} of the budget by the crossing guard: worse at successive points, "
        "and not coming back by the end. It is counted as censored: it has no final value."
    )
