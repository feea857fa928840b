"""A foreign configuration as a flat list of named values with their lines: YAML, JSON or TOML, read and never evaluated."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fulcrum.advise.subjects.plain_number import as_float
from fulcrum.files.paths import read_regular
from fulcrum.files.user_code import parse_toml
from fulcrum.spec.errors import BadInput

SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MOST = 4_000_000  # bytes
DEEPEST = 64  # nested tables
MOST_ENTRIES = 200_000  # what a few YAML aliases may grow into ends here
NUMBER = re.compile(r"[-+]?(\d[\d_]*)?\.?\d+([eE][-+]?\d+)?")
MISSING = object()


class Entry(NamedTuple):
    """One value with its path: `model.vae.name`, in lower case, dashes as underscores."""

    path: str
    value: Any
    line: int

    @property
    def leaf(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def text(self) -> str:
        """The value as a lower-case word, for comparing."""
        return str(self.value).strip().lower()

    @property
    def number(self) -> float | None:
        """The value as a number; PyYAML takes 1e-4 for text, and trainers do not."""
        if isinstance(self.value, bool):
            return None
        if isinstance(self.value, int | float):
            return as_float(self.value)
        return (
            float(self.value.replace("_", ""))
            if isinstance(self.value, str) and NUMBER.fullmatch(self.value.strip())
            else None
        )

    @property
    def batches(self) -> float | None:
        """The value as a number of steps; Composer writes 5000ba, and 10ep is a number of something else."""
        if isinstance(self.value, str) and self.value.strip().endswith("ba"):
            return self._replace(value=self.value.strip()[:-2]).number
        return self.number

    @property
    def on(self) -> bool:
        return self.value is True or self.text in ("true", "yes", "on")

    @property
    def off(self) -> bool:
        return self.value is False or self.value is None or self.text in ("false", "no", "off", "none", "null")


class ConfigFile:
    """One configuration; `plain` is what it holds, `entries` the same, flat."""

    def __init__(self, path: Path, plain: Mapping[str, Any], lines: Mapping[str, int], source: str = "") -> None:
        self.path, self.plain, self.source = path, plain, source
        self.entries = [Entry(name, value, lines.get(name, 1)) for name, value in _flat(plain)]

    def at(self, entry: Entry) -> str:
        return str(entry.line)

    def setting(self, entry: Entry, value: Any) -> str:
        """How the file would say it, with another value: `"--use_ema": false` in JSON, `use_ema = false` in TOML."""
        name = next((one for one in self.names if _joined("", one) == entry.leaf), entry.leaf)
        kind = self.path.suffix.lower()
        if kind == ".json":
            return f"{json.dumps(name)}: {json.dumps(value)}"
        plain = json.dumps(value) if not isinstance(value, str) or kind == ".toml" else value
        return f"{name} = {plain}" if kind == ".toml" else f"{name}: {plain}"

    @cached_property
    def names(self) -> set[str]:
        """Every name of a table, as the file writes it."""
        names, waiting = set[str](), list[Any]([self.plain])
        while waiting:
            one = waiting.pop()
            names |= {str(name) for name in one} if isinstance(one, Mapping) else set()
            inner = one.values() if isinstance(one, Mapping) else one
            waiting += [value for value in inner if isinstance(value, Mapping | list)]
        return names

    def find(self, pattern: str) -> list[Entry]:
        """Entries whose whole path holds the pattern."""
        return [entry for entry in self.entries if re.search(pattern, entry.path)]

    def first(self, pattern: str) -> Entry | None:
        return next(iter(self.find(pattern)), None)

    def mentions(self, pattern: str) -> bool:
        """Does a path or a word among the values hold it?"""
        return any(
            re.search(pattern, entry.path) or (isinstance(entry.value, str | list) and re.search(pattern, entry.text))
            for entry in self.entries
        )

    def number(self, pattern: str) -> float | None:
        return next((entry.number for entry in self.find(pattern) if entry.number is not None), None)

    def batches(self, pattern: str) -> float | None:
        return next((entry.batches for entry in self.find(pattern) if entry.batches is not None), None)


def read_config(path: Path) -> ConfigFile:
    """A configuration from its file; what cannot be read is said."""
    try:
        source = read_regular(path, limit=MOST).decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}", "expected a YAML, JSON or TOML file") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not text in UTF-8", "save it with the encoding UTF-8") from None
    kind = path.suffix.lower()
    lines: dict[str, int] = {}
    try:
        if kind == ".json":
            plain = json.loads(source)
        elif kind == ".toml":
            plain = parse_toml(source)
        else:
            plain, lines = _yaml(source)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} cannot be parsed: {_one_line(error)}", f"is it {kind.lstrip('.').upper()}?") from None
    if isinstance(plain, list) and plain and all(isinstance(one, Mapping) for one in plain):
        plain = {str(place): one for place, one in enumerate(plain)}  # data backends are often listed
    if not isinstance(plain, Mapping):
        raise BadInput(f"{path} holds no table of names and values, but {type(plain).__name__}", "expected a configuration")
    config = ConfigFile(path, plain, lines, source)
    return config if lines else ConfigFile(path, plain, _guessed_lines(config, source), source)


def _yaml(source: str) -> tuple[Any, dict[str, int]]:
    """Values and lines. Only plain YAML: a tag that would make an object is taken for the value that it stands before."""
    try:
        node = yaml.compose(source, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(_one_line(error)) from None
    lines: dict[str, int] = {}
    loader = yaml.SafeLoader("")
    seen = [0]

    def value(one: Any, path: str, depth: int) -> Any:
        seen[0] += 1
        if depth > DEEPEST or seen[0] > MOST_ENTRIES:
            raise ValueError("it is nested too deep, or its aliases grow without end")
        if path:
            lines.setdefault(path, one.start_mark.line + 1)
        if isinstance(one, yaml.MappingNode):
            table: dict[str, Any] = {}
            for name, inner in one.value:
                key = str(getattr(name, "value", ""))
                made = value(inner, _joined(path, key), depth + 1)
                if key == "<<" and isinstance(
                    made, dict | list
                ):  # a merge: what stands here wins, then the first of several
                    for merged in made if isinstance(made, list) else [made]:
                        table = {**(merged if isinstance(merged, dict) else {}), **table}
                else:
                    table[key] = made
            return table
        if isinstance(one, yaml.SequenceNode):
            return [value(inner, _joined(path, str(place)), depth + 1) for place, inner in enumerate(one.value)]
        known = one.tag in loader.yaml_constructors
        try:
            return loader.construct_object(one) if known else one.value
        except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError):  # as PyYAML refuses a scalar
            raise ValueError(
                f"line {one.start_mark.line + 1} holds no {one.tag.rpartition(':')[2]}: {one.value!r}"
            ) from None

    return ({} if node is None else value(node, "", 0)), lines


def _flat(plain: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    if depth > DEEPEST:
        raise BadInput(f"a configuration is nested deeper than {DEEPEST} tables", "is it one?")
    if isinstance(plain, Mapping) and plain:
        for name, value in plain.items():
            yield from _flat(value, _joined(path, str(name)), depth + 1)
    elif isinstance(plain, list) and any(isinstance(value, Mapping | list) for value in plain):
        for place, value in enumerate(plain):
            yield from _flat(value, _joined(path, str(place)), depth + 1)
    else:
        yield path, plain


def _joined(path: str, name: str) -> str:
    name = name.strip().lstrip("-").replace("-", "_").lower()
    return f"{path}.{name}" if path else name


def _guessed_lines(config: ConfigFile, source: str) -> dict[str, int]:
    """JSON and TOML say no lines: the first one, after the entry before it, where the name stands."""
    lines, texts, start = {}, [text.lower().replace("-", "_") for text in source.splitlines()], 0
    words = {word for text in texts for word in re.findall(r"\w+", text)}  # a name that stands nowhere is not looked for
    for entry in config.entries:
        absent = entry.leaf.isidentifier() and entry.leaf not in words
        places = () if absent else range(start, len(texts))
        where = next((number for number in places if entry.leaf in texts[number]), None)
        if where is not None:
            start = where
        lines[entry.path] = start + 1
    return lines


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
