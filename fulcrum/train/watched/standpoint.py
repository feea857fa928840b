"""An observer that notes where this process of many is, for the watch over them."""

from fulcrum.train.loop import Look


class Standpoint:
    """The activity that begins here, after so many steps."""

    def __init__(self, activity: str) -> None:
        self.activity = activity

    def __call__(self, look: Look) -> None:
        look.built.ranks.standing.at(self.activity, look.images // look.built.run.budget.batch)
