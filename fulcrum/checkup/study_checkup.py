"""Studies: the folder of one that was run, whose files are made again; and kept ones, judged again from their cells."""

from pathlib import Path

from pydantic import ValidationError

from fulcrum.checkup.ailment import Ailment, Checkup, leftovers, moved_aside
from fulcrum.files.sealed import CHECK, is_intact, read_json
from fulcrum.report.schema import StudyResult
from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.phrase import Catalogue
from fulcrum.study.kept import RESULT, read_facts
from fulcrum.study.kept_verdicts import verify
from fulcrum.study.plan.frozen_plan import NAME
from fulcrum.study.plan.plan_file import from_plain
from fulcrum.study.run.kept_cells import HINT, read_kept

AGAIN = "start the study's command again: it is written anew, and finished cells are kept"
MOST = 20  # differences that are named


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
            ailments.append(Ailment(path, what, AGAIN, moved_aside(path)))
    return Checkup(folder, "study", tuple(sound), (*ailments, *leftovers(folder)))


def kept_checkup(folder: Path, catalogue: Catalogue) -> Checkup:
    """A study that is kept in a small folder: every line, every card, and every number that follows from them."""
    try:
        if read_facts(folder)["user_files"]:
            cells = len(read_kept(folder).lines)
            StudyResult.model_validate({**read_json(folder / RESULT, HINT), "made": read_facts(folder)["made"]})
            note = "run with files of one's own, so it was not judged again: fulcrum study verify FOLDER --with FILE"
            return Checkup(folder, "kept study", (f"{cells} cells",), tuple(leftovers(folder)), (note,))
        checked = verify(folder, catalogue)
    except (FulcrumError, ValidationError, KeyError) as error:
        message = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        return Checkup(folder, "kept study", (), (Ailment(folder, message, HINT), *leftovers(folder)))
    wrong = [
        Ailment(folder / RESULT, f"it does not follow from the cells: {one}", HINT) for one in checked.differences[:MOST]
    ]
    sound = (f"{checked.cells} cells", f"{checked.effects} effects judged again")
    return Checkup(folder, "kept study", sound if not wrong else sound[:1], (*wrong, *leftovers(folder)))
