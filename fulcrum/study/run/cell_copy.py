"""A cell from the runs of another machine: found, verified, and copied whole or not at all."""

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.atomic import folder_atomic, write_atomic, write_json
from fulcrum.files.paths import explained, open_regular, read_regular
from fulcrum.files.sealed import read_sealed
from fulcrum.measure.preview import NUMBERS, require_unchanged
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.study.run.cell import Cell, pictures
from fulcrum.study.run.measuring.evaluation_points import point_path, read_points
from fulcrum.training import checkpoint
from fulcrum.training.dist.machine import MACHINE, unlike
from fulcrum.training.run_folder import RunFolder, description
from fulcrum.training.start_weights import trained_weights

HINT = "copy it from its machine again, or run it here"


class CellFiles(NamedTuple):
    """What one place has of a cell."""

    place: Path
    outcome: dict[str, Any]  # what was measured, how it failed, what a try of a rate found, how a trunk ended
    result: dict[str, Any] | None  # of its training; None: it failed
    names: tuple[str, ...]  # of the files that hold this

    @property
    def numbers(self) -> Any:
        """What another copy of the cell must agree with."""
        values = {name: value["value"] for name, value in self.outcome.get("metrics", {}).items()}
        return values or [self.outcome.get(name) for name in ("why", "loss", "weights_sha256")]

    def contradicts(self, other: "CellFiles") -> bool:
        return bool(self.numbers != other.numbers)

    def ran_alike(self, other: "CellFiles") -> bool:
        """Both say where they ran, and it was the same kind of machine."""
        known = all(one.outcome.get(MACHINE) for one in (self, other))
        return known and not unlike(self.outcome, other.outcome)


def find_cell(folder: Path, cell: Cell, how: str, shares: tuple[float, ...]) -> CellFiles | None:
    """What a folder of runs has of a cell that is finished or has failed, all of it verified; None: nothing."""
    place = folder / cell.key
    if place.is_symlink():
        raise BadInput(f"{place} is a link, expected the folder of a run", "put the folder itself there")
    if not cell.known or not place.is_dir():
        return None
    if cell.kind == "trunk":
        result = RunFolder(place).result()
        return None if result is None else CellFiles(place, result, result, _present(place, *NUMBERS))
    if cell.kind == "rate":
        tried = _sealed(place / f"rate-{how}.json", cell)
        return None if tried is None else CellFiles(place, tried, RunFolder(place).result(), (f"rate-{how}.json",))
    measured = _sealed(place / f"measured-{how}.json", cell)
    if measured is not None:
        return _measured(place, cell, measured, how, shares)
    failure = _sealed(place / f"failed-{how}.json", cell)
    if failure is None:
        return None
    require_unchanged(place, {})
    return CellFiles(place, failure, None, _present(place, f"failed-{how}.json", *NUMBERS))


def copy_cell(files: CellFiles, cell: Cell, out: Path, weights: bool) -> None:
    """Into `out`, beside what is there; weights where the other place has them, and they are those it ended with.

    BadInput says what is wrong with the place, RunFailed that it could not be written here.
    """
    saved = checkpoint.listing(files.place / "checkpoints")[-1:] if weights and files.result is not None else []
    if saved:
        try:
            trained_weights(RunFolder(files.place))
        except RunFailed as error:  # damaged, or others than the run ended with
            raise BadInput(error.message, HINT) from error
    with (
        explained("copy", files.place, then="start the same command again"),
        folder_atomic(out / cell.key) as aside,
    ):
        write_json(aside / "about.json", description(cell.run, cell.seed, cell.phrase, cell.user_files), flush=False)
        if files.result is not None:
            write_json(aside / "result.json", files.result, flush=False)
        for name in files.names:
            with explained("read", files.place / name, kind=BadInput):
                content = read_regular(files.place / name, follow=False)
            write_atomic(aside / name, content, flush=False)
        for one in saved:
            (aside / "checkpoints" / one.name).mkdir(parents=True)
            for path in sorted(one.iterdir()):
                _copy(path, aside / "checkpoints" / one.name / path.name)


def _measured(place: Path, cell: Cell, measured: dict[str, Any], how: str, shares: tuple[float, ...]) -> CellFiles:
    result = RunFolder(place).result()
    if result is not None and result["weights_sha256"] != measured["result"]["weights_sha256"]:
        raise BadInput(f"{place} was measured with other weights than it ended with", HINT)
    require_unchanged(place, measured)
    pictures(place.parent, cell.key, how)
    points = [point_path(place, how, images).name for images in read_points(place, cell.run, how, shares)]
    names = (f"measured-{how}.json", f"pictures-{how}.json", *points, *_present(place, *NUMBERS))
    return CellFiles(place, measured, measured["result"], names)


def _sealed(path: Path, cell: Cell) -> dict[str, Any] | None:
    if not os.path.lexists(path):
        return None
    value = read_sealed(path, HINT)
    if value.get("key") != cell.key:
        raise BadInput(f"{path} belongs to the cell {value.get('key')}", HINT)
    return value


def _present(place: Path, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if os.path.lexists(place / name))


def _copy(source: Path, target: Path) -> None:
    with explained("read", source, kind=BadInput):
        handle = open_regular(source)
    with open(handle, "rb") as stream, open(target, "xb") as copy:
        shutil.copyfileobj(stream, copy)
