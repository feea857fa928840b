"""Check runs, caches, stores and studies on disk, and repair what can be repaired safely."""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fulcrum.data.stores.picture_store import ABOUT, SHARDS
from fulcrum.data.stores.verify import check
from fulcrum.files.array_store import require_sound
from fulcrum.files.atomic import abandoned
from fulcrum.files.lock import locked
from fulcrum.files.paths import Damaged, free_aside, reason, remove, set_aside
from fulcrum.files.sealed import (
    CHECK,
    is_intact,
    keep_records,
    read_json,
    read_records,
    read_sealed,
)
from fulcrum.measure.preview import CURVE, read_lines, require_unchanged
from fulcrum.spec.edit import key, read, read_by
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.progress import Tally
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE
from fulcrum.studies.frozen_plan import NAME
from fulcrum.studies.kept import RESULT, bears_study
from fulcrum.studies.kept_cells import KEPT_HINT
from fulcrum.studies.plan_file import from_plain
from fulcrum.studies.verify import verify
from fulcrum.training import checkpoint
from fulcrum.training.average import drawn_parts
from fulcrum.training.kept_weights import KEPT, verified_weights
from fulcrum.training.run_folder import RunFolder, claim, in_use
from fulcrum.training.trained_run import KEY

# --------------------------------------------------------------------------------------------------
# What a checkup finds: an ailment with its remedy, and how it is mended where that is safe.


class Ailment(NamedTuple):
    """One thing that is not as it was written, or that a killed process left."""

    place: Path
    what: str  # in a sentence
    remedy: str  # what a person does; of what can be mended, after that
    mend: Callable[[], str] | None = None  # makes it good and says how; None: only a person can
    damage: bool = True  # False: it is in nobody's way


class Checkup(NamedTuple):
    """Of one run, cache, store or study."""

    place: Path
    kind: str
    sound: tuple[str, ...]  # what was looked at and is good
    ailments: tuple[Ailment, ...] = ()
    notes: tuple[str, ...] = ()  # what is good to know, and no ailment


class Treated(NamedTuple):
    """An ailment and what became of it."""

    ailment: Ailment
    mended: str = ""  # how; empty: it is as it was
    failed: str = ""  # why mending it failed

    @property
    def ill(self) -> bool:
        return self.ailment.damage and not self.mended

    def plain(self) -> dict[str, Any]:
        place, what, remedy, mend, damage = self.ailment
        return {
            "place": str(place),
            "what": what,
            "remedy": remedy,
            "damage": damage,
            "repairable": mend is not None,
            "mended": self.mended,
            "failed": self.failed,
        }


def treated(ailments: Iterable[Ailment], repair: bool) -> list[Treated]:
    """Each ailment, mended if that is wanted and safe; one that cannot be mended does not keep the
    others from it."""
    answers = []
    for ailment in ailments:
        mended = failed = ""
        if repair and ailment.mend is not None:
            try:
                mended = ailment.mend()
            except FulcrumError as error:
                failed = error.message
            except OSError as error:
                failed = reason(error)
        answers.append(Treated(ailment, mended, failed))
    return answers


def moved_aside(path: Path) -> Callable[[], str]:
    """To mend by moving out of the way: nothing is destroyed."""
    return lambda: f"set aside as {set_aside(path).name}"


def leftovers(*folders: Path) -> list[Ailment]:
    """What killed writers left there; what is being written now is none of it."""
    asides = [
        path
        for folder in folders
        if folder.is_dir() and not folder.is_symlink()
        for path in abandoned(folder)
    ]
    return [
        Ailment(path, "a killed process left it half written", "", _removal(path), damage=False)
        for path in asides
    ]


def _removal(path: Path) -> Callable[[], str]:
    def away() -> str:
        remove(path)
        return "removed"

    return away


# --------------------------------------------------------------------------------------------------
# A cache of encodings, entry by entry against its checksums. A damaged one is dropped: who needs it
# encodes it again.


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
            ailments.append(
                Ailment(
                    path, error.message, "the next run that needs it encodes it again", _drop(path)
                )
            )
        tally.tell(done)
    unfinished = [path.name for path in folder.iterdir() if path.name.endswith(MAKING)]
    notes = (
        [f"{len(unfinished)} unfinished: a run that needs one goes on with it"]
        if unfinished
        else []
    )
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


