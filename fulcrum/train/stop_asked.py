"""Ctrl-C and SIGTERM while a run trains: the step is finished, all processes agree to stop, the run is saved, and left."""

import signal
import threading
import time
from collections.abc import Callable, Iterable
from itertools import count
from types import FrameType, TracebackType
from typing import Any

from fulcrum.dist.processes.start import Ranks
from fulcrum.spec.errors import INTERRUPTED, REQUEUE, RunFailed

STOP_EVERY = 8  # steps after which GPUs ask each other whether a process was told to stop: each waits for the others
ECHO = 5.0  # seconds in which a launcher passes the same signal on to us
BEFORE_FIRST = "stopped before the first step: what was saved before is as it was"
AT_ONCE = "told again to stop, and stopped at once: what was saved before is as it was"


class Interrupted(RunFailed):
    """Stopped by Ctrl-C or SIGTERM: after saving, or with words that say what is not saved."""

    exit_code = INTERRUPTED
    together = True

    def by(self, signals: Iterable[int]) -> "Interrupted":
        """A SIGTERM is a machine's word: the exit code says that the same command should be started again."""
        self.exit_code = REQUEUE if signal.SIGTERM in signals else self.exit_code
        return self


class ToldAgain(KeyboardInterrupt):
    """What breaks off a step or a save. Its words travel: who saves with others tells them why it did not."""


class StopAsked:
    """Listens from `with` on, and until what follows is over.

    Launchers pass the same signal on to a process that has it already: within ECHO seconds of one that counted it is the
    same one, wherever it falls: into the save, into the leaving. After them it is another. Then nothing is waited for; and
    who has left hands it on to whoever listened before.
    """

    def __init__(self, ranks: Ranks, go_on: str) -> None:
        self.ranks, self.go_on = ranks, go_on
        self.signals: list[int] = []  # those that counted
        self.last = 0.0  # when the last of them came
        self.idle: Callable[[], bool] = bool  # is there nothing to save, and is it of no use to wait?
        self.agreed, self.again, self.left = False, False, True
        self.before: dict[int, Any] = {}  # who listened before, by the signal's number
        self.turns, self.stalls = count(), ranks.size > 1 and ranks.device.type != "cpu"

    def __enter__(self) -> "StopAsked":
        self.left = False
        if not self.before and threading.current_thread() is threading.main_thread():  # no other may listen
            self.before = {number: signal.signal(number, self.ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.left, self.idle = True, bool  # whoever holds the handler does not hold the run
        if self.again and not isinstance(error, Interrupted):  # what it broke off may have made another error of it
            stopped = Interrupted(AT_ONCE, self.go_on).by(self.signals)
            stopped.together = False
            raise stopped from error
        if not self.signals or error is None:
            self.give_back()
        if self.signals and error is None:  # it came too late for all to agree
            signal.raise_signal(self.signals[-1])

    def ask(self, number: int, frame: FrameType | None) -> None:
        """A signal has come."""
        now = time.monotonic()
        if self.signals and now - self.last <= ECHO:
            return
        if self.left:
            self.give_back()
            signal.raise_signal(number)
            return
        self.again, self.last = bool(self.signals), now
        self.signals.append(number)
        if self.idle():
            self.again = False
            raise Interrupted(BEFORE_FIRST, self.go_on).by(self.signals)
        if self.again:
            raise ToldAgain(f"it was told again to stop, by {signal.Signals(number).name}")

    def give_back(self) -> None:
        """To whoever listened before."""
        before, self.before = self.before, {}
        for number, handler in before.items():
            signal.signal(number, handler)

    def agree(self) -> bool:
        """Before each step: is it time to stop? All processes ask at the same steps, and hear the same."""
        if not self.stalls or next(self.turns) % STOP_EVERY == 0:
            self.agreed = self.ranks.any(bool(self.signals))
        return self.agreed

    def leave(self, images: int, budget: int) -> None:
        """After a save at so many images, on all processes: stop, if one of them was asked to."""
        if self.ranks.any(bool(self.signals)):
            terminated = [signal.SIGTERM] if self.ranks.any(signal.SIGTERM in self.signals) else []
            raise Interrupted(f"stopped at {images:,} of {budget:,} images; everything is saved", self.go_on).by(terminated)
