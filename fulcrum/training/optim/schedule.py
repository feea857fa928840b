"""The learning rate over the budget: warm-up, plateau, decay."""

from typing import NamedTuple

from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import OwnRate, own_rates


class Schedule(NamedTuple):
    """Linear warm-up, a plateau at one, and, if asked, a linear decay to zero over the last part of
    the budget.

    A stage with a rate of its own goes through the same once more, at its share of the rate: from
    zero up over `rewarm` of the stage, a plateau, and `decay` of the stage down to zero. Where
    stages overlap, the one that began last counts. Outside of them everything is as if there were
    none: an arm and its baseline are the same run until the stage begins.
    """

    budget: int  # images of the whole run
    warmup: float = 0.01  # fraction of the budget
    decay: float = 0.0  # fraction of the budget, at its end; 0 keeps the plateau
    rewarm: float = 0.0  # fraction of a stage with a rate of its own
    stages: tuple[OwnRate, ...] = ()  # in the order in which they begin

    def checked(self) -> "Schedule":
        """Itself, or an error that says what is impossible about it."""
        if self.budget <= 0:
            raise BadInput(
                f"the schedule's budget is {self.budget} images", "give at least one image"
            )
        if not (0 <= self.warmup <= 1 and 0 <= self.decay <= 1 and self.warmup + self.decay <= 1):
            raise BadInput(
                f"warm-up {self.warmup} and decay {self.decay} are fractions of the budget",
                "each must be in [0, 1], and together at most 1",
            )
        return self

    def __call__(self, images: int, rows: int = 0) -> float:
        """The multiplier of the step that shows images [images, images + rows), taken at the step's
        middle.

        At the middle, neither the first step of a warm-up nor the last of a decay is wasted on a
        rate of zero.
        """
        for start, end, share in reversed(self.stages):
            if start <= images < end:
                return share * Schedule(end - start, self.rewarm, self.decay)(images - start, rows)
        progress = (images + rows / 2) / self.budget
        if progress < self.warmup:
            return progress / self.warmup
        if self.decay > 0 and progress > 1 - self.decay:
            return max(0.0, (1 - progress) / self.decay)
        return 1.0


def schedule_of(run: RunSpec) -> Schedule:
    optim = run.optim
    return Schedule(
        run.budget.images, optim.warmup, optim.decay, optim.rewarm, own_rates(run)
    ).checked()


def rates(run: RunSpec) -> list[float]:
    """The multiplier of every step of a run."""
    schedule, batch = schedule_of(run), run.budget.batch
    return [schedule(images, batch) for images in range(0, run.budget.images, batch)]