# --------------------------------------------------------------------------------------------------
# A store of pictures: every table, shard, picture and caption. What is damaged must be copied or
# imported again.


AGAIN = (
    "copy it again from where it came, or import the pictures anew into another folder: fulcrum"
    " data import PICTURES FOLDER"
)


def store_checkup(folder: Path, say: Callable[[str], None]) -> Checkup:
    left = leftovers(folder, folder / SHARDS)
    try:
        about = check(folder, say)
    except Damaged as error:
        return Checkup(folder, "data store", (), (Ailment(folder, error.message, AGAIN), *left))
    swept = {ailment.place.name for ailment in left}  # a strange file, and one that is known
    faults = [fault for fault in about["faults"] if fault.partition(":")[0] not in swept]
    ailments = (*(Ailment(folder, fault, AGAIN) for fault in faults), *left)
    sound = (
        (f"{about['looked_at']:,} pictures with their captions, tables, shards, ledger and card",)
        if not faults
        else ()
    )
    return Checkup(folder, "data store", sound, ailments)


def unfinished_import(folder: Path) -> Checkup:
    """An import that was stopped: it is neither damaged nor a store."""
    note = "an import that is not finished: start the same command again, it goes on"
    return Checkup(folder, "unfinished import", (), tuple(leftovers(folder)), (note,))


# --------------------------------------------------------------------------------------------------
# The folder of a run: its description, checkpoints, record, result, and what was measured of it.


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
    aside = [
        one.name for one in (*path.glob("damaged-*"), *found.folder.checkpoints.glob("damaged-*"))
    ]
    if aside:
        found.notes.append(
            f"set aside before: {', '.join(sorted(aside))}; of checkpoints 'fulcrum runs gc'"
            " removes them"
        )
    mended = [
        one._replace(mend=_alone(found.folder, one.mend)) if one.mend else one
        for one in found.ailments
    ]
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
        # other things in its fields
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            what = f"it is not the description of a run: {type(error).__name__}: {str(error)[:200]}"
            self.ailments.append(
                Ailment(path, what, f"put it back as it was, or {ANEW.format(key=self.name)}")
            )

    def _hold_against_key(self, path: Path, known: Catalogue) -> None:
        try:
            self.about = self.folder.about()
            run, files = read(self.about["run"], known.fillers), self.about.get("user_files", {})
            reads = read_by(run)
        except (FulcrumError, OSError) as error:
            if not self.about:
                self.ailments.append(
                    Ailment(path, str(error).partition("\n")[0], ANEW.format(key=self.name))
                )
            else:
                self.notes.append(
                    f"about.json was not held against the key: {str(error).partition(chr(10))[0]}"
                )
            return
        if self.about.get("science", FIRST_SCIENCE) != SCIENCE:
            self.notes.append(
                "another version of the science trained it: readable, not gone on with"
            )
        elif changed := [
            name
            for name, digest in self.about.get("reads", {}).items()
            if reads.get(name) != digest
        ]:
            self.notes.append(
                f"what it was trained with is not what is here now: {', '.join(sorted(changed))}"
            )
        elif (
            self.about.get("key") != self.name
            or key(run, int(self.about["seed"]), files) != self.name
        ):
            what = (
                "it describes another run than the folder is called after: it was edited, or the"
                " folder was renamed"
            )
            self.ailments.append(
                Ailment(path, what, f"put it back as it was, or {ANEW.format(key=self.name)}")
            )
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
                Ailment(
                    place,
                    "it is a link, expected a folder of checkpoints",
                    "put the folder itself there",
                )
            )
        for path, what in bad:
            if good:
                remedy = GO_ON.format(images=max(good))
                self.ailments.append(Ailment(path, what, remedy, moved_aside(path)))
            else:
                self.ailments.append(
                    Ailment(path, f"{what}; no checkpoint is good", ANEW.format(key=self.name))
                )
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
            self.notes.append(
                "not finished: start its command again, it goes on" if good else "not finished"
            )
        elif not good:
            self.ailments.append(
                Ailment(
                    path, "the run is finished, and no good checkpoint holds its weights", remedy
                )
            )
        elif good[max(good)] != result["weights_sha256"]:
            what = (
                f"the newest good checkpoint, at {max(good):,} images, does not hold the weights"
                " that the run ended with"
            )
            self.ailments.append(Ailment(path, what, remedy, mend))
        else:
            self.sound.append("result")

    def look_at_record(self) -> None:
        path = self.folder.record
        # then its hash is kept there, and it is not rewritten
        measured = any(self.folder.path.glob("measured-*.json"))
        try:
            faults = read_records(path).faults
        except OSError as error:
            faults = [f"{path} cannot be read: {reason(error)}"]
        if faults:
            more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
            remedy = ANEW.format(key=self.name) if measured else ""
            self.ailments.append(
                Ailment(path, faults[0] + more, remedy, None if measured else _good_lines(path))
            )
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
                self.ailments.append(
                    Ailment(path, error.message, MEASURED_AGAIN, moved_aside(path))
                )
        for fault in self._changed_lines(measured):
            self.ailments.append(
                Ailment(self.folder.path / CURVE, fault, ANEW.format(key=self.name))
            )

    def _changed_lines(self, measured: dict[str, Any]) -> Iterator[str]:
        try:
            if measured:
                require_unchanged(self.folder.path, measured)
            else:
                read_lines(self.folder.path / CURVE)
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


