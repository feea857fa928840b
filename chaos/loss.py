"""What an attack found and how often it struck; and what must be true of every command's end,
whatever struck it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from chaos.subjects import Subject
from chaos.trial import End

TOO_LATE = "strikes that came too late"  # counted apart: the command had ended


class Loss(NamedTuple):
    """A promise that did not hold, and how to see it again."""

    subject: str
    strike: str
    what: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.subject}, {self.strike}: {self.what}\n{self.text}".rstrip()


class Struck(NamedTuple):
    counts: Counter[str]  # kills, write faults, ...
    losses: list[Loss]

    def lost(self, loss: Loss) -> None:
        """Told at once: an attack may go on for hours."""
        self.losses.append(loss)
        print(f"{loss}\n", flush=True)


def unsound(end: End) -> Iterator[tuple[str, str]]:
    """No end may be like this."""
    if end.hung:
        yield "hangs", end.text[-2000:]
    if end.has_traceback:
        yield "prints a traceback", end.text[-3000:]
    if end.outside:
        yield "changes something outside of its folder", "\n".join(end.outside)


def not_the_same(
    subject: Subject, outcome: str, folder: Path, again: End
) -> Iterator[tuple[str, str]]:
    """The command that was given again in peace must come to the end of the undisturbed one."""
    if again.exit != 0:
        yield f"does not go on: exit {again.exit}", again.text[-2000:]
    elif subject.outcome(folder, again) != outcome:
        yield "ends elsewhere than the undisturbed", again.text[-1000:]
