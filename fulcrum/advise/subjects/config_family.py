"""Configurations that are compared with each other: a baseline and its arms, each with what it inherits filled in."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.advise.subjects.config_file import ConfigFile, Entry

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

    def line(self, path: str) -> str:
        """Where the arm itself writes it, else where it begins."""
        return next((str(entry.line) for entry in self.config.entries if entry.path == path), "1")


class ConfigFamily(NamedTuple):
    baseline: ConfigArm
    arms: list[ConfigArm]


def family_of(configs: Sequence[ConfigFile]) -> ConfigFamily | None:
    """The comparison that some configurations make; None where there is none, or no baseline can be told."""
    if len(configs) < 2:
        return None
    named = [config for config in configs if BASELINE.search(config.path.stem)]
    inherited = [
        config for config in configs if any(config.path.stem in _parents(other) for other in configs if other is not config)
    ]
    if len(named) != 1 and len(inherited) != 1:
        return None
    base = named[0] if len(named) == 1 else inherited[0]
    arms = [config for config in configs if config is not base and _comparable(base, config)]
    if not arms:
        return None
    known = {config.path.stem: config for config in configs}
    former = _values(base, known)
    return ConfigFamily(ConfigArm(base, former, []), [_arm(config, former, _values(config, known)) for config in arms])


def _arm(config: ConfigFile, former: Mapping[str, Any], values: dict[str, Any]) -> ConfigArm:
    paths = [path for path in {**former, **values} if former.get(path) != values.get(path)]
    changes = [
        ConfigChange(path, former.get(path), values.get(path))
        for path in paths
        if not LABELS.search(path) and not OUTPUTS.search(path) and path.partition(".")[0] not in INHERITS
    ]
    return ConfigArm(config, values, changes)


def _comparable(base: ConfigFile, other: ConfigFile) -> bool:
    """Does it inherit from the baseline, or write mostly the same names?"""
    if base.path.stem in _parents(other):
        return True
    mine, yours = ({entry.path for entry in config.entries} for config in (base, other))
    return bool(mine) and len(mine & yours) >= 0.5 * min(len(mine), len(yours))


def _parents(config: ConfigFile) -> list[str]:
    """Names of the files that a configuration is built on, without folder and ending."""
    names: list[str] = []
    for field in INHERITS:
        given = config.plain.get(field)
        for one in given if isinstance(given, list) else [given]:
            if isinstance(one, str):
                names.append(Path(one).stem)
    return names


def _values(config: ConfigFile, known: Mapping[str, ConfigFile], depth: int = 8) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for parent in _parents(config) if depth else ():
        if parent in known and known[parent] is not config:
            values.update(_values(known[parent], known, depth - 1))
    own: list[Entry] = config.entries
    values.update({entry.path: entry.value for entry in own if entry.path.partition(".")[0] not in INHERITS})
    return values
