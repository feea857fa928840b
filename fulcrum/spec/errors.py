"""Errors that a person can act on: what was expected, what was found, what to do."""

from collections.abc import Iterable
from difflib import get_close_matches

INTERRUPTED = 130  # exit code of what Ctrl-C ended, wherever it came: 128 and the signal's number, as shells have it
REQUEUE = 75  # exit code of what SIGTERM ended: the same command goes on (EX_TEMPFAIL of the BSDs: try again later)


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
    """A training came to nothing by itself: numbers that are not finite, pictures that cannot be measured, a part that
    refuses to go on. The same again ends the same, so a study counts it as what the cell found, not as a mishap."""


class RankLost(RunFailed):
    """Another process of the run died, stands still or has failed; the same command goes on from what was saved."""

    exit_code = 4
    speaker = False  # of the processes that are left, the one that says so


def first_line(error: BaseException | None) -> str:
    """What an error's pages of text begin with."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:160]


def nearest(word: str, known: Iterable[str]) -> str:
    """A "did you mean" clause, or a list of what exists when nothing is near."""
    names = sorted(known)
    near = get_close_matches(word, names, n=3, cutoff=0.5)
    if near:
        return "did you mean: " + ", ".join(near) + "?"
    return "known: " + ", ".join(names) if names else "none are known"
