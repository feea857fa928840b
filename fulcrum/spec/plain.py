"""Runs read back from plain data: the reverse of `RunSpec.plain`, with the fillers that are known."""

import types
import typing
from typing import Any

from pydantic import ValidationError

from fulcrum.spec.edit import explain
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.record import Filler, Record
from fulcrum.spec.run import RunSpec


def read(plain: dict[str, Any], fillers: tuple[type[Filler], ...]) -> RunSpec:
    """A RunSpec from plain data; an unknown filler or slot is an error, never skipped."""
    try:
        made: RunSpec = _record(RunSpec, plain, fillers)
        return made
    except ValidationError as error:
        raise BadInput(
            f"not a run description: {explain(error)}", "it was written by another version, or by hand"
        ) from None
    except RecursionError:
        raise BadInput("not a run description: it is nested too deep", "it was changed by hand") from None


def _record(cls: type[Any], plain: Any, fillers: tuple[type[Filler], ...]) -> Any:
    if not isinstance(plain, dict):
        raise BadInput(
            f"a {cls.__name__} was expected, found {repr(plain)[:80]}", "the run description was changed by hand"
        )
    if issubclass(cls, Filler):
        cls = _kind(plain.get("kind"), fillers)
        plain = {name: value for name, value in plain.items() if name != "kind"}
    hints = typing.get_type_hints(cls)
    return cls(**{name: _value(hints.get(name, Any), value, fillers) for name, value in plain.items()})


def _value(hint: Any, value: Any, fillers: tuple[type[Filler], ...]) -> Any:
    if isinstance(value, dict) and "kind" in value:
        return _record(Filler, value, fillers)
    if isinstance(value, list):
        inner = next((arg for arg in typing.get_args(_bare(hint)) if arg is not Ellipsis), Any)
        return tuple(_value(inner, item, fillers) for item in value)
    bare = _bare(hint)
    if isinstance(value, dict) and isinstance(bare, type) and issubclass(bare, Record):
        return _record(bare, value, fillers)
    return value


def _bare(hint: Any) -> Any:
    """The type under Annotated and Optional."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next((_bare(arg) for arg in typing.get_args(hint) if arg is not type(None)), Any)
    return _bare(typing.get_args(hint)[0]) if typing.get_origin(hint) is typing.Annotated else hint


def _kind(kind: Any, fillers: tuple[type[Filler], ...]) -> type[Filler]:
    known = {cls.kind: cls for cls in fillers}
    if not isinstance(kind, str) or kind not in known:
        name = str(kind)[:80]
        raise BadInput(
            f"the run uses a part called '{name}' that is not known here",
            "if it comes from your own file, name that file: --with FILE; " + nearest(name, known),
        )
    return known[kind]
