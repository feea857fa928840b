"""Pure edits of a run: put a value at a path, compare two runs, compute the key, read a run back
from plain data."""

import hashlib
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from fulcrum.spec import slots
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.record import Change, Filler, Record, Seed, tree
from fulcrum.spec.run import RATE, SCIENCE, During, RunSpec

# --------------------------------------------------------------------------------------------------
# Pure edits of a run: put a value at a path, tell two runs apart, name a run by its key.


# Paths that may differ between stages: none of them changes a parameter's name or shape.
STAGED = (
    "data.source",
    "data.caption",
    "data.size",
    "encode.teachers",
    "flow.time",
    "flow.drop_text",
    "model.route",
    "terms",
    RATE,
)

MOST_TOLD = 12  # findings of one error
# characters of an edit in an error: of a longer one, such as a set of stages, only the path is told
LONGEST_TOLD = 120


def slot_paths(record: Record, prefix: str = "") -> list[str]:
    """All paths of a record that can be set."""
    paths = []
    for name in type(record).model_fields:
        value, path = getattr(record, name), f"{prefix}{name}"
        paths.append(path)
        if isinstance(value, Record):
            paths += slot_paths(value, path + ".")
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, slots.TermFiller | slots.TeacherFiller):
                    paths += [f"{path}.{item.name}", *slot_paths(item, f"{path}.{item.name}.")]
    return paths


def get(run: RunSpec, path: str) -> Any:
    """The value at a path such as "optim.lr" or "terms.flow_matching.weight"."""
    value: Any = run
    for step in path.split("."):
        value = _member(value, step, run, path)
    return value


def _member(value: Any, step: str, run: RunSpec, path: str) -> Any:
    if isinstance(value, Record) and step in type(value).model_fields:
        return getattr(value, step)
    if isinstance(value, tuple):
        for item in value:
            if getattr(item, "name", None) == step:
                return item
    raise BadInput(f"no slot is called '{path}'", nearest(path, slot_paths(run)))


def put(run: RunSpec, path: str, value: Any) -> RunSpec:
    """A run like this one with `value` at `path`; checked as a whole, so an impossible run is never
    made."""
    return put_all(run, [(path, value)])


def put_all(run: RunSpec, edits: Iterable[tuple[str, Any]]) -> RunSpec:
    """Several values at once: width and heads may change together, and only the end must be
    possible."""
    edited: Any = run
    written = []
    try:
        for path, value in edits:
            text = f"{path}={value}"
            written.append(text if len(text) <= LONGEST_TOLD else path)
            edited = _put(edited, path.split("."), value, run, path)
        return RunSpec(**{name: getattr(edited, name) for name in RunSpec.model_fields})
    except ValidationError as error:
        raise BadInput(f"{', '.join(written)}: {explain(error)}") from None


def _put(record: Any, steps: list[str], value: Any, run: RunSpec, path: str) -> Any:
    step, rest = steps[0], steps[1:]
    if isinstance(record, tuple):  # a set of named fillers: replace one, or add it
        inner = (
            value if not rest else _put(_member(record, step, run, path), rest, value, run, path)
        )
        if getattr(inner, "name", None) != step:
            raise BadInput(f"'{path}' needs a filler whose name is '{step}', found {inner}")
        return (*(item for item in record if item.name != step), inner)
    old = _member(record, step, run, path)
    new = value if not rest else _put(old, rest, value, run, path)
    fields = {name: getattr(record, name) for name in type(record).model_fields}
    if isinstance(record, RunSpec):  # what must fit together is checked when all edits are in
        return record.model_construct(**{**fields, step: new})
    return type(record)(**{**fields, step: new})


def require_staged(path: str) -> None:
    """Refuse a path that may not have another value for a part of the budget."""
    if not inside(path, STAGED):
        raise BadInput(
            f"'{path}' cannot change during a run", "a stage may change: " + ", ".join(STAGED)
        )


def during(run: RunSpec, start: float, end: float, path: str, value: Any) -> RunSpec:
    """A run in which `path` has another value for a part of the budget."""
    require_staged(path)
    put(run, path, value)  # refuses a value that does not fit there
    stage = During(start=start, end=end, path=path, value=value)
    return put(run, "data.stages", (*run.data.stages, stage))


def diff(before: RunSpec, after: RunSpec) -> list[Change]:
    """Every path whose value differs; a filler of another kind is one change, told with its
    settings."""
    # an edit moves few
    apart = [name for name in RunSpec.model_fields if getattr(before, name) != getattr(after, name)]
    old, new = _leaves_of(before, apart), _leaves_of(after, apart)
    old_whole, new_whole = (
        _leaves_of(before, apart, whole=True),
        _leaves_of(after, apart, whole=True),
    )
    return [
        Change(path, old_whole.get(path), new_whole.get(path))
        for path in sorted(old.keys() | new.keys())
        if _outermost(path, old, new) and old.get(path) != new.get(path)
    ]


