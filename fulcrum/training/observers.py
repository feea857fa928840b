"""Observers of a run: records, progress, saving, and sentinels that notice a run going wrong."""

import json
import math
import sys
import time
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, variance
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import read_regular, remove, set_aside
from fulcrum.files.sealed import append_bytes, append_records, keep_records
from fulcrum.spec.errors import TrainingFailed
from fulcrum.spec.progress import Countdown, clock
from fulcrum.training import checkpoint
from fulcrum.training.build import WATCH_EVERY, Built
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.collectives import of_first
from fulcrum.training.dist.machine import ReadLater
from fulcrum.training.dist.shard import DTYPES
from fulcrum.training.loop import Look
from fulcrum.training.optim.optimizers import local, stalled_share
from fulcrum.training.run_folder import ALARM, ROLLED_BACK, RunEvents, RunFolder

# --------------------------------------------------------------------------------------------------
# What a sentinel says, and what is then done: told, stopped, or rolled back. The reason goes on
# record before anything.


TOLD = 3  # alarms of a session that are said aloud; all are on record


class Alarm(NamedTuple):
    sentinel: str
    images: int  # seen when it was noticed
    why: str  # in a sentence
    first: int | None = None  # images seen before the first step that is to blame; None: no step is
    left_out: bool = False  # the step to blame has not reached the weights


class RollBack(Exception):
    """Raised on all processes after the same step: the run is to go back to before the steps that
    an alarm blames."""

    def __init__(self, alarm: Alarm) -> None:
        super().__init__(alarm.why)
        self.alarm = alarm


def sound(alarm: Alarm, built: Built, events: RunEvents) -> None:
    """Put an alarm on record and do what `System.on_alarm` says. All processes must sound it
    together."""
    policy = built.system.on_alarm
    if policy == "roll_back" and alarm.first is not None:
        raise RollBack(alarm)  # the record tells of it when it is done
    goes_on = policy == "tell" or alarm.left_out
    if built.ranks.first:
        facts = {
            "sentinel": alarm.sentinel,
            "why": alarm.why,
            "done": "left out" if alarm.left_out else policy,
        }
        events.write(ALARM, alarm.images, facts)
        if goes_on and events.alarms <= TOLD:
            done = (
                "the step was left out"
                if alarm.left_out
                else "the run goes on; --on-alarm stop, skip or roll_back"
            )
            built.feed.tell(
                f"warning: {alarm.sentinel} at {alarm.images:,} images: {alarm.why}; {done}"
            )
    if not goes_on:
        raise TrainingFailed(
            f"{alarm.sentinel} at {alarm.images:,} images: {alarm.why}",
            "the last checkpoint stands; see docs/when-a-run-goes-wrong.md, or go on all the same:"
            " --on-alarm tell",
        )


# --------------------------------------------------------------------------------------------------
# Sentinel: pictures for different prompts, from different noise, that are nearly the same.


# of the range of a pixel: the root mean square difference of two pictures, over all pairs
ALIKE = 0.02


def variety(pictures: Tensor) -> float:
    """How far pictures (B, 3, H, W) of bytes lie apart, from 0 (all the same) to 1 (black and
    white)."""
    flat = pictures.flatten(1).double() / 255
    pairs = torch.cdist(flat, flat) / flat.shape[1] ** 0.5
    count = len(flat)
    return float(pairs.sum()) / (count * (count - 1))


def collapsed(pictures: Tensor, prompts: list[str]) -> str:
    """What is wrong with pictures of these prompts, in a sentence; empty if they differ, or cannot
    tell."""
    if len(set(prompts)) < 2 or len(pictures) < 2:
        return ""
    apart = variety(pictures)
    if apart >= ALIKE:
        return ""
    return (
        f"{len(pictures)} pictures of different prompts differ by {apart:.2%} of a pixel's range,"
        f" less than {ALIKE:.0%}"
    )


