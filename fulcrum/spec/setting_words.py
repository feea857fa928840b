"""A setting in words: of which type it is, in which range, and what its own line says of it."""

import ast
import inspect
import re
import textwrap
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo


class SettingWords(NamedTuple):
    """`range` is an interval, empty where there is none."""

    type: str
    range: str
    default: Any


def setting_words(field: FieldInfo) -> SettingWords:
    kinds, ranges = [], _ranges(field.metadata)
    for kind in get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else (field.annotation,):
        bare, *parts = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        kinds.append(_type(bare))
        ranges += _ranges(parts)
    return SettingWords(" or ".join(kinds), ", ".join(ranges), field.default)


def _ranges(metadata: list[Any]) -> list[str]:
    """Of our own intervals, and of pydantic's bounds."""
    whole = [part.interval for part in metadata if hasattr(part, "interval")]
    bounds = {name: getattr(part, name) for part in metadata for name in ("ge", "gt", "le", "lt") if hasattr(part, name)}
    if bounds:
        low = f"[{bounds['ge']:g}" if "ge" in bounds else f"({bounds['gt']:g}" if "gt" in bounds else "(-inf"
        high = f"{bounds['le']:g}]" if "le" in bounds else f"{bounds['lt']:g})" if "lt" in bounds else "inf)"
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
    """Setting -> the comment on the line that declares it, from the source of the class and of those it derives from."""
    comments: dict[str, str] = {}
    for cls in reversed(record.__mro__):
        if not cls.__module__.startswith("fulcrum."):
            continue
        lines = inspect.getsource(cls).splitlines()
        body = ast.parse(textwrap.dedent("\n".join(lines))).body[0]
        assert isinstance(body, ast.ClassDef)
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                comment = re.search(r"#\s(.*)$", lines[(node.end_lineno or node.lineno) - 1])
                if comment:
                    comments[node.target.id] = comment.group(1).strip()
    return comments
