"""Arms, their cells and their pictures as the report shows them."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fulcrum.judge.schema import ArmCost, ArmResult, CellResult, ClaimResult, CurvePoint, GridArm, Grids, LossPoint
from fulcrum.measure.preview import read_lines
from fulcrum.study.judge.pairing import Measurements
from fulcrum.study.judge.plan_facts import baseline_says
from fulcrum.study.plan.arms import Arm, baseline_of
from fulcrum.study.plan.plan import Plan
from fulcrum.study.run.cell import Cell, pictures
from fulcrum.study.run.measuring.evaluation_points import read_points
from fulcrum.study.run.workers.runner import Board
from fulcrum.training.dist.machine import machine_words

# Names of levers that are spelled in their own way; longer ones first.
SPELLED = {
    "end to end": "End-to-end",
    "min snr": "Min-SNR",
    "x prediction": "x-prediction",
    "bf16": "BF16",
    "edm": "EDM",
    "ema": "EMA",
    "irepa": "iREPA",
    "lpips": "LPIPS",
    "repa": "REPA",
    "sft": "SFT",
    "snr": "SNR",
    "sprint": "SPRINT",
    "tread": "TREAD",
}


def shown_arm(
    plan: Plan,
    arm: Arm,
    arms: Sequence[Arm],
    cells: Sequence[CellResult],
    cost: ArmCost | None,
    claims: Sequence[ClaimResult],
) -> ArmResult:
    return ArmResult(
        name=arm.name,
        phrase=str(arm.phrase),
        label=label(arm),
        says="; ".join(lever.card.says for lever in arm.added) or _says(plan, arm),
        compound=arm.compound,
        against="" if baseline_of(arm, arms) is arms[0] else arm.against,
        scale=arm.scale,
        labels=tuple(label.text for label in arm.labels),
        codes=arm.labels,
        diff=tuple(arm.changes),
        cost=cost or ArmCost(),
        claims=tuple(claims),
        cells=tuple(cells),
    )


def _says(plan: Plan, arm: Arm) -> str:
    """Of an arm that adds nothing: a stack without one of its levers, or a baseline."""
    gone = "; ".join(lever.card.says for lever in arm.removed)
    return f"taken away: {gone}" if gone else baseline_says(plan, arm)


def label(arm: Arm) -> str:
    """What a person calls the arm: "Short captions", "Muon", "BF16 storage"."""
    if arm.is_baseline:
        return f"the baseline [{arm.scale}]" if arm.scale else "the baseline"
    words = re.sub(rf"\b({'|'.join(SPELLED)})\b", lambda word: SPELLED[word[0]], arm.name.replace("_", " "))
    return words if words.startswith(tuple(SPELLED.values())) else words[:1].upper() + words[1:]


def shown_cell(
    cell: Cell,
    measured: Mapping[str, Any] | None,
    board: Board | None,
    out: Path,
    curve: Sequence[CurvePoint],
    most: int,
    ended: bool,
    apart: bool,
    outcome: Mapping[str, Any] | None = None,
) -> CellResult:
    """What the report shows of a cell; a loss of another kind is `apart` and not put beside the baseline's.

    `outcome` is of a cell that failed by itself.
    """
    final = {name: value["value"] for name, value in measured["metrics"].items()} if measured else {}
    if apart:
        final.pop("validation_loss", None)
        curve = [point.model_copy(update={"values": _without_loss(point)}) for point in curve]
    lines = read_lines(out.joinpath(cell.key, "record.jsonl"), measured, most)
    going = board.state.get(cell.key, "waiting") if board else "waiting"
    return CellResult(
        seed=cell.seed,
        key=cell.key,
        state="done" if measured else "failed" if outcome else "stopped" if ended else going,
        budget=cell.run.budget.images,
        images=measured["result"]["images"] if measured else outcome["images"] if outcome else _images(lines),
        final=final,
        curve=tuple(point for point in curve if point.values),
        loss=tuple(LossPoint(images=line["images"], loss=line["loss"]) for line in lines),
        failure=str(outcome["why"]) if outcome else "",
        machine=machine_words(measured or outcome or {}),
    )


def _images(lines: Sequence[Mapping[str, Any]]) -> int:
    return int(lines[-1]["images"]) if lines else 0


def _without_loss(point: CurvePoint) -> dict[str, float | None]:
    return {name: value for name, value in point.values.items() if name != "validation_loss"}


def curve_of(cell: Cell, out: Path, plan: Plan, measured: Mapping[str, Any] | None, how: str) -> list[CurvePoint]:
    """A cell's values over images: the held-out loss at every look, all metrics at the plan's evaluation points."""
    looks = {line["images"]: line for line in read_lines(out.joinpath(cell.key, "curve.jsonl"), measured)}
    points = read_points(out / cell.key, cell.run, how, plan.evaluations) if len(plan.evaluations) > 1 else {}
    if measured and points:
        points[cell.run.budget.images] = measured["metrics"]
    curve = []
    for images in sorted(looks.keys() | points.keys()):
        values = {name: value["value"] for name, value in points.get(images, {}).items()}
        if images in looks:
            values["validation_loss"] = looks[images]["validation_loss"]
        seconds = looks[images]["seconds"] if images in looks else None
        curve.append(CurvePoint(images=images, seconds=seconds, values=values))
    return curve


def grids(arms: Sequence[Arm], cells: Sequence[Cell], measured: Measurements, out: Path, how: str) -> Grids:
    """The same prompts and noises for every arm, at the first seed that the arm has finished."""
    keys = {(cell.arm, cell.seed): cell.key for cell in cells}
    first = [(arm.name, min(measured[arm.name])) for arm in arms if measured.get(arm.name)]
    shown = [(name, seed, pictures(out, keys[name, seed], how)) for name, seed in first]
    return Grids(
        prompts=tuple(shown[0][2]["prompts"]) if shown else (),
        arms=tuple(GridArm(arm=name, seed=seed, images=tuple(drawn["pictures"])) for name, seed, drawn in shown),
    )
