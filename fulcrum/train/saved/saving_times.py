"""When a run is saved: as often as it costs little, or whenever so many images were seen.

Wanted whenever a tenth of the budget has passed, and whenever the last checkpoint is a minute old; done if saving has then
taken no more than its share of the time, and a little that is always granted; after half an hour done in any case.
"""

import time
from collections.abc import Callable

from fulcrum.dist.processes.start import Ranks
from fulcrum.dist.reduce import largest

TENTHS = 10  # checkpoints per budget that are wanted
LEAST, LONGEST = 60.0, 1800.0  # seconds between two that time alone asks for
SHARE = 0.01  # of the time that saving may take
GRANTED = 3.0  # seconds beside it: short runs and first checkpoints


class SavingTimes:
    """Many processes agree: now and then on what each has measured, and in between by counting steps."""

    def __init__(
        self,
        ranks: Ranks,
        images: int,
        stretch: int,
        every: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`images` seen so far; a save is wanted whenever a `stretch` of them has passed, or due `every` so many."""
        self.ranks, self.every, self.clock = ranks, every, clock
        self.stretch = stretch if every is None else every
        self.next = (images // self.stretch + 1) * self.stretch
        self.begun = self.last = self.asked = clock()
        self.spent = self.cost = 0.0  # seconds that saving took: in all, and the last time
        self.steps = self.ask_in = 0  # steps since the ranks agreed, and after how many they do again

    def due(self, images: int, writing: bool = False) -> bool:
        """Is the run to be saved after this step? Asked by all processes after every step; `writing`: one is on its way."""
        passed = images >= self.next
        if passed:
            self.next = (images // self.stretch + 1) * self.stretch
        if self.every is not None:
            return passed
        self.steps += 1
        if self.ranks.size > 1 and not passed and self.steps < self.ask_in:
            return False
        now = self.clock()
        pace = (now - self.asked) / self.steps
        here = [now - self.last, now - self.begun, self.spent, self.cost, float(writing), pace]
        since, elapsed, spent, cost, busy, pace = largest(here, self.ranks)
        lacking = spent + cost - GRANTED - SHARE * elapsed  # seconds too many, if it were done now
        wait = min(max(LEAST - since, lacking / SHARE), LONGEST - since)
        self.steps, self.asked = 0, now
        self.ask_in = max(1, int(wait / max(pace, 1e-9) / 2))
        if passed and lacking <= 0:
            return True
        return wait <= 0 and not busy

    def saved(self, blocked: float) -> None:
        """A checkpoint was made and held the training up for so many seconds."""
        self.last, self.cost = self.clock(), blocked
        self.spent += blocked

    def written(self, seconds: float) -> None:
        """Writing it took so much of the processor beside the training."""
        self.cost += seconds
        self.spent += seconds
