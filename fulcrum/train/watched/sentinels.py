"""The sentinels of a run: an observer that asks them after every step, and the limit that the loop holds a step to.

They read what the step's check has sent to the host already, one step late where there is a device: nobody waits for them.
"""

import json
import math
from array import array
from collections.abc import Hashable
from typing import Any

from fulcrum.dist.machine.device import ReadLater
from fulcrum.dist.reduce import of_first
from fulcrum.files.paths import read_regular, remove
from fulcrum.optim.storage import stalled_share
from fulcrum.spec.errors import TrainingFailed
from fulcrum.train.build import WATCH_EVERY, Built
from fulcrum.train.loop import Look
from fulcrum.train.saved import checkpoint
from fulcrum.train.saved.run_events import ALARM, ROLLED_BACK, RunEvents
from fulcrum.train.saved.run_folder import RunFolder
from fulcrum.train.state import State
from fulcrum.train.watched.alarm import Alarm, sound
from fulcrum.train.watched.dead_gradients import STEPS, DeadGradients
from fulcrum.train.watched.dtype_drift import DtypeDrift
from fulcrum.train.watched.learned_anything import nothing_learned
from fulcrum.train.watched.loss_spike import LossSpike
from fulcrum.train.watched.observers import Behind
from fulcrum.train.watched.stalled_updates import MOST, StalledUpdates

REPLAYED = 4096  # losses that a resumed run is told again: what lies before them is forgotten eighty times over
BEFORE = 7  # steps before those to blame that a roll-back leaves out with them
MOST_ROLL_BACKS = 3

Stretch = list[int]  # positions, in images: from, until