# --------------------------------------------------------------------------------------------------
# Sentinel: gradients that are nothing for many steps, so that nothing is learned any more.


STEPS = 20  # in a row
NOTHING = 1e-12  # a norm below this


class DeadGradients:
    def __init__(self) -> None:
        self.count = 0

    def take(self, norm: float) -> bool:
        """Have gradients been nothing for just so many steps? A norm that is no number is not
        nothing."""
        self.count = self.count + 1 if norm < NOTHING else 0
        return self.count == STEPS


# --------------------------------------------------------------------------------------------------
# Sentinel: a weight, a moment or an average whose numbers are not kept as the description says.
#
# Weights of `precision.storage` bf16 are fp32 tensors whose values bf16 can hold
# (fulcrum/training/optim/optimizers.py): of these the values are looked at, one tensor at a time
# and only on a CPU, where nobody waits for that.


class DtypeDrift:
    """What the description of a run says of its dtypes; of a person's own rule or average, what
    they began with."""

    def __init__(self, built: Built) -> None:
        self.built, self.turn = built, 0
        run, parts = built.run, self._parts()
        self.expected = {
            name: {key: value.dtype for key, value in held.items()} for name, held in parts.items()
        }
        weights = dict.fromkeys(dict(built.step.backbone.named_parameters()), torch.float32)
        self.expected["weight"].update(
            {f"backbone.{name}": dtype for name, dtype in weights.items()}
        )
        if _ours(run.optim.rule):
            moment = DTYPES[run.precision.optimizer]
            self.expected["optimizer"] = {
                name: moment if value.ndim else value.dtype
                for name, value in parts["optimizer"].items()
            }
        if _ours(run.average):
            self.expected["average"] = {
                name: torch.float32 if value.is_floating_point() else value.dtype
                for name, value in parts["average"].items()
            }

    def found(self) -> str:
        """What has drifted, in a sentence; empty if nothing has. Only dtypes are looked at: no
        device is waited for."""
        for part, held in self._parts().items():
            for name, value in held.items():
                expected = self.expected[part].get(name, value.dtype)
                if value.dtype != expected:
                    return (
                        f"the {part} {name} is {_word(value.dtype)}, the description says"
                        f" {_word(expected)}"
                    )
        return self._unstorable()

    def _parts(self) -> dict[str, Mapping[str, Tensor]]:
        built = self.built
        weights = dict(built.step.named_parameters())
        return {
            "weight": weights,
            "optimizer": built.optimizer.state(),
            "average": built.average.state(),
        }

    @torch.no_grad()
    def _unstorable(self) -> str:
        if self.built.run.precision.storage == "fp32" or self.built.system.device != "cpu":
            return ""
        weights = list(self.built.step.backbone.named_parameters())
        self.turn = (self.turn + 1) % len(weights)
        name, weight = weights[self.turn]
        values, dtype = local(weight), DTYPES[self.built.run.precision.storage]
        if torch.equal(values.to(dtype).to(values.dtype), values):
            return ""
        return (
            f"the weight {name} has values that {_word(dtype)} cannot hold, and the description"
            " says that it is stored so"
        )


def _ours(filler: object) -> bool:
    return type(filler).__module__.startswith("fulcrum.")


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --------------------------------------------------------------------------------------------------
# At the end of a run: is its loss lower than at its beginning, by more than chance?
#
# A denoiser begins by predicting nothing, whatever it is shown: the first losses are those of that
# prediction.


FIRST = 0.02  # share of the steps, of which the learning rate is hardly warm
LAST = 0.1
FEWEST = 10  # steps on either side
ERRORS = 3.0  # standard errors between the means that are more than chance


