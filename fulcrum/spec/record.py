"""The frozen record that every part of a run description is made of, the ranges of its numbers, and
its plain-data form."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_after_validator_function

from fulcrum.spec.errors import BadInput


class Frozen(BaseModel):
    """A record of facts beside the run's description: nothing unknown, nothing infinite, nothing
    changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class Within:
    """What a number must be, as an interval: "(0, 1]" is greater than 0 and at most 1. Its error
    names both ends."""

    interval: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self.checked, handler(source))

    def checked(self, value: float) -> float:
        low, high = (float(end) for end in self.interval[1:-1].split(","))
        above, below = self.interval[0] == "(", self.interval[-1] == ")"
        if not low <= value <= high or (above and value == low) or (below and value == high):
            raise ValueError(
                f"must be {'greater than' if above else 'at least'} {_number(low)} and "
                f"{'less than' if below else 'at most'} {_number(high)}"
            )
        return value


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


Fraction = Annotated[float, Within("(0, 1)")]  # a share of something, both ends excluded
Share = Annotated[float, Within("[0, 1]")]  # a share that may be nothing or all
Part = Annotated[float, Within("[0, 1)")]  # a share that may be nothing, but never all
Until = Annotated[float, Within("(0, 1]")]  # a share that may be all, but never nothing
Factor = Annotated[float, Within("(0, 1000]")]  # multiplies something: a term, a rate, a noise
Guidance = Annotated[float, Within("(0, 100]")]  # scale of a guide
Positive = Annotated[float, Within("(0, 1e6]")]
Count = Annotated[int, Within("[1, 1e12]")]
# draws are keyed by 64 bits: a larger one repeats another's
Seed = Annotated[int, Within("[0, 9e18]")]
Threads = Annotated[int, Within("[1, 1024]")]  # of one process
Width = Annotated[int, Within("[1, 65536]")]  # of a layer: features, channels, pixels of a patch


def typed(value: Any) -> str:
    """A setting as a person types it in a phrase: [matrix, head], not ('matrix', 'head')."""
    if isinstance(value, tuple | list):
        words = (
            word if re.fullmatch("[A-Za-z_]+", word := str(item)) else repr(item) for item in value
        )
        return f"[{', '.join(words)}]"
    return str(value)


class Record(BaseModel):
    """A value: equal by content, never changed in place, no unknown field accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)
    #: fields that joined when runs had keys already: unsaid at their default
    later: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)}" for name in type(self).model_fields)
        return f"{type(self).__name__}({inside})"


Part_co = TypeVar("Part_co", covariant=True)


class Change(NamedTuple):
    """One difference between two records."""

    path: str
    before: Any  # plain data; None where nothing was
    after: Any


def undefined(filler: object, method: str) -> BadInput:
    """Make the error for a filler that lacks a method of its slot."""
    return BadInput(f"{type(filler).__name__} defines no `{method}`", "see docs/write-a-lever.md")


class Builds(Generic[Part_co]):
    """What every seam asks of its fillers, and of which type the part is that they make."""

    def build(self, ctx: Any) -> Part_co:
        """Make the working part. Import torch code in here.

        A filler that computes by itself is the part: `build` returns the filler, or a copy that
        knows facts of the run.
        """
        raise undefined(self, "build")


class Filler(Record):
    """What fills a seam: plain settings, and mathematics that imports no torch with the file."""

    kind: ClassVar[str] = ""

    def hashes(self) -> dict[str, str]:
        """Names and hashes of the files this part reads: they enter the key of the run."""
        return {}

    def identity(self) -> dict[str, Any]:
        """The settings that decide results. Where files lie does not: `hashes` says what they
        hold."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)}" for name in type(self).model_fields)
        return f"{self.kind}({inside})" if inside else self.kind


def slot_of(filler: Filler) -> type[Filler]:
    """Return the base record of the seam that a filler fills: it derives from `Filler` directly."""
    return next(
        cls for cls in type(filler).__mro__ if issubclass(cls, Filler) and Filler in cls.__bases__
    )


def tree(value: Any, identity: bool = False) -> Any:
    """Plain data (dicts, lists, numbers, words) that says everything about `value`; fillers carry
    their kind.

    With `identity` it says only what decides results: the key of a run is made from that.
    """
    if isinstance(value, Filler) and identity:
        return {
            "kind": value.kind,
            **{name: tree(item, identity) for name, item in value.identity().items()},
        }
    if isinstance(value, Record):
        plain = {
            name: tree(getattr(value, name), identity)
            for name in type(value).model_fields
            if _said(value, name)
        }
        return {"kind": value.kind, **plain} if isinstance(value, Filler) else plain
    if isinstance(value, tuple | list):
        return [tree(item, identity) for item in value]
    if isinstance(value, dict):
        return {str(name): tree(item, identity) for name, item in value.items()}
    return value


def _said(record: Record, name: str) -> bool:
    """Does the plain form tell of this field? A key that was made before the field existed is still
    the run's key."""
    return (
        name not in record.later or getattr(record, name) != type(record).model_fields[name].default
    )


def agree(one: Any, other: Any, identity: Any) -> bool:
    """Do two plain forms say the same, but for what `identity` leaves out? What it says under a
    name of its own is the content of something that the plain forms tell by its place."""
    if isinstance(one, dict) and isinstance(other, dict) and isinstance(identity, dict):
        shared = [name for name in identity if name in one]
        return one.keys() == other.keys() and all(
            agree(one[name], other[name], identity[name]) for name in shared
        )
    if isinstance(one, list) and isinstance(other, list) and isinstance(identity, list):
        return len(one) == len(other) == len(identity) and all(map(agree, one, other, identity))
    return bool(one == other)
