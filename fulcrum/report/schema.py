"""What a study hands to the report: frozen records, the one contract between `study` and `report`."""
from __future__ import annotations

import math
from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _finite(value: Any) -> Any:
    """NaN and infinity have no JSON form: a reading that diverged is a missing reading."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Reading = Annotated[float | None, BeforeValidator(_finite)]
# A picture is part of the page, never a link: anything but an inline PNG would be a request to somewhere.
Picture = Annotated[str, Field(pattern=r"^data:image/png;base64,[A-Za-z0-9+/]+={0,2}$")]
CellState = Literal["waiting", "running", "done", "failed"]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Plan(Record):
    hash: str
    baseline: str
    primary_metric: str
    seeds: tuple[int, ...]
    images: int
    smallest_effect: float
    alpha: float
    threads_per_cell: int
    guidance: float
    learning_rate_policy: str
    sample_count: int


class Made(Record):
    version: str
    date: str
    command: str
    machine: str
    seconds: Reading = None


class Metric(Record):
    name: str
    label: str
    unit: str
    better: Literal["lower", "higher"]
    explain: str
    card: dict[str, Any]


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


class Claim(Record):
    metric: str
    change: float
    scope: str
    source: str
    note: str = ""


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
    final: dict[str, Reading] = {}
    curve: tuple[CurvePoint, ...] = ()
    loss: tuple[LossPoint, ...] = ()


class Arm(Record):
    name: str
    phrase: str
    says: str
    label: str
    compound: bool = False
    diff: tuple[Change, ...] = ()
    cost: Cost = Cost()
    claims: tuple[Claim, ...] = ()
    cells: tuple[Cell, ...] = ()

    def count(self, state: CellState) -> int:
        return sum(cell.state == state for cell in self.cells)

    def finals(self, metric: str) -> dict[int, float]:
        """Seed -> final value of one metric, finished cells only."""
        found = {cell.seed: cell.final.get(metric) for cell in self.cells if cell.state == "done"}
        return {seed: value for seed, value in found.items() if value is not None}


class Effect(Record):
    """The paired difference arm minus baseline, in the metric's own sign; `unit` says what was held equal."""

    arm: str
    metric: str
    unit: str
    n: int
    mean: Reading
    low: Reading
    high: Reading
    correlation: Reading
    p_adjusted: Reading
    verdict: str
    claim_verdict: str | None


class Noise(Record):
    metric: str
    mean: Reading
    sd: Reading
    cv: Reading
    n: int


class GridArm(Record):
    arm: str
    seed: int
    images: tuple[Picture, ...]


class Grids(Record):
    prompts: tuple[str, ...]
    arms: tuple[GridArm, ...]
    reference: tuple[Picture, ...] | None = None


class Progress(Record):
    done: int
    total: int
    seconds_left: Reading = None


class StudyResult(Record):
    title: str
    state: Literal["running", "finished"]
    plan: Plan
    made: Made
    metrics: tuple[Metric, ...]
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)]   # the first is the baseline
    effects: tuple[Effect, ...] = ()
    noise: tuple[Noise, ...] = ()
    detectable: dict[str, Reading] = {}
    grids: Grids | None = None
    remarks: tuple[str, ...] = ()
    progress: Progress

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        """Every name used was introduced; a misspelt one would silently vanish from the page."""
        arms, metrics = [arm.name for arm in self.arms], [metric.name for metric in self.metrics]
        for kind, names in (("arm", arms), ("metric", metrics)):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise ValueError(f"expected every {kind} once, found {twice} more than once: give each its own name")
        _known("plan.primary_metric", [self.plan.primary_metric], "metric", metrics)
        _known("effects", [effect.arm for effect in self.effects], "arm", arms[1:])
        _known("effects", [effect.metric for effect in self.effects], "metric", metrics)
        _known("noise", [row.metric for row in self.noise], "metric", metrics)
        _known("detectable", list(self.detectable), "metric", metrics)
        _known("grids.arms", [row.arm for row in self.grids.arms] if self.grids else [], "arm", arms)
        return self

    @property
    def baseline(self) -> Arm:
        return self.arms[0]

    @property
    def primary(self) -> Metric:
        return self.metric(self.plan.primary_metric)

    def metric(self, name: str) -> Metric:
        return next(metric for metric in self.metrics if metric.name == name)

    def effect(self, arm: str, metric: str) -> Effect | None:
        """The headline comparison of an arm: at equal images if there is one, else the first that was made."""
        rows = [row for row in self.effects if row.arm == arm and row.metric == metric]
        return next((row for row in rows if row.unit in ("images", "steps")), rows[0] if rows else None)


def _known(place: str, used: list[str], kind: str, known: list[str]) -> None:
    strange = sorted(set(used) - set(known))
    if strange:
        raise ValueError(f"{place}: expected a {kind} out of {known}, found {strange}: list it, or mend the name")
