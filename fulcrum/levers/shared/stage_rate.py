"""What levers with a late stage share: a learning rate of the stage's own, and in words what rate it came to."""

from typing import Annotated

from fulcrum.spec.edit import during
from fulcrum.spec.record import Within
from fulcrum.spec.run import RATE, RunSpec
from fulcrum.training.optim.optimizers import rates

StageRate = Annotated[float, Within("(0, 1]")]  # share of the run's own rate


def at_own_rate(run: RunSpec, start: float, rate: float | None) -> RunSpec:
    """The run with another rate from `start` on, warmed up again; none: the run's own schedule goes on."""
    return run if rate is None else during(run, start, 1.0, RATE, rate * run.optim.lr)


def rate_since(run: RunSpec, start: float) -> str:
    """What rate a run has from a share of its budget on: its mean over the peak's, and its part of all rates summed."""
    steps = rates(run)
    late = steps[round(start * len(steps)) :]
    mean, part = sum(late) / len(late), sum(late) / sum(steps)
    return (
        f"the last {len(late) / len(steps):.0%} of the steps have a mean learning rate of {mean:.0%} of the peak, "
        f"{part:.1%} of the run's summed rate"
    )
