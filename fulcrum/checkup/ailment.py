"""What a checkup finds: an ailment with its remedy, and how it is mended where that is safe."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.atomic import abandoned
from fulcrum.files.paths import reason, remove, set_aside
from fulcrum.spec.errors import FulcrumError


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
    """Each ailment, mended if that is wanted and safe; one that cannot be mended does not keep the others from it."""
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
    asides = [path for folder in folders if folder.is_dir() and not folder.is_symlink() for path in abandoned(folder)]
    return [Ailment(path, "a killed process left it half written", "", _removal(path), damage=False) for path in asides]


def _removal(path: Path) -> Callable[[], str]:
    def away() -> str:
        remove(path)
        return "removed"

    return away
