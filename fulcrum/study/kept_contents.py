"""The files of a kept study by their hashes: what was changed, lost or put there since is named.

Lines and cards bear checksums of their own. This tells of the rest: pictures, plan and costs, a study's result where it
cannot be judged again, and cells of another study.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.sealed import read_sealed, sha256_file, write_sealed
from fulcrum.spec.errors import BadInput
from fulcrum.study.run.kept_cells import KEPT_HINT

CONTENTS = "contents.json"
NAMED = 3  # files that a message names
AGAIN = (
    "take the folder from the repository again; if it was kept before there were such lists: fulcrum study keep PLAN FOLDER"
)


class ChangedFile(NamedTuple):
    """A file that is not as it was kept."""

    name: str
    what: str  # became of it

    def __str__(self) -> str:
        return f"{self.name} {self.what}"


def write_contents(folder: Path) -> None:
    """After all other files: until then the folder is not as it says."""
    strange = [path for _, path in _files(folder) if not path.is_file()]
    if strange:
        raise BadInput(f"{strange[0]} is no plain file", "take it away, and start the same command again")
    write_sealed(folder / CONTENTS, {"files": {name: sha256_file(path) for name, path in _files(folder)}})


def changed_files(folder: Path) -> Iterator[ChangedFile]:
    """Which files are not as they were kept."""
    if not (folder / CONTENTS).exists():
        yield ChangedFile(CONTENTS, "is missing")
        return
    kept: dict[str, Any] = read_sealed(folder / CONTENTS, KEPT_HINT, fields={"files": dict})["files"]
    here = dict(_files(folder))
    for name in sorted(kept.keys() | here.keys()):
        if name not in here:
            yield ChangedFile(name, "is missing")
        elif not here[name].is_file():
            yield ChangedFile(name, "is no plain file")
        elif name not in kept:
            yield ChangedFile(name, "was put there since")
        elif sha256_file(here[name]) != kept[name]:
            yield ChangedFile(name, "was changed")


def require_contents(folder: Path, besides: Collection[str] = ()) -> None:
    """All is as it was kept, but for files that are looked at otherwise."""
    lines = [str(changed) for changed in changed_files(folder) if changed.name not in besides]
    if lines:
        more = f", and {len(lines) - NAMED} more" if len(lines) > NAMED else ""
        hint = KEPT_HINT if (folder / CONTENTS).exists() else AGAIN
        raise BadInput(f"{folder} is not as it was kept: {', '.join(lines[:NAMED])}{more}", hint)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Whatever is no folder: a pipe is named, not passed over."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise BadInput(f"{path} is a link, expected a plain file", KEPT_HINT)
        below = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in below.parts)  # an editor's and a notebook's own
        if not path.is_dir() and not hidden and below.as_posix() != CONTENTS:
            yield below.as_posix(), path
