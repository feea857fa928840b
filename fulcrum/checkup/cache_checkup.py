"""A cache of encodings, entry by entry against its checksums. A damaged one is dropped: who needs it encodes it again."""

import re
from collections.abc import Callable
from pathlib import Path

from fulcrum.checkup.ailment import Ailment, Checkup, leftovers
from fulcrum.files.array_store import require_sound
from fulcrum.files.lock import locked
from fulcrum.files.paths import Damaged, remove
from fulcrum.spec.progress import Tally

ENTRY = re.compile(r"[a-z_]+-[0-9a-f]{32}")
MAKING = ".making"


def entries(folder: Path) -> list[Path]:
    """What is called like an entry: folders, and whatever else stands in the place of one."""
    names = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in names if ENTRY.fullmatch(path.name)]


def cache_checkup(folder: Path, say: Callable[[str], None]) -> Checkup:
    sound, ailments, size = 0, leftovers(folder), 0
    paths = entries(folder)
    tally = Tally("verified", len(paths), say, "entries of the cache")
    for done, path in enumerate(paths, 1):
        try:
            size += require_sound(path)
            sound += 1
        except Damaged as error:
            ailments.append(Ailment(path, error.message, "the next run that needs it encodes it again", _drop(path)))
        tally.tell(done)
    unfinished = [path.name for path in folder.iterdir() if path.name.endswith(MAKING)]
    notes = [f"{len(unfinished)} unfinished: a run that needs one goes on with it"] if unfinished else []
    looked_at = (f"{sound} of {len(paths)} entries, {size / 1e6:,.1f} MB",)
    return Checkup(folder, "cache", looked_at, tuple(ailments), tuple(notes))


def _drop(path: Path) -> Callable[[], str]:
    def drop() -> str:
        with locked(path.with_name(path.name + ".lock"), patience=0.0):
            try:
                require_sound(path)
            except Damaged:
                remove(path)
                return "dropped"
        return "nothing: it is sound by now"

    return drop
