"""Where a run stands: one number of progress, and what was counted on the way."""

from typing import NamedTuple


class State(NamedTuple):
    images: int = 0  # seen so far, over all processes
    skipped: int = 0  # steps left out because they were not finite
    seconds: float = 0.0  # spent in training, over all sessions
    preparing: float = 0.0  # spent in encoding and compiling, over all sessions

    def advance(self, rows: int, seconds: float, preparing: float = 0.0, skipped: bool = False) -> "State":
        return State(self.images + rows, self.skipped + skipped, self.seconds + seconds, self.preparing + preparing)

    @property
    def images_per_second(self) -> float | None:
        """The speed of training, wherever it is told; None before it is known."""
        return self.images / self.seconds if self.seconds > 0 else None