# --------------------------------------------------------------------------------------------------
# Studies: the folder of one that was run, whose files are made again; and kept ones, judged again
# from their cells.


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
                raise ValueError(
                    f"{path} was changed after it was written: its checksum does not fit"
                )
            if path.name == NAME:
                from_plain(value)
            sound.append(path.name)
        except (FulcrumError, ValidationError, ValueError) as error:
            what = getattr(error, "message", None) or str(error).partition("\n")[0]
            ailments.append(Ailment(path, what, REWRITE_HINT, moved_aside(path)))
    return Checkup(folder, "study", tuple(sound), (*ailments, *leftovers(folder)))


def kept_checkup(folder: Path, catalogue: Catalogue, user_files: Mapping[str, str]) -> Checkup:
    """A study that is kept in a small folder: every file, line and card, and every number that
    follows from them, as 'fulcrum study verify' sees them. Whatever is wrong with it, the next
    study is looked at."""
    left = leftovers(folder)
    try:
        checked = verify(folder, catalogue, user_files)
    except (FulcrumError, OSError) as error:
        message = (
            error.message
            if isinstance(error, FulcrumError)
            else f"it cannot be read: {reason(error)}"
        )
        return Checkup(folder, "kept study", (), (Ailment(folder, message, KEPT_HINT), *left))
    wrong = [
        Ailment(folder / RESULT, f"it does not follow from the cells: {one}", KEPT_HINT)
        for one in checked.differences[:MOST]
    ]
    sound = (f"{checked.cells} cells",) if wrong else (checked.words,)
    return Checkup(
        folder, "kept study", sound, (*wrong, *left), () if checked.whole else (NAME_FILES,)
    )


# --------------------------------------------------------------------------------------------------
# What a path is, and the checkup for it: a run, a cache, a store of pictures, a study, or a folder
# of these.


Say = Callable[[str], None]
STUDY = re.compile(r"study-[0-9a-f]{16}")


def checkups(
    path: Path, known: Catalogue, say: Say, user_files: Mapping[str, str] | None = None
) -> Iterator[Checkup]:
    """One after another, as they are done; a path that holds nothing of ours is refused.
    `user_files`: the hashes of the files of one's own that `known` comes from."""
    if not path.is_dir():
        what = "is no folder" if path.exists() else "is not there"
        raise BadInput(
            f"{path} {what}",
            "name a run, a cache, a store of pictures, a study, or a folder of these",
        )
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


def _checkup(
    path: Path, known: Catalogue, say: Say, user_files: Mapping[str, str]
) -> Checkup | None:
    """None: it is none of these."""
    if KEY.fullmatch(path.resolve().name) and (
        (path / "about.json").exists() or (path / "checkpoints").exists()
    ):
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
