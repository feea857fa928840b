"""A cell: one arm under one seed, and what is known of it on the disk: not run, failed, or finished with its numbers.

A study also trains cells that only prepare others: the trunk of a seed, and the tries of a learning rate.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fulcrum.files.paths import read_regular, remove, set_aside
from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.files.shipped import asset_hash
from fulcrum.judge.card import MEASURE_VERSION
from fulcrum.measure.evaluation import REFERENCE, SEED, VALIDATION, judge_hash
from fulcrum.spec.edit import digest
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.run import RunSpec, System
from fulcrum.study.run.measuring.evaluation_points import HINT, at, point_path
from fulcrum.training.dist.machine import MACHINE, machine_facts
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.trackers import RunLabels, Trackers

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
    """What was measured of a finished cell, or None; a file that was changed by hand or belongs elsewhere is refused."""
    if not cell.known:
        return None
    if cell.kind == "trunk":
        return RunFolder(out / cell.key).result()
    path = out.joinpath(cell.key, f"measured-{how}.json" if cell.kind == "arm" else f"rate-{how}.json")
    if not os.path.exists(path):
        return None
    fields = {"key": str, "result": dict, "metrics": dict} if cell.kind == "arm" else {"key": str}
    measured = read_sealed(path, HINT, fields=fields)
    if measured["key"] != cell.key:
        raise BadInput(f"{path} belongs to the cell {measured['key']}", "it was copied there by hand: " + HINT)
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
    """How a cell failed by itself, which is what it found: {why, images, ...}; None of one that did not.

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
    if outcome.get("key") != cell.key or not all(isinstance(outcome.get(name), kind) for name, kind in shape.items()):
        set_aside(path)
        return None
    return None if finished(out, cell, how) else outcome


def failures(cells: Iterable[Cell], out: Path, how: str) -> dict[str, dict[int, str]]:
    """arm -> seed -> why the cell failed; arms without a failed cell are not named."""
    reasons: dict[str, dict[int, str]] = {}
    for cell in cells:
        if (outcome := failed(out, cell, how)) is not None:
            reasons.setdefault(cell.arm, {})[cell.seed] = str(outcome["why"])
    return reasons


def write_failure(out: Path, cell: Cell, how: str, error: TrainingFailed, images: int, system: System) -> None:
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
    """Remove the outcomes of failed cells, so that they are run again; returns how many there were."""
    again = [cell for cell in cells if failed(out, cell, how) is not None]
    for cell in again:
        remove(out / cell.key / f"failed-{how}.json")
    return len(again)


def reached(out: Path, cell: Cell, how: str, until: float | None) -> bool:
    """Is a cell finished, or as far as was asked?"""
    if finished(out, cell, how) is not None:
        return True
    return until is not None and cell.known and point_path(out / cell.key, how, at(cell.run, until)).exists()


def pictures(out: Path, key: str, how: str) -> dict[str, Any]:
    """{prompts, pictures} of a finished cell."""
    return read_sealed(out / key / f"pictures-{how}.json", HINT, fields={"prompts": list, "pictures": list})
