"""Finished cells in a small folder for a repository: one line each, no weights."""

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fulcrum.files.atomic import folder_atomic, write_atomic, write_json
from fulcrum.files.paths import explained, open_regular, read_regular
from fulcrum.files.sealed import (
    CHECK,
    is_intact,
    read_json,
    read_records,
    read_sealed,
    sealed,
    write_sealed,
)
from fulcrum.judge.cells import unlike
from fulcrum.measure.preview import (
    CURVE,
    NUMBERS,
    line_hashes,
    read_lines,
    require_unchanged,
    write_curve,
)
from fulcrum.spec.edit import digest, explain, quoted
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.studies.cell import Cell, pictures, point_path, read_points
from fulcrum.training import checkpoint
from fulcrum.training.dist.machine import MACHINE
from fulcrum.training.run_folder import RunFolder, description
from fulcrum.training.start_weights import trained_weights
from fulcrum.training.trained_run import KEY

# --------------------------------------------------------------------------------------------------
# What a line of a kept study may hold, held against it once: whoever writes a line can seal it,
# whatever it says.


MOST = 1e300  # of any number: what is larger is no measurement, and could not be added to another
FAR = 1 << 53  # of any count: a float tells such numbers apart


def _number(value: Any) -> Any:
    """A number that can be reckoned with; NaN and infinity are readings that a training diverged
    to."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"expected a number, found {quoted(value)}")
    if abs(value) > MOST and value not in (math.inf, -math.inf):
        raise ValueError(f"expected a number up to {MOST:g}, found {quoted(value)}")
    return value


def _finite(value: Any) -> Any:
    if not math.isfinite(_number(value)):
        raise ValueError(f"expected a finite number, found {value}")
    return value


Sane = Annotated[float, BeforeValidator(_number)]
Finite = Annotated[float, BeforeValidator(_finite)]
Count = Annotated[int, Field(ge=0, le=FAR)]
Listed = Field(strict=False)  # JSON has lists, and no tuples
# value, low, high, name of the card
Metrics = dict[str, Annotated[tuple[Finite, Finite, Finite, str], Listed]]


class _Checked(BaseModel):
    """Fields that are read; others are let be."""

    model_config = ConfigDict(strict=True, extra="allow")


class KeptMachine(_Checked):
    """The machine of a cell."""

    processor: str
    instructions: str
    device: str
    torch: str
    fulcrum: str
    threads: Count
    processes: Count


class KeptTraining(_Checked):
    """How a training ended."""

    weights_sha256: str
    images: Count
    skipped: Count | None = None
    rolled_back: list[Any] | None = None


class KeptOutcome(_Checked):
    """What was found of a cell: its metrics, why it failed, or the loss of a try."""

    metrics: Annotated[Metrics, Field(min_length=1)] | None = None
    #: empty: it does not say
    machine: Annotated[KeptMachine | None, BeforeValidator(lambda facts: facts or None)] = None
    why: str = ""
    images: Count = 0
    loss: Sane | None = None
    rate: Finite = 1.0


class KeptLine(_Checked):
    arm: str
    seed: Count
    kind: Literal["arm", "rate", "trunk"]
    result: KeptTraining | None = None
    outcome: KeptOutcome | None = None
    curve: list[Annotated[tuple[Count, Sane, Sane], Listed]] = []  # images, seconds, held-out loss
    points: dict[Annotated[str, Field(pattern=r"^[0-9]{1,15}$")], Metrics] = {}

    @model_validator(mode="after")
    def _whole(self) -> "KeptLine":
        """Each kind has what is asked of it."""
        measured = self.outcome is not None and self.outcome.metrics is not None
        if self.result is None and (measured or self.kind == "trunk"):
            raise ValueError("how the training ended is missing: expected `result`")
        if self.outcome is None and self.kind != "trunk":
            raise ValueError("what was found is missing: expected `outcome`")
        return self


class KeptPictures(_Checked):
    prompts: list[str]
    pictures: list[str]


def fault_of_line(line: Mapping[str, Any]) -> str:
    """What of a line is not what a study keeps, in words; empty: nothing."""
    return _fault(KeptLine, line)


def fault_of_pictures(drawn: Mapping[str, Any]) -> str:
    """The same of the pictures of a cell."""
    return _fault(KeptPictures, drawn)


def _fault(kind: type[BaseModel], value: Mapping[str, Any]) -> str:
    try:
        kind.model_validate(value)
    except ValidationError as error:
        return explain(error)
    return ""


# --------------------------------------------------------------------------------------------------
# A cell from the runs of another machine: found, verified, and copied whole or not at all.


HINT = "copy it from its machine again, or run it here"


class CellFiles(NamedTuple):
    """What one place has of a cell."""

    place: Path
    #: what was measured, how it failed, what a try of a rate found, how a trunk ended
    outcome: dict[str, Any]
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
        return known and not unlike(self.outcome[MACHINE], other.outcome[MACHINE])


def find_cell(folder: Path, cell: Cell, how: str, shares: tuple[float, ...]) -> CellFiles | None:
    """What a folder of runs has of a cell that is finished or has failed, all of it verified; None:
    nothing."""
    place = folder / cell.key
    if place.is_symlink():
        raise BadInput(
            f"{place} is a link, expected the folder of a run", "put the folder itself there"
        )
    if not cell.known or not place.is_dir():
        return None
    if cell.kind == "trunk":
        result = RunFolder(place).result()
        return (
            None if result is None else CellFiles(place, result, result, _present(place, *NUMBERS))
        )
    if cell.kind == "rate":
        tried = _sealed(place / f"rate-{how}.json", cell)
        return (
            None
            if tried is None
            else CellFiles(place, tried, RunFolder(place).result(), (f"rate-{how}.json",))
        )
    measured = _sealed(place / f"measured-{how}.json", cell)
    if measured is not None:
        return _measured(place, cell, measured, how, shares)
    failure = _sealed(place / f"failed-{how}.json", cell)
    if failure is None:
        return None
    require_unchanged(place, {})
    return CellFiles(place, failure, None, _present(place, f"failed-{how}.json", *NUMBERS))


def copy_cell(files: CellFiles, cell: Cell, out: Path, weights: bool) -> None:
    """Into `out`, beside what is there; weights where the other place has them, and they are those
    it ended with.

    BadInput says what is wrong with the place, RunFailed that it could not be written here.
    """
    saved = (
        checkpoint.listing(files.place / "checkpoints")[-1:]
        if weights and files.result is not None
        else []
    )
    if saved:
        try:
            trained_weights(RunFolder(files.place))
        except RunFailed as error:  # damaged, or others than the run ended with
            raise BadInput(error.message, HINT) from error
    with (
        explained("copy", files.place, then="start the same command again"),
        folder_atomic(out / cell.key) as aside,
    ):
        write_json(
            aside / "about.json",
            description(cell.run, cell.seed, cell.phrase, cell.user_files),
            flush=False,
        )
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


def _measured(
    place: Path, cell: Cell, measured: dict[str, Any], how: str, shares: tuple[float, ...]
) -> CellFiles:
    result = RunFolder(place).result()
    if result is not None and result["weights_sha256"] != measured["result"]["weights_sha256"]:
        raise BadInput(f"{place} was measured with other weights than it ended with", HINT)
    require_unchanged(place, measured)
    pictures(place.parent, cell.key, how)
    points = [
        point_path(place, how, images).name for images in read_points(place, cell.run, how, shares)
    ]
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


# --------------------------------------------------------------------------------------------------
# Finished cells in a small folder that fits into a repository: one line for each, cards once, no
# weights.
#
# cells.jsonl         what each cell found, on which machine, its held-out curve; every line with a
#                     checksum of itself
# cards.json          the metrics' cards, by the names that the lines call them
# pictures/KEY.json   of the first seed of each arm


CELLS, CARDS, PICTURES = "cells.jsonl", "cards.json", "pictures"
KEPT_HINT = "take it from the repository again"
CURVE_FIELDS = ("images", "seconds", "validation_loss")
# fields of a cell's file that stand in its line already
OF_THE_LINE = ("arm", "seed", "key", "result", "lines", CHECK)


class KeptCells(NamedTuple):
    """The lines of a folder by the cells' keys, and what they refer to."""

    lines: dict[str, dict[str, Any]]
    cards: dict[str, dict[str, Any]]
    pictures: dict[str, dict[str, Any]]

    def add(self, cell: Cell, files: CellFiles, how: str, shares: tuple[float, ...]) -> bool:
        """One more cell, as it was found and verified; False: it was there, with the same
        numbers."""
        line = self._line(cell, files, how, shares)
        if cell.key in self.lines:
            if _numbers(self.lines[cell.key]) != _numbers(line):
                raise BadInput(
                    f"{cell.arm}, seed {cell.seed} ({cell.key}) is kept with other numbers than"
                    f" {files.place} has",
                    "it ran on another kind of machine, or one of them was edited: keep one, and"
                    " take the other away",
                )
            return False
        self.lines[cell.key] = line
        return True

    def add_pictures(self, out: Path, key: str, how: str) -> None:
        """What the report shows of a cell; of one that was unpacked without pictures there is
        nothing to add."""
        drawn = pictures(out, key, how)
        if drawn["pictures"]:
            self.pictures[key] = {name: drawn[name] for name in ("prompts", "pictures")}

    def _line(
        self, cell: Cell, files: CellFiles, how: str, shares: tuple[float, ...]
    ) -> dict[str, Any]:
        outcome = {name: value for name, value in files.outcome.items() if name not in OF_THE_LINE}
        line: dict[str, Any] = {
            "key": cell.key,
            "arm": cell.arm,
            "seed": cell.seed,
            "kind": cell.kind,
        }
        if files.result is not None:
            # a path of its machine
            line["result"] = {name: value for name, value in files.result.items() if name != "run"}
        if cell.kind == "trunk":
            return sealed(line)
        if "metrics" in outcome:
            outcome["metrics"] = self._packed(outcome["metrics"])
            curve = read_lines(files.place / CURVE, line_hashes(files.outcome))
            line["curve"] = [[point[name] for name in CURVE_FIELDS] for point in curve]
            points = read_points(files.place, cell.run, how, shares)
            line["points"] = {
                str(images): self._packed(metrics) for images, metrics in points.items()
            }
        return sealed({**line, "outcome": outcome})

    def _packed(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """Metrics with the names of their cards."""
        packed = {}
        for name, value in metrics.items():
            card = digest(value["card"])[:10]
            self.cards[card] = value["card"]
            packed[name] = [value["value"], value["low"], value["high"], card]
        return packed

    def unpacked(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: {"value": value, "low": low, "high": high, "card": self.cards[card]}
            for name, (value, low, high, card) in metrics.items()
        }

    def write(self, folder: Path) -> None:
        """Cards and pictures first: a line speaks of them."""
        (folder / PICTURES).mkdir(parents=True, exist_ok=True)
        write_json(folder / CARDS, self.cards)
        for key, drawn in self.pictures.items():
            write_sealed(folder / PICTURES / f"{key}.json", drawn)
        order = sorted(
            self.lines.values(),
            key=lambda line: (line["kind"], line["arm"], line["seed"], line["key"]),
        )
        write_atomic(folder / CELLS, "".join(json.dumps(line) + "\n" for line in order))


def read_kept(folder: Path) -> KeptCells:
    """What a folder keeps; every line and every card must be as it was written, and hold what a
    study writes."""
    kept = KeptCells({}, {}, {})
    if not (folder / CELLS).exists():
        return kept
    kept.cards.update(read_json(folder / CARDS, KEPT_HINT))
    wrong = [name for name, card in kept.cards.items() if digest(card)[:10] != name]
    if wrong:
        raise BadInput(
            f"the card {wrong[0]} in {folder / CARDS} was changed after it was written", KEPT_HINT
        )
    for place, line in enumerate(read_records(folder / CELLS).require_good(KEPT_HINT), 1):
        if not is_intact(line):
            raise BadInput(
                f"line {place} of {folder / CELLS} was changed after it was written", KEPT_HINT
            )
        if not KEY.fullmatch(str(line.get("key"))):  # it names a folder
            raise BadInput(
                f"line {place} of {folder / CELLS} is of no run: its key is {line.get('key')!r}",
                KEPT_HINT,
            )
        if fault := fault_of_line(line):
            raise BadInput(
                f"line {place} of {folder / CELLS} is not what a study keeps: {fault}", KEPT_HINT
            )
        kept.lines[line["key"]] = line
    for key in kept.lines:
        path = folder / PICTURES / f"{key}.json"
        if path.exists():
            kept.pictures[key] = drawn = read_sealed(path, KEPT_HINT)
            if fault := fault_of_pictures(drawn):
                raise BadInput(f"{path} is not what a study keeps: {fault}", KEPT_HINT)
    return kept


def unpack(kept: KeptCells, how: str, runs: Path) -> None:
    """The kept cells as the folders of runs that a study reads: all but weights, training losses
    and most pictures."""
    for key, line in kept.lines.items():
        try:
            _unpack_cell(kept, key, line, how, runs / key)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise BadInput(
                f"the cell {key} in {CELLS} is not what a study keeps ({why})", KEPT_HINT
            ) from None


def _unpack_cell(kept: KeptCells, key: str, line: Mapping[str, Any], how: str, place: Path) -> None:
    place.mkdir(parents=True)
    result = {**line["result"], "run": key} if "result" in line else None
    if result is not None:
        write_json(place / "result.json", result, flush=False)
    outcome = {**line.get("outcome", {}), **{name: line[name] for name in ("arm", "seed", "key")}}
    if line["kind"] == "rate":
        write_sealed(place / f"rate-{how}.json", outcome)
    elif "metrics" in outcome:
        measured = {
            **outcome,
            "metrics": kept.unpacked(outcome["metrics"]),
            "result": result,
            "lines": {},
        }
        write_sealed(place / f"measured-{how}.json", measured)
        write_sealed(
            place / f"pictures-{how}.json", kept.pictures.get(key, {"prompts": [], "pictures": []})
        )
        write_curve(place, [dict(zip(CURVE_FIELDS, point, strict=True)) for point in line["curve"]])
        for images, metrics in line["points"].items():
            value = {"images": int(images), "metrics": kept.unpacked(metrics)}
            write_sealed(point_path(place, how, int(images)), value)
    elif line["kind"] == "arm":
        write_sealed(place / f"failed-{how}.json", outcome)


def _numbers(line: Mapping[str, Any]) -> Any:
    """What two lines of one cell must agree in."""
    outcome = line.get("outcome", {})
    return (
        line.get("result", {}).get("weights_sha256"),
        {name: value[0] for name, value in outcome.get("metrics", {}).items()},
        [outcome.get(name) for name in ("why", "loss")],
    )


def is_kept(folder: Path) -> bool:
    return (folder / CELLS).is_file()
