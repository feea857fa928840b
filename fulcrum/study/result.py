"""From finished cells to findings: effects with verdicts, noise, cost, and the record that the report shows."""

import datetime
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fulcrum.levers.base import Claim
from fulcrum.measure.card import METRICS, MetricCard, compatible
from fulcrum.report.schema import StudyResult
from fulcrum.spec.edit import get
from fulcrum.study.cell import Cell, finished
from fulcrum.study.cost import Cost
from fulcrum.study.effect import Effect, noise_floor, paired_effect
from fulcrum.study.evaluate import loss_of
from fulcrum.study.plan import Plan
from fulcrum.study.power import rule_detectable
from fulcrum.study.proof import Arm
from fulcrum.study.rank import pairs_needed
from fulcrum.study.runner import Board
from fulcrum.study.verdict import Claimed, Finding, claimed_direction, judge

SHOWN = ("attribute_accuracy", "frechet", "mmd", "validation_loss", "colour_accuracy", "shape_accuracy",
         "texture_accuracy", "size_accuracy", "presence_accuracy", "extra_objects", "mmd_published")
CLAIMED_AS = {"frechet": "fid", "mmd": "cmmd"}               # which published metric ours stands beside
EQUAL = "images"                                             # what was held equal


def collect(cells: Sequence[Cell], out: Path, samples: int) -> dict[str, dict[int, dict[str, Any]]]:
    """arm -> seed -> what the cell found, finished cells only."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for cell in cells:
        values = finished(out, cell.key, samples)
        if values is not None:
            found.setdefault(cell.arm, {})[cell.seed] = values
    return found


def findings(plan: Plan, arms: Sequence[Arm], found: Mapping[str, Mapping[int, Any]], metric: str) -> list[Finding]:
    """Effects of all arms on one metric, over the seeds that every arm has finished; cards must match."""
    seeds = [seed for seed in plan.seeds if all(seed in found.get(arm.name, {}) for arm in arms)]
    if len(seeds) < 2:
        return []
    meta, effects, claims = METRICS[metric], [], {}
    base = {seed: _value(found["baseline"][seed], metric) for seed in seeds}
    for arm in arms[1:]:
        if metric == "validation_loss" and other_loss(arm, arms[0]):
            continue
        for seed in seeds:
            compatible(_card(found["baseline"][seed], metric), _card(found[arm.name][seed], metric), may_differ(arm))
        values = {seed: _value(found[arm.name][seed], metric) for seed in seeds}
        effects.append(paired_effect(base, values, name=arm.name, metric=metric, unit=EQUAL, seeds=seeds))
        claim = _claim(arm, metric)
        if claim is not None:
            claims[arm.name] = Claimed(claimed_direction(claim.change, "lower"), "scaled" if claim.carries else "other")
    if not effects:
        return []
    return judge(effects, better=meta.better, smallest_effect=smallest(plan, metric, effects), claims=claims,
                 alpha=plan.alpha)


def smallest(plan: Plan, metric: str, effects: Sequence[Effect]) -> float:
    return plan.smallest_effect if metric == plan.primary else plan.smallest_relative * abs(effects[0].baseline)


def may_differ(arm: Arm) -> tuple[str, ...]:
    """Fields of a metric card that this arm's levers openly change."""
    fields = {"sample.prompts": "prompts", "sample.guide": "guidance", "sample.steps": "steps",
              "sample.shift": "sampler"}
    return tuple(sorted({field for change in arm.changes for path, field in fields.items()
                         if change.path.startswith(path)}))


def other_loss(arm: Arm, base: Arm) -> bool:
    """Does the arm openly change what a held-out loss is a loss of? Then there is nothing to compare."""
    return loss_of(arm.run) != loss_of(base.run)


def _claim(arm: Arm, metric: str) -> Claim | None:
    name = CLAIMED_AS.get(metric)
    return next((claim for lever in arm.levers for claim in lever.card.claims if claim.metric == name), None)


def _value(cell: Mapping[str, Any], metric: str) -> float:
    return float(cell["metrics"][metric]["value"])


def _card(cell: Mapping[str, Any], metric: str) -> MetricCard:
    return MetricCard(**cell["metrics"][metric]["card"])


def assemble_result(plan: Plan, arms: Sequence[Arm], cells: Sequence[Cell], out: Path, command: str,
                    board: Board | None = None, lanes: int = 1, costs: Mapping[str, Cost] | None = None,
                    seconds: float | None = None) -> StudyResult:
    """Everything the report shows, for a study that is running or finished."""
    found = collect(cells, out, plan.samples)
    rows = [finding for metric in _order(plan) for finding in findings(plan, arms, found, metric)]
    done = sum(len(seeds) for seeds in found.values())
    base = found.get("baseline", {})
    floors = [noise_floor({seed: _value(cell, metric) for seed, cell in base.items()}, metric)
              for metric in _order(plan) if len(base) > 1]
    return StudyResult.model_validate({
        "title": plan.title, "state": "finished" if done == len(cells) else "running",
        "plan": {"hash": plan.hash, "baseline": plan.baseline, "primary_metric": plan.primary, "seeds": plan.seeds,
                 "images": arms[0].run.budget.images, "smallest_effect": plan.smallest_effect, "alpha": plan.alpha,
                 "threads_per_cell": plan.threads, "guidance": float(get(arms[0].run, "sample.guide.scale")),
                 "learning_rate_policy": plan.learning_rates, "sample_count": plan.samples},
        "made": {"version": _version(), "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
                 "command": command, "machine": f"{platform.system()} {platform.machine()}", "seconds": seconds},
        "metrics": [_metric(name, base) for name in _order(plan)],
        "arms": [_arm(arm, cells, found.get(arm.name, {}), board, (costs or {}).get(arm.name), out,
                      apart=other_loss(arm, arms[0])) for arm in arms],
        "effects": [finding.row() for finding in rows],
        "noise": [{"metric": floor.metric, "mean": floor.mean, "sd": floor.sd, "cv": floor.cv, "n": floor.n}
                  for floor in floors],
        "detectable": _detectable(rows, len(arms) - 1, plan.alpha),
        "grids": _grids(arms, found), "remarks": remarks(plan, arms, found),
        "progress": {"done": done, "total": len(cells), "seconds_left": board.seconds_left(lanes) if board else None}})


