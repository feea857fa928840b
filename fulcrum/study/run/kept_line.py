"""What a line of a kept study may hold, held against it once: whoever writes a line can seal it, whatever it says."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from fulcrum.spec.edit import explain, quoted

MOST = 1e300  # of any number: what is larger is no measurement, and could not be added to another
FAR = 1 << 53  # of any count: a float tells such numbers apart


def _number(value: Any) -> Any:
    """A number that can be reckoned with; NaN and infinity are readings that a training diverged to."""
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
Metrics = dict[str, Annotated[tuple[Finite, Finite, Finite, str], Listed]]  # value, low, high, name of the card


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
    machine: Annotated[KeptMachine | None, BeforeValidator(lambda facts: facts or None)] = None  # empty: it does not say
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
