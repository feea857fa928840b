"""Studies: the folder of one that was run, whose files are made again; and kept ones, judged again from their cells."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from fulcrum.checkup.ailment import Ailment, Checkup, leftovers, moved_aside
from fulcrum.files.paths import reason
from fulcrum.files.sealed import CHECK, is_intact, read_json
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.phrase import Catalogue
from fulcrum.studies.frozen_plan import NAME
from fulcrum.studies.kept import RESULT
from fulcrum.studies.kept_cells import KEPT_HINT
from fulcrum.studies.plan_file import from_plain
from fulcrum.studies.verify import verify

REWRITE_HINT = "start the study's command again: it is written anew, and finished cells are kept"
MOST = 20  # differences that are named
NAME_FILES = "run with files of one's own: with --with FILE all of it is judged again"


def study_checkup(folder: Path) -> Checkup:
    """A folder study-* beside the runs: its plan, what was timed and proven, its report."""
    ailments, sound = list[Ailment](), list[str]()
    for path in sorted(one for one in folder.glob("*.json") if not one.name.startswith("damaged-")):
        try:
            value = read_json(path, "")
            if CHECK in value and not is_intact(value):
                raise ValueError(f"{path} was changed after it was written: its checksum does not fit")
            if path.name == NAME:
                from_plain(value)
            sound.append(path.name)
        except (FulcrumError, ValidationError, ValueError) as error:
            what = getattr(error, "message", None) or str(error).partition("\n")[0]
            ailments.append(Ailment(path, what, REWRITE_HINT, moved_aside(path)))
    return Checkup(folder, "study", tuple(sound), (*ailments, *leftovers(folder)))


def kept_checkup(folder: Path, catalogue: Catalogue, user_files: Mapping[str, str]) -> Checkup:
    """A study that is kept in a small folder: every file, line and card, and every number that follows from them, as
    'fulcrum study verify' sees them. Whatever is wrong with it, the next study is looked at."""
    left = leftovers(folder)
    try:
        checked = verify(folder, catalogue, user_files)
    except (FulcrumError, OSError) as error:
        message = error.message if isinstance(error, FulcrumError) else f"it cannot be read: {reason(error)}"
        return Checkup(folder, "kept study", (), (Ailment(folder, message, KEPT_HINT), *left))
    wrong = [
        Ailment(folder / RESULT, f"it does not follow from the cells: {one}", KEPT_HINT)
        for one in checked.differences[:MOST]
    ]
    sound = (f"{checked.cells} cells",) if wrong else (checked.words,)
    return Checkup(folder, "kept study", sound, (*wrong, *left), () if checked.whole else (NAME_FILES,))
