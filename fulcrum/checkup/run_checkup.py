"""The folder of a run: its description, checkpoints, record, result, and what was measured of it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fulcrum.checkup.ailment import Ailment, Checkup, leftovers, moved_aside
from fulcrum.files.paths import Damaged, free_aside, reason, set_aside
from fulcrum.files.sealed import keep_records, read_records, read_sealed
from fulcrum.measure.preview import CURVE, read_lines, require_unchanged
from fulcrum.spec.edit import key, read, read_by
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE
from fulcrum.training import checkpoint
from fulcrum.training.average import drawn_parts
from fulcrum.training.kept_weights import KEPT, verified_weights
from fulcrum.training.run_folder import RunFolder, claim, in_use

MEASURED = ("measured-*.json", "pictures-*.json", "failed-*.json", "rate-*.json", "point-*.json")
MEASURED_AGAIN = "the study's command measures it again"
ANEW = "remove the run with 'fulcrum runs rm {key}' and start its command again"
GO_ON = "start the run's command again: it goes on from {images:,} images to the same weights"


def run_checkup(path: Path, known: Catalogue, say: Callable[[str], None]) -> Checkup:
    """All that is wrong with a run; what is mended is mended while nobody trains it."""
    found = _RunFindings(RunFolder(path))
    found.look_at_about(known)
    found.look_at_checkpoints(say)
    found.look_at_record()
    found.look_at_measured()
    found.ailments += leftovers(path, path / "checkpoints", path / KEPT, path / "previews")
    if in_use(found.folder):
        found.notes.append("a process is training it now: --repair leaves it alone")
    aside = [one.name for one in (*path.glob("damaged-*"), *found.folder.checkpoints.glob("damaged-*"))]
    if aside:
        found.notes.append(f"set aside before: {', '.join(sorted(aside))}; of checkpoints 'fulcrum runs gc' removes them")
    mended = [one._replace(mend=_alone(found.folder, one.mend)) if one.mend else one for one in found.ailments]
    return Checkup(path, "run", tuple(found.sound), tuple(mended), tuple(found.notes))


def _alone(folder: RunFolder, mend: Callable[[], str]) -> Callable[[], str]:
    """To mend while holding the run."""

    def held() -> str:
        with claim(folder, patience=0.0):
            return mend()

    return held


class _RunFindings:
    """What is found on the way, part by part."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.name = folder, folder.path.name
        self.sound, self.notes, self.ailments = list[str](), list[str](), list[Ailment]()
        self.about: dict[str, Any] = {}

    def look_at_about(self, known: Catalogue) -> None:
        """The description must be the one that the folder is called after."""
        path = self.folder.path / "about.json"
        try:
            self._hold_against_key(path, known)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:  # other things in its fields
            what = f"it is not the description of a run: {type(error).__name__}: {str(error)[:200]}"
            self.ailments.append(Ailment(path, what, f"put it back as it was, or {ANEW.format(key=self.name)}"))

    def _hold_against_key(self, path: Path, known: Catalogue) -> None:
        try:
            self.about = self.folder.about()
            run, files = read(self.about["run"], known.fillers), self.about.get("user_files", {})
            reads = read_by(run)
        except (FulcrumError, OSError) as error:
            if not self.about:
                self.ailments.append(Ailment(path, str(error).partition("\n")[0], ANEW.format(key=self.name)))
            else:
                self.notes.append(f"about.json was not held against the key: {str(error).partition(chr(10))[0]}")
            return
        if self.about.get("science", FIRST_SCIENCE) != SCIENCE:
            self.notes.append("another version of the science trained it: readable, not gone on with")
        elif changed := [name for name, digest in self.about.get("reads", {}).items() if reads.get(name) != digest]:
            self.notes.append(f"what it was trained with is not what is here now: {', '.join(sorted(changed))}")
        elif self.about.get("key") != self.name or key(run, int(self.about["seed"]), files) != self.name:
            what = "it describes another run than the folder is called after: it was edited, or the folder was renamed"
            self.ailments.append(Ailment(path, what, f"put it back as it was, or {ANEW.format(key=self.name)}"))
        else:
            self.sound.append("description")

    def look_at_checkpoints(self, say: Callable[[str], None]) -> None:
        """Every tensor against its checksum, and the result against the newest."""
        place, good, bad = self.folder.checkpoints, dict[int, str](), list[tuple[Path, str]]()
        for path in checkpoint.listing(place) if not place.is_symlink() else ():
            say(f"verifying {path}")
            try:
                saved = checkpoint.load(path)
                if saved.key != self.name:
                    raise Damaged(f"{path} belongs to the run {saved.key}")
                good[saved.state.images] = checkpoint.weights_hash(drawn_parts(saved.parts))
            except Damaged as error:
                bad.append((path, error.message))
        if place.is_symlink():
            self.ailments.append(
                Ailment(place, "it is a link, expected a folder of checkpoints", "put the folder itself there")
            )
        for path, what in bad:
            if good:
                remedy = GO_ON.format(images=max(good))
                self.ailments.append(Ailment(path, what, remedy, moved_aside(path)))
            else:
                self.ailments.append(Ailment(path, f"{what}; no checkpoint is good", ANEW.format(key=self.name)))
        if good:
            self.sound.append(f"{len(good)} checkpoint{'s' * (len(good) > 1)}")
        for path in checkpoint.listing(self.folder.path / KEPT):
            try:
                verified_weights(path)
            except Damaged as error:
                remedy = "nothing but drawing from that point needs it"
                self.ailments.append(Ailment(path, error.message, remedy, moved_aside(path)))
        self._look_at_result(good)

    def _look_at_result(self, good: dict[int, str]) -> None:
        path = self.folder.path / "result.json"
        mend = moved_aside(path) if good else None
        remedy = GO_ON.format(images=max(good)) if good else ANEW.format(key=self.name)
        try:
            result = self.folder.result()
        except BadInput as error:
            self.ailments.append(Ailment(path, error.message, remedy, mend))
            return
        if result is None:
            self.notes.append("not finished: start its command again, it goes on" if good else "not finished")
        elif not good:
            self.ailments.append(Ailment(path, "the run is finished, and no good checkpoint holds its weights", remedy))
        elif good[max(good)] != result["weights_sha256"]:
            what = f"the newest good checkpoint, at {max(good):,} images, does not hold the weights that the run ended with"
            self.ailments.append(Ailment(path, what, remedy, mend))
        else:
            self.sound.append("result")

    def look_at_record(self) -> None:
        path = self.folder.record
        measured = any(self.folder.path.glob("measured-*.json"))  # then its hash is kept there, and it is not rewritten
        try:
            faults = read_records(path).faults
        except OSError as error:
            faults = [f"{path} cannot be read: {reason(error)}"]
        if faults:
            more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
            remedy = ANEW.format(key=self.name) if measured else ""
            self.ailments.append(Ailment(path, faults[0] + more, remedy, None if measured else _good_lines(path)))
        elif path.exists():
            self.sound.append("record")

    def look_at_measured(self) -> None:
        """Files of a study, sealed; and the lines that were hashed when it was measured."""
        measured: dict[str, Any] = {}
        for path in sorted(one for pattern in MEASURED for one in self.folder.path.glob(pattern)):
            try:
                value = read_sealed(path, "")
                measured = value if path.name.startswith("measured-") else measured
                self.sound.append(path.name)
            except BadInput as error:
                self.ailments.append(Ailment(path, error.message, MEASURED_AGAIN, moved_aside(path)))
        for fault in self._changed_lines(measured):
            self.ailments.append(Ailment(self.folder.path / CURVE, fault, ANEW.format(key=self.name)))

    def _changed_lines(self, measured: dict[str, Any]) -> Iterator[str]:
        try:
            if measured:
                require_unchanged(self.folder.path, measured)
            else:
                read_lines(self.folder.path / CURVE, None)
        except BadInput as error:
            yield error.message


def _good_lines(path: Path) -> Callable[[], str]:
    """The record without its bad lines; as it was, it stays beside it."""

    def mend() -> str:
        if path.is_symlink() or not path.is_file():
            return f"set aside as {set_aside(path).name}"
        aside = free_aside(path)
        shutil.copyfile(path, aside)
        keep_records(path, lambda line: True)
        return f"set aside as {aside.name}, its good lines written anew"

    return mend