def nothing_learned(losses: Sequence[float]) -> str:
    """What of the losses of all steps says that nothing was learned, in a sentence; empty if
    something was, or if there are too few to tell."""
    count = len(losses)
    if count < 5 * FEWEST:
        return ""
    first, last = (
        losses[: max(FEWEST, int(FIRST * count))],
        losses[-max(FEWEST, int(LAST * count)) :],
    )
    first, last = ([loss for loss in part if math.isfinite(loss)] for part in (first, last))
    if min(len(first), len(last)) < 2:
        return ""
    error = math.sqrt(variance(first) / len(first) + variance(last) / len(last))
    if fmean(first) - fmean(last) > ERRORS * error:
        return ""
    return (
        f"the last losses, {fmean(last):.4f} on average, are not below the first,"
        f" {fmean(first):.4f}, by more than chance ({ERRORS:g} standard errors of {error:.2g}):"
        " nothing was learned that the loss would show"
    )


# --------------------------------------------------------------------------------------------------
# Sentinel: a loss far above those of the steps before it.


WARM = 32  # steps before it judges: the first losses fall fast
HORIZON = 50  # steps that the mean remembers
FAR = 10.0  # mean deviations above the mean, and at least as much again as the mean itself
SETTLED = 10  # losses in a row that are far above: a new level, and no spike


class LossSpike:
    """Mean and mean deviation of the losses that were no spikes. Equal losses give equal answers: a
    resumed run, which is told its former losses, judges as an unbroken one does."""

    def __init__(self) -> None:
        self.terms: Hashable = None
        self.restart()

    def restart(self) -> None:
        self.mean = self.deviation = 0.0
        self.count = self.series = 0

    @property
    def limit(self) -> float:
        """The largest loss that is no spike, as a device's float32 holds it."""
        if self.count < WARM:
            return math.inf
        return float(np.float32(self.mean + max(abs(self.mean), FAR * self.deviation)))

    def limit_for(self, terms: Hashable) -> float:
        """Of a loss that is made of these terms: with others than before the mean begins anew."""
        return self.limit if terms == self.terms else math.inf

    def take(self, loss: float, terms: Hashable, limit: float | None = None) -> bool:
        """Is this the first step of a spike? `limit`: the one that the step was held to, where it
        was held to one."""
        if terms != self.terms:
            self.terms = terms
            self.restart()
        if not math.isfinite(loss):  # not ours: fulcrum/training/loop.py
            return False
        if loss > (self.limit if limit is None else limit):
            self.series += 1
            if self.series == SETTLED:
                self.restart()
            return self.series == 1
        self.count, self.series = self.count + 1, 0
        share = 1 / min(self.count, HORIZON)
        self.deviation += (
            share * (abs(loss - self.mean) - self.deviation) if self.count > 1 else 0.0
        )
        self.mean += share * (loss - self.mean)
        return False


# --------------------------------------------------------------------------------------------------
# Sentinel: most updates are smaller than what the stored weights can hold, and round to nothing.


MOST = 0.5  # share of the elements that were to move
COUNTS = 2  # in a row; there is one every 50 steps


class StalledUpdates:
    def __init__(self) -> None:
        self.count = 0

    def take(self, share: float) -> bool:
        """Was the share too large for just so many counts?"""
        self.count = self.count + 1 if share > MOST else 0
        return self.count == COUNTS


# --------------------------------------------------------------------------------------------------
# Observers: they look at a run and write down, show or save; they never touch it.


RECORD_EVERY = 10  # steps between two lines of the record
RECORD_SECONDS = 1.0  # that a line waits to be written with others
TELLING = 2.0  # seconds of steps before a time left is told


# a look, with its count of stalled updates, which the next step drops
Taken = tuple[Look, ReadLater | None]


