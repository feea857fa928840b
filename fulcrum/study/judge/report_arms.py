"""Arms, their cells and their pictures as the report shows them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fulcrum.study.arm_cost import Cost
from fulcrum.study.judge.findings import CLAIMED_AS, Found
from fulcrum.study.judge.verdict import Claimed, Finding, claim_verdict, claimed_direction
from fulcrum.study.plan.arm_proof import Arm, baseline_of
from fulcrum.study.plan.plan import Plan
from fulcrum.study.run.cell import Cell, pictures
from fulcrum.study.run.curve_lines import read_lines
from fulcrum.study.run.evaluation_points import read_points
from fulcrum.study.run.runner import Board


def shown_arm(
    arm: Arm, arms: Sequence[Arm], cells: list[dict[str, Any]], cost: Cost | None, rows: Sequence[Finding]
) -> dict[str, Any]:
    return {
        "name": arm.name,
        "phrase": str(arm.phrase),
        "label": label(arm),
        "says": "; ".join(lever.card.says for lever in arm.added) or _says(arm),
        "compound": arm.compound,
        "against": "" if baseline_of(arm, arms) is arms[0] else arm.against,
        "scale": arm.scale,
        "labels": arm.labels,
        "diff": [change._asdict() for change in arm.changes],
        "cost": {
            "flops_ratio": cost.flops_ratio,
            "time_ratio": cost.time_ratio,
            "memory_ratio": cost.memory_ratio,
            "parameters_ratio": cost.parameters_ratio,
            "parts": dict(cost.parts),
        }
        if cost
        else {},
        "claims": [
            {
                **claim.model_dump(include={"metric", "change", "scope", "source", "note"}),
                "verdict": _against_claim(arm, claim, rows),
                "seen": _stands_for(claim.metric, rows),
            }
            for lever in arm.added
            for claim in lever.card.claims
        ],
        "cells": cells,
    }


def _says(arm: Arm) -> str:
    gone = "; ".join(lever.card.says for lever in arm.removed)
    return f"taken away: {gone}" if gone else "the recipe as it is"


def _against_claim(arm: Arm, claim: Any, rows: Sequence[Finding]) -> str | None:
    own = [row for row in rows if row.effect.arm == arm.name and CLAIMED_AS.get(row.effect.metric) == claim.metric]
    if not own:
        return None
    said = Claimed(claimed_direction(claim.change, "lower"), "scaled" if claim.carries else "other")
    return claim_verdict(own[0].verdict, said)


def _stands_for(claimed: str, rows: Sequence[Finding]) -> str:
    """Our metric that stands beside a published one, if the study has it."""
    measured = {row.effect.metric for row in rows}
    return next((ours for ours, theirs in CLAIMED_AS.items() if theirs == claimed and ours in measured), "")


def label(arm: Arm) -> str:
    """What a person calls the arm: "Short captions", "Muon"."""
    if arm.is_baseline:
        return f"the baseline [{arm.scale}]" if arm.scale else "the baseline"
    return arm.name[:1].upper() + arm.name[1:].replace("_", " ")


def shown_cell(
    cell: Cell,
    found: Mapping[str, Any] | None,
    board: Board | None,
    out: Path,
    curves: Mapping[str, Sequence[Mapping[str, Any]]],
    most: int,
    ended: bool,
    apart: bool,
) -> dict[str, Any]:
    """What the report shows of a cell; a loss of another kind is `apart` and not put beside the baseline's."""
    state = "done" if found else "stopped" if ended else (board.state.get(cell.key, "waiting") if board else "waiting")
    curve = [
        {
            **point,
            "values": {name: value for name, value in point["values"].items() if not (apart and name == "validation_loss")},
        }
        for point in curves.get(cell.key, ())
    ]
    lines = read_lines(out.joinpath(cell.key, "record.jsonl"), found, most)
    return {
        "seed": cell.seed,
        "key": cell.key,
        "state": state,
        "budget": cell.run.budget.images,
        "images": found["result"]["images"] if found else lines[-1]["images"] if lines else 0,
        "final": {
            name: value["value"] for name, value in found["metrics"].items() if not (apart and name == "validation_loss")
        }
        if found
        else {},
        "curve": [point for point in curve if point["values"]],
        "loss": [{"images": line["images"], "loss": line["loss"]} for line in lines],
    }


def curve_of(cell: Cell, out: Path, plan: Plan, found: Mapping[str, Any] | None, how: str) -> list[dict[str, Any]]:
    """A cell's values over images: the held-out loss at every look, all metrics at the plan's evaluation points."""
    points = {
        line["images"]: {
            "images": line["images"],
            "seconds": line["seconds"],
            "values": {"validation_loss": line["validation_loss"]},
        }
        for line in read_lines(out.joinpath(cell.key, "curve.jsonl"), found)
    }
    measured = read_points(out / cell.key, cell.run, how, plan.evaluations) if len(plan.evaluations) > 1 else {}
    if found and measured:
        measured[cell.run.budget.images] = found["metrics"]
    for images, metrics in measured.items():
        point = points.setdefault(images, {"images": images, "seconds": None, "values": {}})
        point["values"] = {**{name: value["value"] for name, value in metrics.items()}, **point["values"]}
    return [points[images] for images in sorted(points)]


def grids(arms: Sequence[Arm], cells: Sequence[Cell], found: Found, out: Path, how: str) -> dict[str, Any]:
    """The same prompts and noises for every arm, at the first seed that the arm has finished."""
    keys = {(cell.arm, cell.seed): cell.key for cell in cells}
    first = [(arm.name, min(found[arm.name])) for arm in arms if found.get(arm.name)]
    shown = [(name, seed, pictures(out, keys[name, seed], how)) for name, seed in first]
    return {
        "prompts": shown[0][2]["prompts"] if shown else [],
        "reference": None,
        "arms": [{"arm": name, "seed": seed, "images": drawn["pictures"]} for name, seed, drawn in shown],
    }
