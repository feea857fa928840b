"""An observer that notes where this process of many is, for the watch over them."""

from fulcrum.train.loop import Look


class Standpoint:
    """The phase that begins here, after so many steps."""

    def __init__(self, phase: str) -> None:
        self.phase = phase

    def __call__(self, look: Look) -> None:
        look.built.ranks.standing.at(self.phase, look.state.images // look.built.run.budget.batch)
