"""What a path is, and the checkup for it: a run, a cache, a store of pictures, a study, or a folder of these."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fulcrum.checkup.ailment import Checkup
from fulcrum.checkup.cache_checkup import ENTRY, cache_checkup, entries
from fulcrum.checkup.run_checkup import run_checkup
from fulcrum.checkup.store_checkup import store_checkup, unfinished_import
from fulcrum.checkup.study_checkup import kept_checkup, study_checkup
from fulcrum.data.stores.picture_store import ABOUT
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue
from fulcrum.studies.kept import bears_study
from fulcrum.training.trained_run import KEY

Say = Callable[[str], None]
STUDY = re.compile(r"study-[0-9a-f]{16}")


def checkups(path: Path, known: Catalogue, say: Say, user_files: Mapping[str, str] | None = None) -> Iterator[Checkup]:
    """One after another, as they are done; a path that holds nothing of ours is refused. `user_files`: the hashes of the
    files of one's own that `known` comes from."""
    if not path.is_dir():
        what = "is no folder" if path.exists() else "is not there"
        raise BadInput(f"{path} {what}", "name a run, a cache, a store of pictures, a study, or a folder of these")
    own = _checkup(path, known, say, user_files or {})
    if own is not None:
        yield own
        return
    empty = True
    for inner in sorted(one for one in path.iterdir() if one.is_dir() and not one.is_symlink()):
        one = _checkup(inner, known, say, user_files or {})
        if one is not None:
            empty = False
            yield one
    if empty:
        raise BadInput(
            f"{path} holds nothing that fulcrum wrote: no run, cache, store, study or kept study",
            "name one of these, or the folder of runs that --out named",
        )


def _checkup(path: Path, known: Catalogue, say: Say, user_files: Mapping[str, str]) -> Checkup | None:
    """None: it is none of these."""
    if KEY.fullmatch(path.resolve().name) and ((path / "about.json").exists() or (path / "checkpoints").exists()):
        return run_checkup(path if KEY.fullmatch(path.name) else path.resolve(), known, say)
    if bears_study(path):
        return kept_checkup(path, known, user_files)
    if (path / ABOUT).exists():
        return store_checkup(path, say)
    if path.name.endswith(".partial") and (path / "import.json").exists():
        return unfinished_import(path)
    if STUDY.fullmatch(path.resolve().name):
        return study_checkup(path)
    if entries(path) or any(ENTRY.match(one.name) for one in path.iterdir()):
        return cache_checkup(path, say)
    return None
