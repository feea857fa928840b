"""What of a step's time is training, and what is encoding and compiling, which happen inside the first step of a phase."""

from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases


class Pace:
    """Of one session. A first step is taken for as long as the one after it: what it took beyond that was preparation."""

    def __init__(self, run: RunSpec) -> None:
        self.ends, self.images = [phase.end for phase in phases(run)], run.budget.images
        self.batch, self.phase, self.first = run.budget.batch, -1, 0.0

    def split(self, position: int, seconds: float) -> tuple[float, float]:
        """Seconds of training and of preparation to add for the step that began at `position` images.

        A first step counts as preparation until the next one tells its share, so that neither sum needs guessing and
        training time never runs backwards. The last step of a budget has no next one: it is training.
        """
        phase = sum(end <= position for end in self.ends)
        begins, self.phase = phase != self.phase, phase
        if begins and position + self.batch < self.images:
            self.first = seconds
            return 0.0, seconds
        share, self.first = min(self.first, seconds), 0.0
        return seconds + share, -share