def _outermost(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """False below a filler that changed its kind: the filler itself is the change."""
    parts = path.split(".")
    for depth in range(1, len(parts)):
        above = ".".join(parts[:depth])
        if above in old or above in new:
            one, other = old.get(above), new.get(above)
            if one != other:
                return False
    return True


def _leaves_of(run: RunSpec, names: Iterable[str], whole: bool = False) -> dict[str, Any]:
    """The leaves below some of a run's own slots."""
    leaves: dict[str, Any] = {}
    for name in names:
        leaves |= _leaves(getattr(run, name), name, whole)
    return leaves


def _leaves(value: Any, path: str, whole: bool) -> dict[str, Any]:
    """Path -> plain leaf. A filler appears at its own path as its kind (or `whole`), and its
    settings below it."""
    leaves: dict[str, Any] = {}
    if isinstance(value, Record):
        if isinstance(value, Filler):
            leaves[path] = str(value) if whole else value.kind
        for name in type(value).model_fields:
            leaves |= _leaves(getattr(value, name), f"{path}.{name}", whole)
        return leaves
    if isinstance(value, tuple) and value and all(hasattr(item, "name") for item in value):
        for item in value:
            if isinstance(item, During):
                leaves[f"{path}.{item.name.replace('.', '·')}"] = tree(item.value)
            else:
                leaves |= _leaves(item, f"{path}.{item.name}", whole)
        return leaves
    return {path: tree(value)} if value != () else {}


def inside(path: str, declared: tuple[str, ...]) -> bool:
    """Does a changed path lie inside what was declared?"""
    return any(path == slot or path.startswith(slot + ".") for slot in declared)


PLAIN = {
    "tuple_type": "should be a list",
    "dict_type": "should be a table: { name = value }",
    "too_long": "has too many values",
    "too_short": "has too few values",
}


def explain(error: ValidationError) -> str:
    """Pydantic's findings in one line a person can read."""
    findings = []
    for item in error.errors():
        place, given = ".".join(str(part) for part in item["loc"]), item["input"]
        text = PLAIN.get(item["type"], item["msg"])
        text = text.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
        if place:
            text = f"{place}: {text[0].lower() + text[1:]}"
        unnamed = isinstance(given, str | int | float) and f"found {quoted(given)}" not in text
        findings.append(f"{text}, found {quoted(given)}" if unnamed else text)
    return "; ".join(findings[:MOST_TOLD]) + (
        f"; and {len(findings) - MOST_TOLD} more" if len(findings) > MOST_TOLD else ""
    )


def quoted(given: object) -> str:
    """A value as it was written, as far as a person wants to read it."""
    try:
        text = repr(given)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST_TOLD else text[:LONGEST_TOLD] + "..."


def require_seed(seed: object) -> None:
    """A seed of a training, from the command line or from Python: the same that a plan may name."""
    try:
        TypeAdapter(Seed, config=ConfigDict(strict=True)).validate_python(seed)
    except ValidationError as error:
        raise BadInput(f"the seed: {explain(error)}", "seeds are whole numbers: 0, 1, 2") from None


def canonical(value: Any) -> str:
    """One text for one value: sorted names, shortest exact numbers."""
    return json.dumps(tree(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def read_by(run: RunSpec) -> dict[str, str]:
    """Hashes of all that a run reads: shipped networks, folders, stores, the world."""
    reads: dict[str, str] = {}
    for filler in run.fillers():
        reads |= filler.hashes()
    return reads


def key(run: RunSpec, seed: int, user_files: Mapping[str, str] | None = None) -> str:
    """The name of a run: what it is, its seed, the version of the science, and the hashes of all it
    reads."""
    return keys(run, user_files)(seed)


def keys(run: RunSpec, user_files: Mapping[str, str] | None = None) -> Callable[[int], str]:
    """Seed -> key; what does not depend on the seed is read and written out once."""
    reads = read_by(run)
    # As one canonical text, whose names are sorted: the seed's place is between these two.
    before = canonical({"reads": reads, "run": tree(run, identity=True), "science": SCIENCE})[:-1]
    after = canonical({"user_files": dict(user_files or {})})[1:]
    return lambda seed: hashlib.sha256(f'{before},"seed":{seed},{after}'.encode()).hexdigest()[:16]


# --------------------------------------------------------------------------------------------------
# Runs read back from plain data: the reverse of `RunSpec.plain`, with the fillers that are known.


def read(plain: dict[str, Any], fillers: tuple[type[Filler], ...]) -> RunSpec:
    """A RunSpec from plain data; an unknown filler or slot is an error, never skipped."""
    try:
        made: RunSpec = _record(RunSpec, plain, fillers)
        return made
    except ValidationError as error:
        raise BadInput(
            f"not a run description: {explain(error)}",
            "it was written by another version, or by hand",
        ) from None
    except RecursionError:
        raise BadInput(
            "not a run description: it is nested too deep", "it was changed by hand"
        ) from None


def _record(cls: type[Any], plain: Any, fillers: tuple[type[Filler], ...]) -> Any:
    if not isinstance(plain, dict):
        raise BadInput(
            f"a {cls.__name__} was expected, found {repr(plain)[:80]}",
            "the run description was changed by hand",
        )
    if issubclass(cls, Filler):
        cls = _kind(plain.get("kind"), fillers)
        plain = {name: value for name, value in plain.items() if name != "kind"}
    hints = typing.get_type_hints(cls)
    return cls(
        **{name: _value(hints.get(name, Any), value, fillers) for name, value in plain.items()}
    )


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
