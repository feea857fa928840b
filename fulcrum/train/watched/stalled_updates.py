"""Sentinel: most updates are smaller than what the stored weights can hold, and round to nothing."""

MOST = 0.5  # share of the elements that were to move
COUNTS = 2  # in a row; there is one every 50 steps


class StalledUpdates:
    def __init__(self) -> None:
        self.count = 0

    def take(self, share: float) -> bool:
        """Was the share too large for just so many counts?"""
        self.count = self.count + 1 if share > MOST else 0
        return self.count == COUNTS
