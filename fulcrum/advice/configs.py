"""Configurations as flat lists of named values, families of configurations, and sweeps."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from os.path import normpath
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fulcrum.files.paths import read_regular
from fulcrum.files.user_code import parse_toml
from fulcrum.spec.errors import BadInput

# --------------------------------------------------------------------------------------------------
# A number that stands in somebody's file, as a float.


def as_float(value: int | float) -> float | None:
    """None for an integer of hundreds of digits: no setting of a training means it, and rules
    reckon with floats."""
    try:
        return float(value)
    except OverflowError:
        return None


# --------------------------------------------------------------------------------------------------
# A foreign configuration as a flat list of named values with their lines: YAML, JSON or TOML, read
# and never evaluated.


SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MOST = 4_000_000  # bytes
DEEPEST = 64  # nested tables
MOST_ENTRIES = 200_000  # what a few YAML aliases may grow into ends here
NUMBER = re.compile(r"[-+]?(\d[\d_]*)?\.?\d+([eE][-+]?\d+)?")


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
        """The value as a number of steps; Composer writes 5000ba, and 10ep is a number of something
        else."""
        if isinstance(self.value, str) and self.value.strip().endswith("ba"):
            return self._replace(value=self.value.strip()[:-2]).number
        return self.number

    @property
    def low(self) -> bool:
        """Does it name a number format of two bytes?"""
        return self.text.removeprefix("torch.") in ("bf16", "bfloat16", "fp16", "float16", "half")

    @property
    def on(self) -> bool:
        return self.value is True or self.text in ("true", "yes", "on")

    @property
    def off(self) -> bool:
        return (
            self.value is False
            or self.value is None
            or self.text in ("false", "no", "off", "none", "null")
        )


class ConfigFile:
    """One configuration; `plain` is what it holds, `entries` the same, flat."""

    def __init__(
        self, path: Path, plain: Mapping[str, Any], lines: Mapping[str, int], source: str = ""
    ) -> None:
        self.path, self.plain, self.source = path, plain, source
        self.entries = [Entry(name, value, lines.get(name, 1)) for name, value in _flat(plain)]

    def at(self, entry: Entry) -> str:
        return str(entry.line)

    def setting(self, entry: Entry, value: Any) -> str:
        """How the file would say it, with another value: `"--use_ema": false` in JSON, `use_ema =
        false` in TOML."""
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
            re.search(pattern, entry.path)
            or (isinstance(entry.value, str | list) and re.search(pattern, entry.text))
            for entry in self.entries
        )

    def number(self, pattern: str) -> float | None:
        return next(
            (entry.number for entry in self.find(pattern) if entry.number is not None), None
        )

    def batches(self, pattern: str) -> float | None:
        return next(
            (entry.batches for entry in self.find(pattern) if entry.batches is not None), None
        )


def read_config(path: Path) -> ConfigFile:
    """A configuration from its file; what cannot be read is said."""
    try:
        source = read_regular(path, limit=MOST).decode("utf-8-sig")
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}", "expected a YAML, JSON or TOML file"
        ) from None
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
        raise BadInput(
            f"{path} cannot be parsed: {_one_line(error)}", f"is it {kind.lstrip('.').upper()}?"
        ) from None
    if isinstance(plain, list) and plain and all(isinstance(one, Mapping) for one in plain):
        # data backends are often listed
        plain = {str(place): one for place, one in enumerate(plain)}
    if not isinstance(plain, Mapping):
        raise BadInput(
            f"{path} holds no table of names and values, but {type(plain).__name__}",
            "expected a configuration",
        )
    config = ConfigFile(path, plain, lines, source)
    return config if lines else ConfigFile(path, plain, _guessed_lines(config, source), source)


def _yaml(source: str) -> tuple[Any, dict[str, int]]:
    """Values and lines. Only plain YAML: a tag that would make an object is taken for the value
    that it stands before."""
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
            return [
                value(inner, _joined(path, str(place)), depth + 1)
                for place, inner in enumerate(one.value)
            ]
        known = one.tag in loader.yaml_constructors
        try:
            return loader.construct_object(one) if known else one.value
        # as PyYAML refuses a scalar
        except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError):
            raise ValueError(
                f"line {one.start_mark.line + 1} holds no {one.tag.rpartition(':')[2]}:"
                f" {one.value!r}"
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
    """JSON and TOML say no lines: the first one, after the entry before it, where the name
    stands."""
    lines, texts, start = {}, [text.lower().replace("-", "_") for text in source.splitlines()], 0
    # a name that stands nowhere is not looked for
    words = {word for text in texts for word in re.findall(r"\w+", text)}
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


# --------------------------------------------------------------------------------------------------
# Configurations that are compared with each other: a baseline and its arms, each with what it
# inherits filled in.


BASELINE = re.compile(r"(?i)^(base|baseline|defaults?|control)($|[_\-. ])|[_\-. ]baseline$")
INHERITS = ("defaults", "base", "_base_", "extends", "inherit", "inherits", "parent")
# What tells one training from another and decides nothing about it.
LABELS = re.compile(
    r"(^|[._])(run_name|exp_name|experiment_name|experiment|title|description|notes?|tags?|wandb|"
    r"tracker\w*|comment)($|[._])"
    r"|^((run|exp|job|arm|trial)[._]?)?(name|id|label|slug|group|project)$|(^|[._])(\w*overwrite|"
    r"save_interval|log_interval|logging_steps|num_workers|prefetch\w*)$"
)
# A word of writing and one of place: output_dir, outputDir, save_to, checkpoint.dir. What is loaded
# from is none, and a root is none either: trainers put the run's name below it.
OUTPUTS = re.compile(
    r"(^|[._])(out|outputs?|save|results?|work|working|exp|experiment|run|ckpts?|checkpoints?|"
    r"logs?|logging|artifacts?|dump)"
    r"[._]?(dir|directory|folder|folder_name|to)$"
    r"|(^|[._])(save|output|checkpoints?)_path$"
)
# Words of one decision: keys that speak of the same one belong together.
DECISIONS = {
    "optimizer": r"optim|muon|adam|(^|[._])eps(ilon)?$|betas?|weight_decay",
    "learning rate": r"(^|[._])(lr|learning_rate)$|lr_scheduler|warmup",
    "tokenizer": r"(^|[._])vae|autoencoder|tokenizer|codec|latent",
    "alignment": r"repa|align|teacher|dino|projector",
    "perceptual loss": r"lpips|perceptual",
    "routing": r"tread|sprint|rout|token_drop|mask_ratio",
    "captions": r"caption|prompt",
    "precision": r"precision|dtype|bf16|fp16|(^|[._])amp",
    "sampler": r"sampl(er|ing)|guidance|cfg|num_inference_steps|steps_eval",
    "average": r"(^|[._])ema",
    "objective": r"predict|objective|loss|flow|time|shift|min_snr",
    "data": r"data|shards?|images?_dir|train_dir",
}


class ConfigChange(NamedTuple):
    """A value that an arm has otherwise than the baseline; None where one of them has none."""

    path: str
    before: Any
    after: Any

    @property
    def decision(self) -> str:
        words = self.path
        return next(
            (name for name, pattern in DECISIONS.items() if re.search(pattern, words)),
            words.partition(".")[0],
        )

    def __str__(self) -> str:
        return f"{self.path}: {self.before!r} -> {self.after!r}"


class ConfigArm(NamedTuple):
    config: ConfigFile
    values: dict[str, Any]  # path -> value, what it inherits included
    changes: list[ConfigChange]  # against the baseline, labels and outputs left out

    @property
    def name(self) -> str:
        return self.config.path.stem

    def at(self, path: str = "") -> str:
        """File and line where the arm itself writes it, else where it begins."""
        line = next((entry.line for entry in self.config.entries if entry.path == path), 1)
        return f"{self.config.path}:{line}"


class ConfigFamily(NamedTuple):
    baseline: ConfigArm
    arms: list[ConfigArm]

    @property
    def changes(self) -> list[tuple[ConfigArm, ConfigChange]]:
        """Of all arms."""
        return [(arm, change) for arm in self.arms for change in arm.changes]


class Inherited:
    """Which file of a project a configuration is built on."""

    def __init__(self, root: Path, configs: Sequence[ConfigFile]) -> None:
        self.root, self.known = root, {config.path: config for config in configs}

    def parents(self, config: ConfigFile) -> list[ConfigFile]:
        found = (self._find(config, name) for name, _ in _names(config))
        return list(
            {one.path: one for one in found if one is not None and one is not config}.values()
        )

    def misses(self, config: ConfigFile) -> bool:
        """Does it name a file that is not there?"""
        return any(is_file and self._find(config, name) is None for name, is_file in _names(config))

    def _find(self, config: ConfigFile, name: str) -> ConfigFile | None:
        """Beside it, or from one of the folders above it within the target, for one of them is the
        root that Hydra's `/base` and others' `configs/base.yaml` begin at."""
        home = config.path.parent
        above = [folder for folder in home.parents if folder.is_relative_to(self.root)]
        places = [Path(normpath(folder / name.lstrip("/"))) for folder in (home, *above)]
        for place in (*places, home / Path(name).name):
            for path in (place, *(place.with_name(place.name + suffix) for suffix in SUFFIXES)):
                if path in self.known:
                    return self.known[path]
        return None

    def builds_on(self, config: ConfigFile, base: ConfigFile, depth: int = 8) -> bool:
        parents = self.parents(config) if depth else []
        return base in parents or any(self.builds_on(one, base, depth - 1) for one in parents)

    def values(self, config: ConfigFile, depth: int = 8) -> dict[str, Any]:
        """What it says, over what it inherits."""
        values: dict[str, Any] = {}
        for parent in self.parents(config) if depth else ():
            values.update(self.values(parent, depth - 1))
        own: list[Entry] = config.entries
        values.update(
            {
                entry.path: entry.value
                for entry in own
                if entry.path.partition(".")[0] not in INHERITS
            }
        )
        return values


def family_of(configs: Sequence[ConfigFile], inherited: Inherited) -> ConfigFamily | None:
    """The comparison that the configurations of a folder make with each other, or with one
    elsewhere that they inherit; None where there is none, or no baseline can be told."""
    built_on = [one for config in configs for one in inherited.parents(config)]
    elsewhere = [one for one in built_on if one not in configs]
    known = list({one.path: one for one in (*configs, *elsewhere)}.values())
    if len(known) < 2:
        return None
    named = [config for config in known if BASELINE.search(config.path.stem)]
    bases = [config for config in known if config in built_on]
    if len(named) != 1 and len(bases) != 1:
        return None
    base = named[0] if len(named) == 1 else bases[0]
    arms = [
        config for config in configs if config is not base and _comparable(base, config, inherited)
    ]
    if not arms:
        return None
    former = inherited.values(base)
    return ConfigFamily(
        ConfigArm(base, former, []),
        [_arm(config, former, inherited.values(config)) for config in arms],
    )


def _arm(config: ConfigFile, former: Mapping[str, Any], values: dict[str, Any]) -> ConfigArm:
    paths = [path for path in {**former, **values} if former.get(path) != values.get(path)]
    changes = [
        ConfigChange(path, former.get(path), values.get(path))
        for path in paths
        if not LABELS.search(path)
        and not OUTPUTS.search(path)
        and path.partition(".")[0] not in INHERITS
    ]
    return ConfigArm(config, values, changes)


def _comparable(base: ConfigFile, other: ConfigFile, inherited: Inherited) -> bool:
    """Does it inherit from the baseline, or write mostly the same names?"""
    if inherited.builds_on(other, base):
        return True
    mine, yours = ({entry.path for entry in config.entries} for config in (base, other))
    return bool(mine) and len(mine & yours) >= 0.5 * min(len(mine), len(yours))


def _names(config: ConfigFile) -> list[tuple[str, bool]]:
    """What it says that it is built on, and whether that is surely a file: `base: large` may be
    anything."""
    names: list[tuple[str, bool]] = []
    for field in INHERITS:
        given = config.plain.get(field)
        for one in given if isinstance(given, list) else [given]:
            if (
                isinstance(one, str)
                and one.strip("./")
                and one != "_self_"
                and not re.search(r"[@$]", one)
            ):
                names.append((one, field == "defaults" or one.lower().endswith(SUFFIXES)))
    return names


# --------------------------------------------------------------------------------------------------
# How many image tokens a configuration trains on, where it says enough to know.


STRIDE = 8.0  # of the usual autoencoders
# models whose patches of 2 x 2 latents are known
PATCHED = r"flux[._-]?1|^flux$|stable-diffusion-3|(^|[^a-z])sd3"


def image_tokens(config: ConfigFile, usual_stride: bool = False) -> float | None:
    """`usual_stride`: take an autoencoder whose stride is not stated for one of the usual kind."""
    given = config.number(r"(^|[._])(num_|image_)tokens$")
    if given is not None:
        return given
    side = config.number(r"(^|[._])(resolution|image_size|img_size|imagesize)$") or _square(config)
    patch = config.number(r"(^|[._])patch(_?size)?$")
    stride = config.number(
        r"(vae|autoencoder|codec|tokenizer|first_stage)\w*[._](stride|downsample\w*|scale_factor|"
        r"f)$"
    )
    if patch is None and stride is None and usual_stride and config.mentions(PATCHED):
        patch, stride = 2.0, STRIDE
    if (
        stride is None
        and usual_stride
        and config.mentions(r"(^|[._])(vae|autoencoder|first_stage)|autoencoderkl|latent")
    ):
        stride = STRIDE
    return (side / (patch * stride)) ** 2 if side and patch and stride else None


def _square(config: ConfigFile) -> float | None:
    """kohya's resolution = "1024,1024"; the root of the area where it is none."""
    entry = config.first(r"(^|[._])resolution$")
    sides = (
        re.fullmatch(r"\s*(\d+)\s*[,x]\s*(\d+)\s*", str(entry.value)) if entry is not None else None
    )
    return (float(sides[1]) * float(sides[2])) ** 0.5 if sides else None


