"""The cells of a study, as far as judging reads them: one arm under one seed each."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fulcrum.judge.schema import CurvePoint


class MetricValue(NamedTuple):
    """The value of a metric on one cell, and the card that it was measured by."""

    value: float | None
    card: Mapping[str, Any]  # the fields of a `MetricCard`


class CellRecord(NamedTuple):
    """A cell that has finished or failed: one arm under one seed."""

    arm: str
    seed: int
    metrics: Mapping[str, MetricValue] = {}  # empty of a cell that failed
    failure: str | None = None  # why it failed; None: it finished
    images: int = 0  # that its training saw
    budget: int = 0  # images that it was to see
    curve: tuple[CurvePoint, ...] = ()  # values on the way to the end
    machine: Mapping[str, Any] = {}  # facts of where it ran; empty: not known
    seconds: float = 0.0  # of training and evaluation
    skipped: int = 0  # images whose steps were left out
    rolled_back: int = 0  # times
    lines: Mapping[str, str] = {}  # hashes of the files of its curve and losses

    @property
    def failed(self) -> bool:
        return self.failure is not None


# arm -> seed -> what is known of the cell, finished and failed ones
Cells = Mapping[str, Mapping[int, CellRecord]]


def finished_cells(cells: Cells, arm: str) -> dict[int, CellRecord]:
    """Seed -> the cells of an arm that finished."""
    return {seed: cell for seed, cell in cells.get(arm, {}).items() if not cell.failed}


def failed_seeds(cells: Cells, arm: str) -> set[int]:
    """The seeds under which an arm failed."""
    return {seed for seed, cell in cells.get(arm, {}).items() if cell.failed}


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Did two cells run on unlike machines? A cell that does not say where it ran is not compared.

    Fulcrum's own version does not count: what changes numbers there changes a cell's key or the
    name of its files.
    """
    sides = [
        {name: fact for name, fact in facts.items() if name != "fulcrum"} for facts in (one, other)
    ]
    return all(sides) and sides[0] != sides[1]
