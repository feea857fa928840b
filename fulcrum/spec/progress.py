"""Progress lines and the estimate of the time that is left."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 5.0  # seconds in which a reckoning is taken up when the end is near
SHARE = 0.15  # of what is left: the time in which a reckoning is taken up when it is far
# seconds between two lines of a tally; a tenth of the time that has passed, in between
SOONEST, RAREST = 2.0, 15.0


class Countdown:
    """Holds what was told last. A reckoning from few steps or cells is off by half; told as it is,
    it jumps."""

    def __init__(self) -> None:
        self.left: float | None = None
        self.at = 0.0

    def tell(self, reckoned: float, now: float) -> float:
        """Seconds left, as of `now`, a clock's time in seconds."""
        if self.left is None:
            self.left = reckoned
        else:
            passed = max(now - self.at, 0.0)
            counted = max(self.left - passed, 0.0)
            taken_up = 1.0 - math.exp(-passed / max(PATIENCE, SHARE * reckoned))
            self.left = counted + taken_up * (reckoned - counted)
        self.at = now
        return self.left


class Tally:
    """Says how far a piece of work is and how long the rest will take: nothing in the first two
    seconds, then a line now and then, ever less often."""

    def __init__(
        self, what: str, total: float, say: Callable[[str], None] | None, unit: str = ""
    ) -> None:
        """`say` is None where nobody listens."""
        self.what, self.total, self.say, self.unit = what, total, say, unit
        self.begun = self.spoke = time.monotonic()
        # when it was first told of, and how much was done then
        self.first: tuple[float, float] | None = None
        self.countdown = Countdown()

    def tell(self, done: float, words: str = "") -> None:
        """So much of the total is done; `words` say it in another way than by these numbers."""
        now = time.monotonic()
        # what comes before (opening, warming up) says nothing of the rest
        self.first = self.first or (now, done)
        passed, over = now - self.begun, done >= self.total
        pause = min(max(SOONEST, passed / 10), RAREST)
        if self.say is None or (
            now - self.spoke < pause and not (over and self.spoke > self.begun)
        ):
            return
        self.spoke = now
        since, made = now - self.first[0], done - self.first[1]
        known = made > 0 and since >= SOONEST
        left = (
            0.0
            if over
            else self.countdown.tell(since * (self.total - done) / made, now)
            if known
            else None
        )
        words = (
            words or f"{self.what} {done:,} of {self.total:,}{' ' if self.unit else ''}{self.unit}"
        )
        self.say(words + ("" if left is None else f", {clock(left)} left"))


@contextmanager
def awaited(what: str, say: Callable[[str], None] | None) -> Iterator[None]:
    """Says what is being done if it takes long: for work that nobody can count."""
    timer = threading.Timer(SOONEST, say or (lambda text: None), [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def clock(seconds: float) -> str:
    """A span of time for people."""
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    return (
        f"{minutes} min {seconds % 60:02d} s"
        if minutes < 60
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )
