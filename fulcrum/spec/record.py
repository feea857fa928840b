"""The frozen record that every part of a run description is made of, and its plain-data form."""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from fulcrum.spec.errors import BadInput

Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]          # a share of something, both ends excluded
Share = Annotated[float, Field(ge=0.0, le=1.0)]             # a share that may be nothing or all
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


class Record(BaseModel):
    """A value: equal by content, never changed in place, no unknown field accepted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)}" for name in type(self).model_fields)
        return f"{type(self).__name__}({inside})"


class Filler(Record):
    """What fills a seam: plain settings here, torch code only when `build` is called."""

    kind: ClassVar[str] = ""

    def build(self, ctx: Any) -> Any:
        """Make the working part. Every filler that is put into a run defines it."""
        raise BadInput(f"{type(self).__name__} defines no `build`", "see docs/write-a-lever.md")

    def hashes(self) -> dict[str, str]:
        """Names and hashes of the files this part reads: they enter the key of the run."""
        return {}

    def identity(self) -> dict[str, Any]:
        """The settings that decide results. Where files lie does not: `hashes` says what they hold."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)}" for name in type(self).model_fields)
        return f"{self.kind}({inside})" if inside else self.kind


def tree(value: Any, identity: bool = False) -> Any:
    """Plain data (dicts, lists, numbers, words) that says everything about `value`; fillers carry their kind.

    With `identity` it says only what decides results: the key of a run is made from that.
    """
    if isinstance(value, Filler) and identity:
        return {"kind": value.kind, **{name: tree(item, identity) for name, item in value.identity().items()}}
    if isinstance(value, Record):
        plain = {name: tree(getattr(value, name), identity) for name in type(value).model_fields}
        return {"kind": value.kind, **plain} if isinstance(value, Filler) else plain
    if isinstance(value, tuple | list):
        return [tree(item, identity) for item in value]
    if isinstance(value, dict):
        return {str(name): tree(item, identity) for name, item in value.items()}
    return value


def agree(one: Any, other: Any, identity: Any) -> bool:
    """Do two plain forms say the same, but for what `identity` leaves out?"""
    if isinstance(one, dict) and isinstance(other, dict) and isinstance(identity, dict):
        return one.keys() == other.keys() and all(agree(one[name], other[name], identity[name]) for name in identity)
    if isinstance(one, list) and isinstance(other, list) and isinstance(identity, list):
        return len(one) == len(other) == len(identity) and all(map(agree, one, other, identity))
    return bool(one == other)
