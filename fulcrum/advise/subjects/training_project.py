"""Scripts and configurations that lie in one folder and belong together; what cannot be read is named, the rest is kept."""

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fulcrum.advise.subjects.config_family import ConfigFamily, Inherited, family_of
from fulcrum.advise.subjects.config_file import SUFFIXES, ConfigFile, read_config
from fulcrum.advise.subjects.python_script import Script, read_script
from fulcrum.spec.errors import BadInput
from fulcrum.spec.progress import Tally

MOST_FILES = 2_000
SKIPPED = {"__pycache__", "node_modules", "site-packages", "wandb", "build", "dist"}
NOT_CONFIGS = {"package.json", "package-lock.json", "pyproject.toml", "tsconfig.json", "tokenizer.json", "vocab.json"}


class Unread(NamedTuple):
    """A file that could not be looked at, and why."""

    path: Path
    why: str


class TrainingProject:
    def __init__(self, folder: Path, scripts: list[Script], configs: list[ConfigFile], unread: list[Unread]) -> None:
        self.folder, self.scripts, self.configs, self.unread = folder, scripts, configs, unread

    @cached_property
    def inherited(self) -> Inherited:
        return Inherited(self.folder, self.configs)

    @cached_property
    def families(self) -> list[ConfigFamily]:
        """Comparisons: the configurations of each folder that has a baseline, in it or where they say."""
        folders: dict[Path, list[ConfigFile]] = {}
        for config in self.configs:
            folders.setdefault(config.path.parent, []).append(config)
        families = (family_of(configs, self.inherited) for configs in folders.values())
        return [family for family in families if family is not None]

    @property
    def orphans(self) -> int:
        """Files that inherit from one that is not here: they are held against nothing."""
        return sum(self.inherited.misses(config) for config in self.configs)


def project_files(folder: Path) -> list[Path]:
    """Scripts and configurations below a folder, sorted; hidden ones, links and what tools left behind are passed over."""
    files: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        for name in sorted(names):
            path = Path(place) / name
            if (
                path.suffix.lower() in (".py", *SUFFIXES)
                and name not in NOT_CONFIGS
                and not name.startswith(".")
                and not path.is_symlink()
            ):
                files.append(path)
        if len(files) > MOST_FILES:
            raise BadInput(f"{folder} holds more than {MOST_FILES:,} scripts and configurations", "name a folder within it")
    return files


def read_project(folder: Path, files: list[Path], say: Callable[[str], None] | None = None) -> TrainingProject:
    scripts, configs, unread = list[Script](), list[ConfigFile](), list[Unread]()
    tally = Tally("read", len(files), say, "files")
    for number, path in enumerate(files):
        tally.tell(number)
        try:
            if path.suffix.lower() == ".py":
                scripts.append(read_script(path))
            else:
                configs.append(read_config(path))
        except BadInput as error:
            unread.append(Unread(path, f"{error.message} ({error.hint})" if error.hint else error.message))
    return TrainingProject(folder, scripts, configs, unread)
