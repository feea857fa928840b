"""What a sentinel says, and what is then done: told, stopped, or rolled back. The reason goes on record before anything."""

from typing import NamedTuple

from fulcrum.spec.errors import TrainingFailed
from fulcrum.train.build import Built
from fulcrum.train.saved.run_events import ALARM, RunEvents

TOLD = 3  # alarms of a session that are said aloud; all are on record


class Alarm(NamedTuple):
    sentinel: str
    images: int  # seen when it was noticed
    why: str  # in a sentence
    first: int | None = None  # images seen before the first step that is to blame; None: no step is
    left_out: bool = False  # the step to blame has not reached the weights


class RollBack(Exception):
    """Raised on all processes after the same step: the run is to go back to before the steps that an alarm blames."""

    def __init__(self, alarm: Alarm) -> None:
        super().__init__(alarm.why)
        self.alarm = alarm


def sound(alarm: Alarm, built: Built, events: RunEvents) -> None:
    """Put an alarm on record and do what `System.on_alarm` says. All processes must sound it together."""
    policy = built.system.on_alarm
    if policy == "roll_back" and alarm.first is not None:
        raise RollBack(alarm)  # the record tells of it when it is done
    goes_on = policy == "tell" or alarm.left_out
    if built.ranks.first:
        facts = {"sentinel": alarm.sentinel, "why": alarm.why, "done": "left out" if alarm.left_out else policy}
        events.write(ALARM, alarm.images, facts)
        if goes_on and events.alarms <= TOLD:
            done = "the step was left out" if alarm.left_out else "the run goes on; --on-alarm stop, skip or roll_back"
            built.feed.tell(f"warning: {alarm.sentinel} at {alarm.images:,} images: {alarm.why}; {done}")
    if not goes_on:
        raise TrainingFailed(
            f"{alarm.sentinel} at {alarm.images:,} images: {alarm.why}",
            "the last checkpoint stands; see docs/when-a-run-goes-wrong.md, or go on all the same: --on-alarm tell",
        )
