"""A time left that people can plan by: it runs down with the clock, and is drawn to each new reckoning little by little."""

import math

PATIENCE = 5.0  # seconds in which a reckoning is taken up when the end is near
SHARE = 0.15  # of what is left: the time in which a reckoning is taken up when it is far


class Countdown:
    """Holds what was told last. A reckoning from few steps or cells is off by half; told as it is, it jumps."""

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
