"""An arm as a study hands it to the report: what it changes, what it costs, what is claimed of it, what its cells found."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainSerializer

from fulcrum.levers.base import Claim
from fulcrum.report.finding import Reading
from fulcrum.spec.edit import Change
from fulcrum.spec.record import Frozen
from fulcrum.spec.remark import Remark

CellState = Literal["waiting", "running", "done", "failed", "stopped"]


class ArmCost(Frozen):
    """Each ratio is the arm's over the baseline's of its scale, whatever it is compared with; below one is cheaper."""

    flops_ratio: Reading = None
    time_ratio: Reading = None
    memory_ratio: Reading = None
    parameters_ratio: Reading = None
    parts: dict[str, float] = {}  # FLOPs of one seed: denoiser, terms, codec, text, teachers, evaluation


class ClaimResult(Claim):
    """A lever's published claim, and how it fared in this study."""

    model_config = ConfigDict(strict=False)

    carries: bool = Field(default=True, exclude=True)  # this and the next are of the lever's card only
    settings: dict[str, Any] = Field(default={}, exclude=True)
    also: str = Field(default="", exclude=True)
    recipe: str = Field(default="", exclude=True)
    verdict: str | None = None  # replicated, opposite here, contradicted, underpowered, out of scope, not comparable
    seen: str = ""  # name of our metric that stands for the claim's; empty: none does
    why: str = ""  # the verdict's reason: what is not comparable, or what stood for the published setting
    codes: tuple[Remark, ...] = ()  # of the reason


class CurvePoint(Frozen):
    images: int
    seconds: Reading = None
    flops: Reading = None
    values: dict[str, Reading]


class LossPoint(Frozen):
    images: int
    loss: Reading


class CellResult(Frozen):
    seed: int
    key: str
    state: CellState
    images: int
    budget: int | None = None  # images it is to see; none: the plan's
    final: dict[str, Reading] = {}
    curve: tuple[CurvePoint, ...] = ()
    loss: tuple[LossPoint, ...] = ()
    failure: str = ""  # why a cell failed: an outcome, not a missing value
    machine: str = ""  # processor and versions that it ran with; empty: not known


class ArmResult(Frozen):
    name: str
    phrase: str
    says: str
    label: str
    compound: bool = False
    against: str = ""  # name of the arm it is compared with; empty: the first arm
    scale: str = ""  # name of the scale it ran at; empty: the study has only one
    labels: tuple[str, ...] = ()  # what a reader must know before believing its effect
    codes: tuple[Remark, ...] = ()  # of the labels
    diff: tuple[Annotated[Change, PlainSerializer(Change._asdict)], ...] = ()
    cost: ArmCost = ArmCost()
    claims: tuple[ClaimResult, ...] = ()
    cells: tuple[CellResult, ...] = ()

    @property
    def root(self) -> str:
        """The arm's name without its scale: 'muon [small]' and 'muon [large]' are one decision."""
        return self.name.removesuffix(f" [{self.scale}]")

    def count(self, state: CellState) -> int:
        return sum(cell.state == state for cell in self.cells)

    def finals(self, metric: str) -> dict[int, float]:
        """Seed -> final value of one metric, finished cells only."""
        values = {cell.seed: cell.final.get(metric) for cell in self.cells if cell.state == "done"}
        return {seed: value for seed, value in values.items() if value is not None}
