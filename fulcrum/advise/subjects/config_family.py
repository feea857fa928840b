"""Configurations that are compared with each other: a baseline and its arms, each with what it inherits filled in."""

import re
from collections.abc import Mapping, Sequence
from os.path import normpath
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.advise.subjects.config_file import SUFFIXES, ConfigFile, Entry

BASELINE = re.compile(r"(?i)^(base|baseline|defaults?|control)($|[_\-. ])|[_\-. ]baseline$")
INHERITS = ("defaults", "base", "_base_", "extends", "inherit", "inherits", "parent")
# What tells one training from another and decides nothing about it.
LABELS = re.compile(
    r"(^|[._])(run_name|exp_name|experiment_name|experiment|title|description|notes?|tags?|wandb|tracker\w*|comment)($|[._])"
    r"|^((run|exp|job|arm|trial)[._]?)?(name|id|label|slug|group|project)$|(^|[._])(\w*overwrite|save_interval|log_interval|logging_steps|num_workers|prefetch\w*)$"
)
# A word of writing and one of place: output_dir, outputDir, save_to, checkpoint.dir. What is loaded from is none, and a
# root is none either: trainers put the run's name below it.
OUTPUTS = re.compile(
    r"(^|[._])(out|outputs?|save|results?|work|working|exp|experiment|run|ckpts?|checkpoints?|logs?|logging|artifacts?|dump)"
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
        return next((name for name, pattern in DECISIONS.items() if re.search(pattern, words)), words.partition(".")[0])

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


class Inherited:
    """Which file of a project a configuration is built on."""

    def __init__(self, root: Path, configs: Sequence[ConfigFile]) -> None:
        self.root, self.known = root, {config.path: config for config in configs}

    def parents(self, config: ConfigFile) -> list[ConfigFile]:
        found = (self._find(config, name) for name, _ in _names(config))
        return list({one.path: one for one in found if one is not None and one is not config}.values())

    def misses(self, config: ConfigFile) -> bool:
        """Does it name a file that is not there?"""
        return any(is_file and self._find(config, name) is None for name, is_file in _names(config))

    def _find(self, config: ConfigFile, name: str) -> ConfigFile | None:
        """Beside it, or from one of the folders above it within the target, for one of them is the root that Hydra's
        `/base` and others' `configs/base.yaml` begin at."""
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
        values.update({entry.path: entry.value for entry in own if entry.path.partition(".")[0] not in INHERITS})
        return values


def family_of(configs: Sequence[ConfigFile], inherited: Inherited) -> ConfigFamily | None:
    """The comparison that the configurations of a folder make with each other, or with one elsewhere that they inherit;
    None where there is none, or no baseline can be told."""
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
    arms = [config for config in configs if config is not base and _comparable(base, config, inherited)]
    if not arms:
        return None
    former = inherited.values(base)
    return ConfigFamily(ConfigArm(base, former, []), [_arm(config, former, inherited.values(config)) for config in arms])


def _arm(config: ConfigFile, former: Mapping[str, Any], values: dict[str, Any]) -> ConfigArm:
    paths = [path for path in {**former, **values} if former.get(path) != values.get(path)]
    changes = [
        ConfigChange(path, former.get(path), values.get(path))
        for path in paths
        if not LABELS.search(path) and not OUTPUTS.search(path) and path.partition(".")[0] not in INHERITS
    ]
    return ConfigArm(config, values, changes)


def _comparable(base: ConfigFile, other: ConfigFile, inherited: Inherited) -> bool:
    """Does it inherit from the baseline, or write mostly the same names?"""
    if inherited.builds_on(other, base):
        return True
    mine, yours = ({entry.path for entry in config.entries} for config in (base, other))
    return bool(mine) and len(mine & yours) >= 0.5 * min(len(mine), len(yours))


def _names(config: ConfigFile) -> list[tuple[str, bool]]:
    """What it says that it is built on, and whether that is surely a file: `base: large` may be anything."""
    names: list[tuple[str, bool]] = []
    for field in INHERITS:
        given = config.plain.get(field)
        for one in given if isinstance(given, list) else [given]:
            if isinstance(one, str) and one.strip("./") and one != "_self_" and not re.search(r"[@$]", one):
                names.append((one, field == "defaults" or one.lower().endswith(SUFFIXES)))
    return names
