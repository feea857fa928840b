"""Errors that a person can act on: what was expected, what was found, what to do."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

# --------------------------------------------------------------------------------------------------
# What comes from a file or a person, made safe to print: a name or a title must not move a
# terminal's cursor.


# controls but tab and line's end, marks that turn the direction of text, halves of letters
_OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def shown(name: Path | str) -> str:
    """A name as one line that any terminal and any file can take: control characters and bytes that
    are no text escaped."""
    text = str(name)
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shown_lines(text: str) -> str:
    """The same of a text that may have several lines."""
    return "\n".join(map(shown, text.split("\n")))


def inert(text: str) -> str:
    """A whole page with its own spaces and signs, in which nothing is left that a terminal or an
    editor would obey."""
    return _OBEYED.sub(lambda letter: letter.group().encode("unicode_escape").decode(), text)


# --------------------------------------------------------------------------------------------------
# Errors that a person can act on: what was expected, what was found, what to do.


# exit code of what Ctrl-C ended, wherever it came: 128 and the signal's number, as shells have it
INTERRUPTED = 130
# exit code of what SIGTERM ended: the same command goes on (EX_TEMPFAIL of the BSDs: try again
# later)
REQUEUE = 75


class FulcrumError(Exception):
    """A failure with a hint; the command line prints both without a traceback."""

    exit_code = 1
    together = False  # raised by all processes of a run at once, as they agreed to
    rank: int | None = None  # of many processes: the one that alone has this error

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class BadInput(FulcrumError):
    """What the person asked for cannot be done; nothing was changed."""

    exit_code = 2


class OrderDecides(BadInput):
    """Levers that would give another run if they were named in another order."""


class RunFailed(FulcrumError):
    """The run could not go on; what was saved stays usable."""


class TrainingFailed(RunFailed):
    """A training came to nothing by itself: numbers that are not finite, pictures that cannot be
    measured, a part that refuses to go on. The same again ends the same, so a study counts it as
    what the cell found, not as a mishap."""


class RankLost(RunFailed):
    """Another process of the run died, stands still or has failed; the same command goes on from
    what was saved."""

    exit_code = 4
    speaker = False  # of the processes that are left, the one that says so


def first_line(error: BaseException | None) -> str:
    """What an error's pages of text begin with."""
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__
    )[:160]


def nearest(word: str, known: Iterable[str]) -> str:
    """A "did you mean" clause, or a list of what exists when nothing is near."""
    names = sorted(known)
    near = get_close_matches(word, names, n=3, cutoff=0.5)
    if near:
        return "did you mean: " + ", ".join(near) + "?"
    return "known: " + ", ".join(names) if names else "none are known"


# --------------------------------------------------------------------------------------------------
# What a person types to install a package that is missing: with the Python that runs this, from the
# clone if it is one.


# the clone; of a copy among the installed packages: these
HOME = Path(str(files("fulcrum"))).resolve().parent


def install(*words: str) -> str:
    """pip's command. Its bare name is another Python's where the environment is not activated: then
    Python is named."""
    own, pip_path = Path(sys.executable), shutil.which("pip")
    pip = ["pip"] if pip_path and Path(pip_path).parent == own.parent else [_near(own), "-m", "pip"]
    return shlex.join([*pip, "install", *words])


def install_extra(name: str) -> str:
    """The command that adds one of pyproject's groups of optional packages."""
    if (HOME / "pyproject.toml").is_file():
        return install("-e", f"{_near(HOME)}[{name}]")
    return install(f"fulcrum-lab[{name}]")


def _near(path: Path) -> str:
    """As it is written from here, where it lies below."""
    here = Path(os.getcwd())
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