def _order(plan: Plan) -> list[str]:
    return [plan.primary, *(name for name in SHOWN if name != plan.primary)]


def _version() -> str:
    from importlib.metadata import version
    return version("fulcrum-lab")


def _metric(name: str, base: Mapping[int, Any]) -> dict[str, Any]:
    meta = METRICS[name]
    card = next(iter(base.values()))["metrics"][name]["card"] if base else {}
    return {"name": name, "label": meta.label, "unit": meta.unit, "better": meta.better, "explain": meta.explain,
            "card": card}


def _arm(arm: Arm, cells: Sequence[Cell], found: Mapping[int, Any], board: Board | None, cost: Cost | None,
         out: Path, apart: bool) -> dict[str, Any]:
    own = [cell for cell in cells if cell.arm == arm.name]
    return {
        "name": arm.name, "phrase": str(arm.phrase), "label": label(arm),
        "says": "; ".join(lever.card.says for lever in arm.levers) or "the recipe as it is", "compound": arm.compound,
        "diff": [change._asdict() for change in arm.changes],
        "cost": {"flops_ratio": cost.flops_ratio, "time_ratio": cost.time_ratio,
                 "parameters_ratio": cost.parameters_ratio} if cost else {},
        "claims": [claim.model_dump(include={"metric", "change", "scope", "source", "note"})
                   for lever in arm.levers for claim in lever.card.claims],
        "cells": [_cell(cell, found.get(cell.seed), board, out, apart) for cell in own]}


def label(arm: Arm) -> str:
    """What a person calls the arm: "Short captions", "Muon"."""
    return arm.name.replace("_", " ").capitalize() if arm.changes else "the baseline"


def _cell(cell: Cell, found: Mapping[str, Any] | None, board: Board | None, out: Path,
          apart: bool) -> dict[str, Any]:
    """What the report shows of a cell; a loss of another kind is `apart` and not put beside the baseline's."""
    state = "done" if found else (board.state.get(cell.key, "waiting") if board else "waiting")
    curve = [] if apart else _lines(out / cell.key / "curve.jsonl")
    return {
        "seed": cell.seed, "key": cell.key, "state": state, "images": found["result"]["images"] if found else 0,
        "final": {name: value["value"] for name, value in found["metrics"].items()
                  if not (apart and name == "validation_loss")} if found else {},
        "curve": [{"images": line["images"], "seconds": line["seconds"],
                   "values": {"validation_loss": line["validation_loss"]}} for line in curve],
        "loss": [{"images": line["images"], "loss": line["loss"]} for line in _lines(out / cell.key / "record.jsonl")]}


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue                                         # the last line of a run that is being written
    return found


def _detectable(rows: Sequence[Finding], arms: int, alpha: float) -> dict[str, float]:
    """The smallest effect that this study would have seen, from the loudest arm of each metric."""
    seen: dict[str, float] = {}
    for row in rows:
        value = rule_detectable(row.effect.sd, row.effect.n, arms=arms, alpha=alpha) if row.effect.sd > 0 else None
        if value is not None:
            seen[row.effect.metric] = max(seen.get(row.effect.metric, 0.0), value)
    return seen


def _grids(arms: Sequence[Arm], found: Mapping[str, Mapping[int, Any]]) -> dict[str, Any]:
    """The same prompts and noises for every arm, at the first seed that the arm has finished."""
    shown = [(arm.name, *next(iter(sorted(found[arm.name].items())))) for arm in arms if found.get(arm.name)]
    return {"prompts": shown[0][2]["prompts"] if shown else [], "reference": None,
            "arms": [{"arm": name, "seed": seed, "images": cell["pictures"]} for name, seed, cell in shown]}


def remarks(plan: Plan, arms: Sequence[Arm], found: Mapping[str, Mapping[int, Any]]) -> list[str]:
    said = [f"Learning rates: {plan.learning_rates}. Every arm ran at the recipe's rate; no arm was tuned, so a verdict on "
            "an optimizer or a precision holds at this rate only."]
    if len(plan.seeds) < pairs_needed(plan.alpha):
        said.append(f"{len(plan.seeds)} pairs cannot reach significance at {plan.alpha:g}: it takes "
                    f"{pairs_needed(plan.alpha)}. Read the intervals, not the verdicts.")
    said += [f"{arm.name}: {lever.card.warns}" for arm in arms for lever in arm.levers if lever.card.warns]
    said += [f"{arm.name} is a compound of {len(arm.levers)} levers: its effect belongs to them together."
             for arm in arms if arm.compound]
    apart = [arm.name for arm in arms if other_loss(arm, arms[0])]
    said += [f"The validation loss of {', '.join(apart)} is not compared: the objective, the latent space or the prompts "
             "are not the baseline's."] if apart else []
    labelled = {arm.name: may_differ(arm) for arm in arms if may_differ(arm)}
    said += [f"{name} is evaluated with other {', '.join(fields)} than the baseline." for name, fields in labelled.items()]
    return said
