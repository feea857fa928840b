"""Describe runs and settings in words."""

import ast
import inspect
import re
import textwrap
from functools import cache
from itertools import takewhile
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fulcrum.spec.edit import diff, get, inside
from fulcrum.spec.record import Change, Filler, typed
from fulcrum.spec.run import RunSpec

# --------------------------------------------------------------------------------------------------
# A run in a few words: what was set besides its phrase, what it trains on, what reads its captions.


LONGEST = 60  # letters of a value; a hash or a long path says no more in full


def in_brief(filler: Filler) -> str:
    """'world(max_objects=1)': a filler's kind and those of its settings that are not the usual
    ones; of a folder its name, since the words go to pages that others read."""
    fields = type(filler).model_fields
    unusual = {
        name: getattr(filler, name)
        for name in fields
        if getattr(filler, name) != fields[name].default
    }
    settings = [f"{name}={typed(_last_name(value))}" for name, value in unusual.items()]
    return f"{filler.kind}({', '.join(settings)})" if settings else filler.kind


def set_besides(run: RunSpec, named: RunSpec) -> list[str]:
    """path=value of everything in which a run is not the one that its phrase names; what a pipeline
    brought is named once, as `start=` and the pipeline's name."""
    brought = {
        f"encode.{slot}" for slot in ("codec", "text") if of_start(run, getattr(run.encode, slot))
    }
    words = {
        change.path: _cut(_brief(run, change))
        for change in diff(named, run)
        if change.path not in brought
    }
    if any(inside(path, ("start",)) for path in words):
        words = {path: text for path, text in words.items() if not inside(path, ("start",))} | {
            "start": start_name(run)
        }
    return [f"{path}={text}" for path, text in words.items()]


def of_start(run: RunSpec, part: Filler) -> bool:
    """Does a part lie in the pipeline that the run began from?"""
    return bool(getattr(part, "path", "")) and getattr(part, "path", "") == getattr(
        run.start, "path", ""
    )


def start_name(run: RunSpec) -> str:
    """What a run began from: a run's key, a folder's name, or an id of the hub."""
    key, path = getattr(run.start, "run", ""), getattr(run.start, "path", "")
    name = path if path.startswith("hub:") else PurePath(path).name
    return key[:8] or name or in_brief(run.start)


def _last_name(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_last_name(one) for one in value)
    return (
        PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value
    )


def _brief(run: RunSpec, change: Change) -> Any:
    """What stands there now; a filler without the settings that are usual."""
    if change.after is None:
        return None
    value = get(run, change.path)
    return in_brief(value) if isinstance(value, Filler) else change.after


def _cut(value: Any) -> str:
    text = "nothing" if value is None else typed(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


# --------------------------------------------------------------------------------------------------
# A setting in words: of which type it is, in which range, and what its own line says of it.


class SettingWords(NamedTuple):
    """`range` is an interval, empty where there is none."""

    type: str
    range: str
    default: Any


def setting_words(field: FieldInfo) -> SettingWords:
    kinds, ranges = [], _ranges(field.metadata)
    for kind in (
        get_args(field.annotation)
        if get_origin(field.annotation) in (Union, UnionType)
        else (field.annotation,)
    ):
        bare, *parts = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        kinds.append(_type(bare))
        ranges += _ranges(parts)
    return SettingWords(" or ".join(kinds), ", ".join(ranges), field.default)


def _ranges(metadata: list[Any]) -> list[str]:
    """Of our own intervals, and of pydantic's bounds."""
    whole = [part.interval for part in metadata if hasattr(part, "interval")]
    bounds = {
        name: getattr(part, name)
        for part in metadata
        for name in ("ge", "gt", "le", "lt")
        if hasattr(part, name)
    }
    if bounds:
        low = (
            f"[{bounds['ge']:g}"
            if "ge" in bounds
            else f"({bounds['gt']:g}"
            if "gt" in bounds
            else "(-inf"
        )
        high = (
            f"{bounds['le']:g}]"
            if "le" in bounds
            else f"{bounds['lt']:g})"
            if "lt" in bounds
            else "inf)"
        )
        whole.append(f"{low}, {high}")
    return whole


def _type(kind: Any) -> str:
    if kind is NoneType:
        return "none"
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if get_origin(kind) is tuple:
        inside = [_type(part) for part in get_args(kind) if part is not Ellipsis]
        return f"a list of {inside[0]}" if Ellipsis in get_args(kind) else f"({', '.join(inside)})"
    if get_origin(kind) is Annotated:
        return _type(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(_type, get_args(kind)))
    return getattr(kind, "__name__", str(kind))


@cache
def remarks(record: type) -> dict[str, str]:
    """Setting -> its comment, from the source of the class and of its bases: on the line that
    declares it, or the lines above it that begin with `#:`."""
    comments: dict[str, str] = {}
    for cls in reversed(record.__mro__):
        if not cls.__module__.startswith("fulcrum."):
            continue
        lines = inspect.getsource(cls).splitlines()
        body = ast.parse(textwrap.dedent("\n".join(lines))).body[0]
        assert isinstance(body, ast.ClassDef)
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                comment = _above(lines[: node.lineno - 1])
                on_line = re.search(r"#\s(.*)$", lines[(node.end_lineno or node.lineno) - 1])
                if on_line or comment:
                    comments[node.target.id] = on_line.group(1).strip() if on_line else comment
    return comments


def _above(lines: list[str]) -> str:
    """Return the text of the last lines, as far as they begin with `#:`."""
    marked = list(takewhile(lambda line: line.startswith("#:"), map(str.strip, reversed(lines))))
    return " ".join(line[2:].strip() for line in reversed(marked))
