"""An arm as a study hands it to the report: what it changes, what it costs, what is claimed of it, what its cells found."""

from __future__ import annotations

from typing import Any, Literal

from fulcrum.report.design_records import Reading, Record

CellState = Literal["waiting", "running", "done", "failed", "stopped"]


class Change(Record):
    path: str
    before: Any
    after: Any


class Cost(Record):
    """Each ratio is the arm's over the baseline's; below one is cheaper."""

    flops_ratio: Reading = None
    time_ratio: Reading = None
    memory_ratio: Reading = None
    parameters_ratio: Reading = None
    parts: dict[str, float] = {}  # FLOPs of one seed: denoiser, terms, codec, text, teachers, evaluation


class Claim(Record):
    metric: str
    change: float
    scope: str
    source: str
    note: str = ""
    verdict: str | None = None  # of this claim: replicated, contradicted, underpowered, out of scope
    seen: str = ""  # name of our metric that stands for the claim's; empty: none does


class CurvePoint(Record):
    images: int
    seconds: Reading = None
    flops: Reading = None
    values: dict[str, Reading]


class LossPoint(Record):
    images: int
    loss: Reading


class Cell(Record):
    seed: int
    key: str
    state: CellState
    images: int
    budget: int | None = None  # images it is to see; none: the plan's
    final: dict[str, Reading] = {}
    curve: tuple[CurvePoint, ...] = ()
    loss: tuple[LossPoint, ...] = ()


class Arm(Record):
    name: str
    phrase: str
    says: str
    label: str
    compound: bool = False
    against: str = ""  # name of the arm it is compared with; empty: the first arm
    scale: str = ""  # name of the scale it ran at; empty: the study has only one
    labels: tuple[str, ...] = ()  # what a reader must know before believing its effect
    diff: tuple[Change, ...] = ()
    cost: Cost = Cost()
    claims: tuple[Claim, ...] = ()
    cells: tuple[Cell, ...] = ()

    @property
    def root(self) -> str:
        """The arm's name without its scale: 'muon [small]' and 'muon [large]' are one decision."""
        return self.name.removesuffix(f" [{self.scale}]")

    def count(self, state: CellState) -> int:
        return sum(cell.state == state for cell in self.cells)

    def finals(self, metric: str) -> dict[int, float]:
        """Seed -> final value of one metric, finished cells only."""
        found = {cell.seed: cell.final.get(metric) for cell in self.cells if cell.state == "done"}
        return {seed: value for seed, value in found.items() if value is not None}