class Behind:
    """Looks whose numbers are at hand: each at once on a CPU; elsewhere the one before, and at the
    end all.

    Whoever asks a device for the numbers of the step that it is just taking keeps it from being
    given the next one."""

    def __init__(self) -> None:
        self.waiting: list[Taken] = []

    def taken(self, look: Look) -> list[Taken]:
        stalled = look.built.optimizer.stalled
        self.waiting.append((look, None if stalled is None else ReadLater(stalled)))
        last = look.images >= look.built.run.budget.images
        return self.all() if last or not look.check.late else self._first(len(self.waiting) - 1)

    def all(self) -> list[Taken]:
        return self._first(len(self.waiting))

    def known(self) -> list[Taken]:
        """Those that somebody has waited for already: a step that was saved, say."""
        # the last one at most is not
        return self._first(sum(look.check.settled for look, _ in self.waiting))

    def _first(self, count: int) -> list[Taken]:
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken


class Averager:
    """Every few steps, and at the end: one line with the mean loss since the last."""

    def __init__(self, every: int = RECORD_EVERY) -> None:
        self.every, self.sum, self.count = every, 0.0, 0
        self.behind = Behind()

    def __call__(self, look: Look) -> None:
        for one, stalled in self.behind.taken(look):
            self.take(one, stalled)

    def take(self, look: Look, stalled: ReadLater | None) -> None:
        """A step whose numbers are at hand."""
        run, numbers, state = look.built.run, look.numbers, look.state
        self.sum, self.count = self.sum + numbers.total, self.count + 1
        last = state.images >= run.budget.images
        if (state.images // run.budget.batch) % self.every and not last:
            return
        line: dict[str, Any] = {
            "images": state.images,
            "loss": round(self.sum / self.count, 6),
            "gradient_norm": numbers.norm,
            "rate": look.rate,
            "seconds": round(state.seconds, 3),
            "skipped": state.skipped,
            "parts": numbers.parts,
        }
        if stalled is not None:
            line["stalled"] = round(stalled_share(stalled.read()), 5)
        self.write(line, last)
        self.sum, self.count = 0.0, 0

    def write(self, line: dict[str, Any], last: bool) -> None:
        raise NotImplementedError


class Recorder(Averager):
    """record.jsonl: one line every few steps; a resumed run drops the lines that it will write
    again.

    What is to be written waits a second at most, and is written before every checkpoint and at the
    end (`flush`): what a killed process had not written was not saved either, and the run that
    resumes writes it again.
    """

    def __init__(self, path: Path, from_images: int, every: int = RECORD_EVERY) -> None:
        super().__init__(every)
        self.path = path
        # what was wrong, in sentences
        self.faults = keep_records(path, lambda line: _images(line) <= from_images)
        # one float64 a step: what a line is the mean of
        self.steps, self.resumed = path.with_suffix(".steps"), False
        self.losses, self.lines = array("d"), list[dict[str, Any]]()  # not yet written
        self.written = time.monotonic()

    def __call__(self, look: Look) -> None:
        if not self.resumed:
            self.resume(look.images // look.built.run.budget.batch - 1)
        super().__call__(look)
        if (
            time.monotonic() - self.written > RECORD_SECONDS
            or look.images >= look.built.run.budget.images
        ):
            self.write_out()

    def take(self, look: Look, stalled: ReadLater | None) -> None:
        self.losses.append(look.numbers.total)
        super().take(look, stalled)

    def resume(self, steps: int) -> None:
        """Take up the steps since the last line, so that the next one is what an unbroken run would
        write."""
        self.resumed, kept = True, array("d")
        try:
            whole = read_regular(self.steps, follow=False)[: 8 * steps]
            kept.frombytes(whole[: len(whole) // 8 * 8])
        except FileNotFoundError:
            pass
        except OSError:  # a link, a pipe, a folder: only the mean of the next line needs it
            set_aside(self.steps)
        write_atomic(self.steps, kept.tobytes(), flush=False)
        for loss in kept[steps - steps % self.every :] if len(kept) == steps else ():
            self.sum, self.count = self.sum + loss, self.count + 1

    def write(self, line: dict[str, Any], last: bool) -> None:
        self.lines.append(line)

    def flush(self) -> None:
        """Write down every step so far; off the CPU this waits for the last one."""
        for one, stalled in self.behind.all():
            self.take(one, stalled)
        self.write_out()

    def write_out(self) -> None:
        """Write down what is known, without waiting for anything."""
        for one, stalled in self.behind.known():
            self.take(one, stalled)
        losses, lines = self.losses, self.lines
        self.losses, self.lines, self.written = array("d"), [], time.monotonic()
        if losses:
            append_bytes(self.steps, losses.tobytes())
        if lines:
            append_records(self.path, *lines)


def _images(line: dict[str, Any]) -> float:
    """Where a line of the record stands; one that does not say so is never kept."""
    images = line.get("images")
    return images if isinstance(images, int | float) else float("inf")


class ProgressLine:
    """One line on stderr with what is left: rewritten on a screen, now and then in a log.

    The speed is that of training, as the result tells it; what is left is by the clock on the wall,
    saving and drawing included.
    """

    def __init__(self, label: str, start_images: int, quiet: bool = False) -> None:
        self.label, self.start_images, self.quiet = label, start_images, quiet
        self.begun = self.shown = 0.0  # the first step sets the clock: it also encodes and compiles
        self.screen = sys.stderr.isatty()
        self.loss, self.countdown, self.behind = 0.0, Countdown(), Behind()

    def __call__(self, look: Look) -> None:
        if self.quiet:
            return
        total, images = look.built.run.budget.images, look.images
        if not self.begun:
            self.begun = self.shown = time.monotonic()
            self.start_images = images
        for one, _ in self.behind.taken(look):
            loss = one.numbers.total
            self.loss = loss if not self.loss else 0.95 * self.loss + 0.05 * loss
        now, last = time.monotonic(), images >= total
        if not last and now - self.shown < (0.5 if self.screen else 15.0):
            return
        self.shown = now
        pace, speed = (
            (images - self.start_images) / max(now - self.begun, 1e-9),
            look.check.after.images_per_second or 0.0,
        )
        known = last or (pace and now - self.begun >= TELLING)
        left = (
            clock(self.countdown.tell((total - images) / max(pace, 1e-9), now) if not last else 0.0)
            if known
            else "?"
        )
        text = (
            f"{self.label}: {min(images, total):,} of {total:,} images, loss {self.loss:.4f},"
            f" {speed:,.1f} images/s, {left} left"
        )
        end = "\n" if last or not self.screen else ""
        print(f"\r\x1b[2K{text}" if self.screen else text, end=end, file=sys.stderr, flush=True)


class Every:
    """Call `act` whenever another stretch of images was seen, and at the end if asked."""

    def __init__(
        self, images: int, act: Callable[[Look], None], from_images: int = 0, at_end: bool = False
    ) -> None:
        self.images, self.act, self.at_end = images, act, at_end
        self.next = (from_images // images + 1) * images

    def __call__(self, look: Look) -> None:
        over = look.images >= look.built.run.budget.images
        if look.images >= self.next or (over and self.at_end):
            self.next = (look.images // self.images + 1) * self.images
            self.act(look)


# --------------------------------------------------------------------------------------------------
# The sentinels of a run: an observer that asks them after every step, and the limit that the loop
# holds a step to.
#
# They read what the step's check has sent to the host already, one step late where there is a
# device: nobody waits for them.


# losses that a resumed run is told again: what lies before them is forgotten eighty times over
REPLAYED = 4096
BEFORE = 7  # steps before those to blame that a roll-back leaves out with them
MOST_ROLL_BACKS = 3

Stretch = list[int]  # positions, in images: from, until


class Sentinels:
    """Of one session; every process has its own, and they agree, for all see the same numbers."""

    def __init__(self, built: Built, folder: RunFolder, state: State, events: RunEvents) -> None:
        self.built, self.events, self.behind = built, events, Behind()
        self.batch, self.skips = built.run.budget.batch, built.system.on_alarm == "skip"
        self.left_out: list[Stretch] = json.loads(
            of_first(json.dumps(left_out(events.read())), built.ranks)
        )
        self.spike, self.dead, self.stalled, self.drift = (
            LossSpike(),
            DeadGradients(),
            StalledUpdates(),
            DtypeDrift(built),
        )
        losses = (
            list(step_losses(folder)[: state.images // self.batch]) if built.ranks.first else []
        )
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
        # on a device a step older
        limit = look.check.most if self.skips else self.spike.limit_for(self._terms(began))
        if self._judged(numbers.total, began, limit):
            why = (
                f"the loss is {numbers.total:.4g}, above {limit:.4g}, and was {self.spike.mean:.4g}"
                " on average"
            )
            sound(
                Alarm("loss spike", images, why, began, look.check.left_out),
                self.built,
                self.events,
            )
        if not self._is_left_out(began) and self.dead.take(numbers.norm):
            why = f"the gradient has been nothing for {STEPS} steps"
            sound(
                Alarm("dead gradients", images, why, max(0, images - STEPS * self.batch)),
                self.built,
                self.events,
            )
        # else others of their size moved
        if stalled is not None and self.built.run.precision.rounding == "nearest":
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
    return [
        [begin, end] for begin, end in stretches if isinstance(begin, int) and isinstance(end, int)
    ]


def roll_back(alarm: Alarm, batch: int, folder: RunFolder, events: RunEvents) -> str:
    """Remove the checkpoints that the steps to blame have reached, and note which steps are to be
    left out; in words.

    In this order: killed in between, the run comes to the same alarm again and rolls back again.
    The steps before are the same, to the bit, whichever checkpoint they are taken from: so is the
    run that comes out."""
    assert alarm.first is not None
    former = len(left_out(events.read()))
    if former >= MOST_ROLL_BACKS:
        raise TrainingFailed(
            f"{alarm.sentinel} at {alarm.images:,} images: {alarm.why}; the run was rolled back"
            f" {former} times before",
            "it does not get past this: lower optim.lr, or look at the data of these steps",
        )
    begin = max(0, alarm.first - BEFORE * batch)
    for path in checkpoint.listing(folder.checkpoints):
        if int(path.name) > begin:
            remove(path)
    good = [int(path.name) for path in checkpoint.listing(folder.checkpoints)]
    to = max(good, default=0)
    steps = (alarm.images - begin) // batch
    facts = {
        "sentinel": alarm.sentinel,
        "why": alarm.why,
        "to": to,
        "from": begin,
        "until": alarm.images,
    }
    events.write(ROLLED_BACK, alarm.images, facts)
    return (
        f"{alarm.sentinel} at {alarm.images:,} images: {alarm.why}; rolled back to {to:,} images;"
        f" the {steps} steps from {begin:,} images on are left out"
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
    """What a result says of a run that was not left alone or has learned nothing; of all others
    nothing."""
    lines, run = events.read(), built.run
    alarms: dict[str, int] = {}
    for line in lines:
        if line["event"] == ALARM:
            alarms[str(line.get("sentinel"))] = alarms.get(str(line.get("sentinel")), 0) + 1
    last = run.budget.images - run.budget.batch
    same = (
        built.weights(0).keys() == built.weights(last).keys()
        and len(built.phases) == 1
        and run.start.kind == "fresh"
    )
    nothing = nothing_learned(step_losses(folder)) if same else ""
    facts = {"alarms": alarms, "rolled_back": left_out(lines), "nothing_learned": nothing}
    return {name: fact for name, fact in facts.items() if fact}


# --------------------------------------------------------------------------------------------------
# An observer that notes where this process of many is, for the watch over them.


class Standpoint:
    """The activity that begins here, after so many steps."""

    def __init__(self, activity: str) -> None:
        self.activity = activity

    def __call__(self, look: Look) -> None:
        look.built.ranks.standing.at(self.activity, look.images // look.built.run.budget.batch)
