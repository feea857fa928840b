"""Sentinel: gradients that are nothing for many steps, so that nothing is learned any more."""

STEPS = 20  # in a row
NOTHING = 1e-12  # a norm below this


class DeadGradients:
    def __init__(self) -> None:
        self.count = 0

    def take(self, norm: float) -> bool:
        """Have gradients been nothing for just so many steps? A norm that is no number is not nothing."""
        self.count = self.count + 1 if norm < NOTHING else 0
        return self.count == STEPS