class Sentinels:
    """Of one session; every process has its own, and they agree, for all see the same numbers."""

    def __init__(self, built: Built, folder: RunFolder, state: State, events: RunEvents) -> None:
        self.built, self.events, self.behind = built, events, Behind()
        self.batch, self.skips = built.run.budget.batch, built.system.on_alarm == "skip"
        self.left_out: list[Stretch] = json.loads(of_first(json.dumps(left_out(events.read())), built.ranks))
        self.spike, self.dead, self.stalled, self.drift = LossSpike(), DeadGradients(), StalledUpdates(), DtypeDrift(built)
        losses = list(step_losses(folder)[: state.images // self.batch]) if built.ranks.first else []
        first = max(0, len(losses) - REPLAYED)
        told: list[float] = json.loads(of_first(json.dumps(losses[first:]), built.ranks))
        for number, loss in enumerate(told, first):
            self._judged(loss, number * self.batch)
        self._look_at_dtypes(state.images)

    def most(self, images: int) -> float:
        """The largest loss with which the step that begins at `images` reaches the weights."""
        if self._is_left_out(images):
            return -math.inf
        return self.spike.limit_for(self._terms(images)) if self.skips else math.inf

    def __call__(self, look: Look) -> None:
        for one, stalled in self.behind.taken(look):
            self._take(one, stalled)
        if (look.images // self.batch) % WATCH_EVERY == 0:
            self._look_at_dtypes(look.images)

    def _take(self, look: Look, stalled: ReadLater | None) -> None:
        images, numbers = look.images, look.numbers
        began = images - self.batch
        limit = look.check.most if self.skips else self.spike.limit_for(self._terms(began))  # on a device a step older
        if self._judged(numbers.total, began, limit):
            why = f"the loss is {numbers.total:.4g}, above {limit:.4g}, and was {self.spike.mean:.4g} on average"
            sound(Alarm("loss spike", images, why, began, look.check.left_out), self.built, self.events)
        if not self._is_left_out(began) and self.dead.take(numbers.norm):
            why = f"the gradient has been nothing for {STEPS} steps"
            sound(Alarm("dead gradients", images, why, max(0, images - STEPS * self.batch)), self.built, self.events)
        if stalled is not None and self.built.run.precision.rounding == "nearest":  # else others of their size moved
            share = stalled_share(stalled.read())
            if self.stalled.take(share):
                why = f"{share:.0%} of the updates round to nothing, more than {MOST:.0%}"
                sound(Alarm("stalled updates", images, why), self.built, self.events)

    def _judged(self, loss: float, began: int, limit: float | None = None) -> bool:
        return not self._is_left_out(began) and self.spike.take(loss, self._terms(began), limit)

    def _terms(self, images: int) -> Hashable:
        """What a loss at this position is made of."""
        phase = sum(phase.end <= images for phase in self.built.phases)
        return phase, tuple(name for name, weight in self.built.weights(images).items() if weight)

    def _is_left_out(self, images: int) -> bool:
        return any(begin <= images < end for begin, end in self.left_out)

    def _look_at_dtypes(self, images: int) -> None:
        if why := self.drift.found():
            sound(Alarm("dtype drift", images, why), self.built, self.events)


def left_out(events: list[dict[str, Any]]) -> list[Stretch]:
    """Stretches of a run that roll-backs have left out."""
    backs = [event for event in events if event["event"] == ROLLED_BACK]
    stretches = [[back.get("from"), back.get("until")] for back in backs]
    return [[begin, end] for begin, end in stretches if isinstance(begin, int) and isinstance(end, int)]


def roll_back(alarm: Alarm, batch: int, folder: RunFolder, events: RunEvents) -> str:
    """Remove the checkpoints that the steps to blame have reached, and note which steps are to be left out; in words.

    In this order: killed in between, the run comes to the same alarm again and rolls back again. The steps before are the
    same, to the bit, whichever checkpoint they are taken from: so is the run that comes out."""
    assert alarm.first is not None
    former = len(left_out(events.read()))
    if former >= MOST_ROLL_BACKS:
        raise TrainingFailed(
            f"{alarm.sentinel} at {alarm.images:,} images: {alarm.why}; the run was rolled back {former} times before",
            "it does not get past this: lower optim.lr, or look at the data of these steps",
        )
    begin = max(0, alarm.first - BEFORE * batch)
    for path in checkpoint.listing(folder.checkpoints):
        if int(path.name) > begin:
            remove(path)
    good = [int(path.name) for path in checkpoint.listing(folder.checkpoints)]
    to = max(good, default=0)
    steps = (alarm.images - begin) // batch
    facts = {"sentinel": alarm.sentinel, "why": alarm.why, "to": to, "from": begin, "until": alarm.images}
    events.write(ROLLED_BACK, alarm.images, facts)
    return (
        f"{alarm.sentinel} at {alarm.images:,} images: {alarm.why}; rolled back to {to:,} images; the {steps} steps from "
        f"{begin:,} images on are left out"
    )


def step_losses(folder: RunFolder) -> "array[float]":
    """The loss of every step so far, as the record keeps them; none where they cannot be read."""
    losses = array("d")
    try:
        data = read_regular(folder.record.with_suffix(".steps"), follow=False)
    except OSError:
        return losses
    losses.frombytes(data[: len(data) // 8 * 8])
    return losses


def disturbances(built: Built, folder: RunFolder, events: RunEvents) -> dict[str, Any]:
    """What a result says of a run that was not left alone or has learned nothing; of all others nothing."""
    lines, run = events.read(), built.run
    alarms: dict[str, int] = {}
    for line in lines:
        if line["event"] == ALARM:
            alarms[str(line.get("sentinel"))] = alarms.get(str(line.get("sentinel")), 0) + 1
    last = run.budget.images - run.budget.batch
    same = built.weights(0).keys() == built.weights(last).keys() and len(built.phases) == 1 and run.start.kind == "fresh"
    nothing = nothing_learned(step_losses(folder)) if same else ""
    facts = {"alarms": alarms, "rolled_back": left_out(lines), "nothing_learned": nothing}
    return {name: fact for name, fact in facts.items() if fact}