# --------------------------------------------------------------------------------------------------
# A sweep in one configuration, as Hydra writes it: what differs between its jobs, and what a value
# depends on.


PARAMETERS = "hydra.sweeper.params."
NAME = re.compile(r"\$\{([^${}]*)\}")
MANY = re.compile(r"^(choice|range|interval|glob|shuffle)\(")
NESTED = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}|\"[^\"]*\"|'[^']*'")


def swept_names(config: ConfigFile) -> list[str]:
    """Names that a sweep gives more than one value."""
    return [
        entry.path.removeprefix(PARAMETERS).lstrip("+")
        for entry in config.entries
        if entry.path.startswith(PARAMETERS) and _is_many(entry)
    ]


def _is_many(entry: Entry) -> bool:
    if isinstance(entry.value, list):
        return len(entry.value) > 1
    # a list in brackets is one value
    return bool(MANY.match(entry.text)) or "," in NESTED.sub("", entry.text)


def names_in(config: ConfigFile, entry: Entry) -> set[str] | None:
    """Names that a path is made of, followed through other values.

    None where it may be another for each job in a way that is not known: a resolver (`${now:...}`,
    `${hydra:...}`), a relative path, which Hydra may read within the job's own folder, or what is
    no path at all.
    """
    if not isinstance(entry.value, str):
        return None
    kept = config.first(r"^hydra\.job\.chdir$")
    if not re.match(r"/|\w+://|\$\{|[a-z]:[\\/]|~", entry.text) and not (
        kept is not None and kept.off
    ):
        return None
    known = {one.path: one.value for one in config.entries}
    names, waiting = set[str](), [entry.value]
    while waiting:
        for name in NAME.findall(waiting.pop()):
            name = name.strip().lower().replace("-", "_")
            if not re.fullmatch(r"[\w.]+", name) or name.startswith((".", "hydra.", "oc.")):
                return None
            if name not in names:
                names.add(name)
                waiting += [known[name]] if isinstance(known.get(name), str) else []
    return names
