"""Finished cells in a small folder that fits into a repository: one line for each, cards once, no weights.

cells.jsonl         what each cell found, on which machine, its held-out curve; every line with a checksum of itself
cards.json          the metrics' cards, by the names that the lines call them
pictures/KEY.json   of the first seed of each arm
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.atomic import write_atomic, write_json
from fulcrum.files.sealed import CHECK, is_intact, read_json, read_records, read_sealed, sealed, write_sealed
from fulcrum.measure.preview import CURVE, read_lines, write_curve
from fulcrum.spec.edit import digest
from fulcrum.spec.errors import BadInput
from fulcrum.study.run.cell import Cell, pictures
from fulcrum.study.run.cell_copy import CellFiles
from fulcrum.study.run.kept_line import fault_of_line, fault_of_pictures
from fulcrum.study.run.measuring.evaluation_points import point_path, read_points
from fulcrum.training.trained_run import KEY

CELLS, CARDS, PICTURES = "cells.jsonl", "cards.json", "pictures"
KEPT_HINT = "take it from the repository again"
CURVE_FIELDS = ("images", "seconds", "validation_loss")
OF_THE_LINE = ("arm", "seed", "key", "result", "lines", CHECK)  # fields of a cell's file that stand in its line already


class KeptCells(NamedTuple):
    """The lines of a folder by the cells' keys, and what they refer to."""

    lines: dict[str, dict[str, Any]]
    cards: dict[str, dict[str, Any]]
    pictures: dict[str, dict[str, Any]]

    def add(self, cell: Cell, files: CellFiles, how: str, shares: tuple[float, ...]) -> bool:
        """One more cell, as it was found and verified; False: it was there, with the same numbers."""
        line = self._line(cell, files, how, shares)
        if cell.key in self.lines:
            if _numbers(self.lines[cell.key]) != _numbers(line):
                raise BadInput(
                    f"{cell.arm}, seed {cell.seed} ({cell.key}) is kept with other numbers than {files.place} has",
                    "it ran on another kind of machine, or one of them was edited: keep one, and take the other away",
                )
            return False
        self.lines[cell.key] = line
        return True

    def add_pictures(self, out: Path, key: str, how: str) -> None:
        """What the report shows of a cell; of one that was unpacked without pictures there is nothing to add."""
        drawn = pictures(out, key, how)
        if drawn["pictures"]:
            self.pictures[key] = {name: drawn[name] for name in ("prompts", "pictures")}

    def _line(self, cell: Cell, files: CellFiles, how: str, shares: tuple[float, ...]) -> dict[str, Any]:
        outcome = {name: value for name, value in files.outcome.items() if name not in OF_THE_LINE}
        line: dict[str, Any] = {"key": cell.key, "arm": cell.arm, "seed": cell.seed, "kind": cell.kind}
        if files.result is not None:
            line["result"] = {name: value for name, value in files.result.items() if name != "run"}  # a path of its machine
        if cell.kind == "trunk":
            return sealed(line)
        if "metrics" in outcome:
            outcome["metrics"] = self._packed(outcome["metrics"])
            curve = read_lines(files.place / CURVE, files.outcome)
            line["curve"] = [[point[name] for name in CURVE_FIELDS] for point in curve]
            points = read_points(files.place, cell.run, how, shares)
            line["points"] = {str(images): self._packed(metrics) for images, metrics in points.items()}
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
        order = sorted(self.lines.values(), key=lambda line: (line["kind"], line["arm"], line["seed"], line["key"]))
        write_atomic(folder / CELLS, "".join(json.dumps(line) + "\n" for line in order))


def read_kept(folder: Path) -> KeptCells:
    """What a folder keeps; every line and every card must be as it was written, and hold what a study writes."""
    kept = KeptCells({}, {}, {})
    if not (folder / CELLS).exists():
        return kept
    kept.cards.update(read_json(folder / CARDS, KEPT_HINT))
    wrong = [name for name, card in kept.cards.items() if digest(card)[:10] != name]
    if wrong:
        raise BadInput(f"the card {wrong[0]} in {folder / CARDS} was changed after it was written", KEPT_HINT)
    for place, line in enumerate(read_records(folder / CELLS).require_good(KEPT_HINT), 1):
        if not is_intact(line):
            raise BadInput(f"line {place} of {folder / CELLS} was changed after it was written", KEPT_HINT)
        if not KEY.fullmatch(str(line.get("key"))):  # it names a folder
            raise BadInput(f"line {place} of {folder / CELLS} is of no run: its key is {line.get('key')!r}", KEPT_HINT)
        if fault := fault_of_line(line):
            raise BadInput(f"line {place} of {folder / CELLS} is not what a study keeps: {fault}", KEPT_HINT)
        kept.lines[line["key"]] = line
    for key in kept.lines:
        path = folder / PICTURES / f"{key}.json"
        if path.exists():
            kept.pictures[key] = drawn = read_sealed(path, KEPT_HINT)
            if fault := fault_of_pictures(drawn):
                raise BadInput(f"{path} is not what a study keeps: {fault}", KEPT_HINT)
    return kept


def unpack(kept: KeptCells, how: str, runs: Path) -> None:
    """The kept cells as the folders of runs that a study reads: all but weights, training losses and most pictures."""
    for key, line in kept.lines.items():
        try:
            _unpack_cell(kept, key, line, how, runs / key)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise BadInput(f"the cell {key} in {CELLS} is not what a study keeps ({why})", KEPT_HINT) from None


def _unpack_cell(kept: KeptCells, key: str, line: Mapping[str, Any], how: str, place: Path) -> None:
    place.mkdir(parents=True)
    result = {**line["result"], "run": key} if "result" in line else None
    if result is not None:
        write_json(place / "result.json", result, flush=False)
    outcome = {**line.get("outcome", {}), **{name: line[name] for name in ("arm", "seed", "key")}}
    if line["kind"] == "rate":
        write_sealed(place / f"rate-{how}.json", outcome)
    elif "metrics" in outcome:
        measured = {**outcome, "metrics": kept.unpacked(outcome["metrics"]), "result": result, "lines": {}}
        write_sealed(place / f"measured-{how}.json", measured)
        write_sealed(place / f"pictures-{how}.json", kept.pictures.get(key, {"prompts": [], "pictures": []}))
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
