"""Where a run stands: one number of progress, and what was counted on the way."""

from typing import NamedTuple


class State(NamedTuple):
    images: int = 0                                          # seen so far, over all processes
    skipped: int = 0                                         # steps left out because they were not finite
    seconds: float = 0.0                                     # spent in training, over all sessions

    def advance(self, rows: int, seconds: float, skipped: bool = False) -> "State":
        return State(self.images + rows, self.skipped + skipped, self.seconds + seconds)
