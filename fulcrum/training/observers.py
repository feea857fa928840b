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
from fulcrum.files.paths import read_regular, set_aside
from fulcrum.files.sealed import append_bytes, append_records, keep_records
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.progress import Countdown, clock
from fulcrum.training.build import WATCH_EVERY, Built
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.collectives import local, of_first
from fulcrum.training.dist.ranks import Ranks
from fulcrum.training.dist.shard import DTYPES
from fulcrum.training.loop import StepReport
from fulcrum.training.optim.optimizers import stalled_share
from fulcrum.training.run_folder import ALARM, ROLLED_BACK, RunEvents, RunFolder

# --------------------------------------------------------------------------------------------------
# What is done when a sentinel sees something wrong: it is written to events.jsonl, and the run goes
# on (System.on_alarm = "tell") or stops ("stop").


TOLD = 3  # alarms of a session that are printed; all are written


class Alarm(NamedTuple):
    sentinel: str
    images: int  # seen when it was noticed
    why: str  # in a sentence


def sound(alarm: Alarm, built: Built, events: RunEvents) -> None:
    """Write an alarm and do what `System.on_alarm` says. All processes must sound it together."""
    policy = built.system.on_alarm
    if built.ranks.first:
        facts = {"sentinel": alarm.sentinel, "why": alarm.why, "done": policy}
        events.write(ALARM, alarm.images, facts)
        if policy == "tell" and events.alarms <= TOLD:
            built.feed.tell(
                f"warning: {alarm.sentinel} at {alarm.images:,} images: {alarm.why}; the run goes"
                " on; --on-alarm stop"
            )
    if policy == "stop":
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
# Sentinels: gradients that are nothing for many steps; updates that mostly round to nothing.


STEPS = 20  # in a row
NOTHING = 1e-12  # a gradient norm below this
MOST = 0.5  # share of the elements that were to move and did not
COUNTS = 2  # in a row; there is one every WATCH_EVERY steps


class InARow:
    """Tell when something was so for just `needed` times in a row."""

    def __init__(self, needed: int) -> None:
        self.needed = needed
        self.count = 0

    def take(self, so: bool) -> bool:
        self.count = self.count + 1 if so else 0
        return self.count == self.needed


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
        self.mean = 0.0
        self.deviation = 0.0
        self.count = 0
        self.series = 0
        self.limit = math.inf  # the largest loss that is no spike

    def take(self, loss: float, terms: Hashable) -> str:
        """Say what is wrong if this is the first step of a spike. With other terms than before, the
        mean begins again."""
        if terms != self.terms:
            self.terms = terms
            self.restart()
        if not math.isfinite(loss):  # the loop deals with it
            return ""
        if loss > self.limit:
            why = (
                f"the loss is {loss:.4g}, above {self.limit:.4g}, and was {self.mean:.4g} on"
                " average"
            )
            self.series += 1
            first = self.series == 1
            if self.series == SETTLED:
                self.restart()
            return why if first else ""
        self.count += 1
        self.series = 0
        share = 1 / min(self.count, HORIZON)
        if self.count > 1:
            self.deviation += share * (abs(loss - self.mean) - self.deviation)
        self.mean += share * (loss - self.mean)
        if self.count >= WARM:
            far = max(abs(self.mean), FAR * self.deviation)
            self.limit = float(np.float32(self.mean + far))
        return ""


# --------------------------------------------------------------------------------------------------
# Observers: they look at a run and write down, show or save; they never touch it.


RECORD_EVERY = 10  # steps between two lines of the record
RECORD_SECONDS = 1.0  # that a line waits to be written with others
TELLING = 2.0  # seconds of steps before a time left is told


class Averager:
    """Every few steps, and at the end: one line with the mean loss since the last."""

    def __init__(self, every: int = RECORD_EVERY) -> None:
        self.every = every
        self.sum = 0.0
        self.count = 0

    def __call__(self, report: StepReport) -> None:
        run, state = report.built.run, report.state
        self.sum += report.loss
        self.count += 1
        last = state.images >= run.budget.images
        if (state.images // run.budget.batch) % self.every and not last:
            return
        line: dict[str, Any] = {
            "images": state.images,
            "loss": round(self.sum / self.count, 6),
            "gradient_norm": report.norm,
            "rate": report.rate,
            "seconds": round(state.seconds, 3),
            "skipped": state.skipped,
            "parts": report.parts,
        }
        if report.stalled is not None:
            line["stalled"] = round(stalled_share(report.stalled), 5)
        self.sum = 0.0
        self.count = 0
        self.write(line, last)

    def write(self, line: dict[str, Any], last: bool) -> None:
        raise NotImplementedError


class Recorder(Averager):
    """record.jsonl: one line every few steps; a resumed run drops the lines that it will write
    again.

    Lines are written after a second at most, before every checkpoint and at the end. Steps that a
    killed process had not written were not saved either: the run that resumes takes them again.
    """

    def __init__(self, path: Path, from_images: int, every: int = RECORD_EVERY) -> None:
        super().__init__(every)
        self.path = path
        # what was wrong, in sentences
        self.faults = keep_records(path, lambda line: _images(line) <= from_images)
        # one float64 a step: what a line is the mean of
        self.steps = path.with_suffix(".steps")
        self.resumed = False
        self.losses = array("d")  # not yet written
        self.lines = list[dict[str, Any]]()
        self.written = time.monotonic()

    def __call__(self, report: StepReport) -> None:
        if not self.resumed:
            self.resume(report.state.images // report.built.run.budget.batch - 1)
        self.losses.append(report.loss)
        super().__call__(report)
        last = report.state.images >= report.built.run.budget.images
        if last or time.monotonic() - self.written > RECORD_SECONDS:
            self.flush()

    def resume(self, steps: int) -> None:
        """Take up the steps since the last line, so that the next one is what an unbroken run would
        write."""
        self.resumed = True
        kept = array("d")
        try:
            whole = read_regular(self.steps, follow=False)[: 8 * steps]
            kept.frombytes(whole[: len(whole) // 8 * 8])
        except FileNotFoundError:
            pass
        except OSError:  # a link, a pipe, a folder: only the mean of the next line needs it
            set_aside(self.steps)
        write_atomic(self.steps, kept.tobytes(), flush=False)
        if len(kept) == steps:
            for loss in kept[steps - steps % self.every :]:
                self.sum += loss
                self.count += 1

    def write(self, line: dict[str, Any], last: bool) -> None:
        self.lines.append(line)

    def flush(self) -> None:
        """Write every step so far."""
        losses, lines = self.losses, self.lines
        self.losses = array("d")
        self.lines = []
        self.written = time.monotonic()
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

    The speed is that of training, as the result tells it; the time left is by the clock on the
    wall, saving and drawing included.
    """

    def __init__(self, label: str, start_images: int, quiet: bool = False) -> None:
        self.label = label
        self.start_images = start_images
        self.quiet = quiet
        self.begun = 0.0  # the first step sets the clock: it also encodes and compiles
        self.shown = 0.0
        self.screen = sys.stderr.isatty()
        self.loss = 0.0
        self.countdown = Countdown()

    def __call__(self, report: StepReport) -> None:
        if self.quiet:
            return
        images, total = report.state.images, report.built.run.budget.images
        if not self.begun:
            self.begun = self.shown = time.monotonic()
            self.start_images = images
        self.loss = 0.95 * self.loss + 0.05 * report.loss if self.loss else report.loss
        now = time.monotonic()
        last = images >= total
        if not last and now - self.shown < (0.5 if self.screen else 15.0):
            return
        self.shown = now
        pace = (images - self.start_images) / max(now - self.begun, 1e-9)
        if last:
            left = clock(0.0)
        elif pace and now - self.begun >= TELLING:
            left = clock(self.countdown.tell((total - images) / pace, now))
        else:
            left = "?"
        text = (
            f"{self.label}: {min(images, total):,} of {total:,} images, loss {self.loss:.4f},"
            f" {report.state.images_per_second or 0.0:,.1f} images/s, {left} left"
        )
        end = "\n" if last or not self.screen else ""
        print(f"\r\x1b[2K{text}" if self.screen else text, end=end, file=sys.stderr, flush=True)


class Every:
    """Call `act` whenever another stretch of images was seen, and at the end if asked."""

    def __init__(
        self,
        images: int,
        act: Callable[[StepReport], None],
        from_images: int = 0,
        at_end: bool = False,
    ) -> None:
        self.images, self.act, self.at_end = images, act, at_end
        self.next = (from_images // images + 1) * images

    def __call__(self, report: StepReport) -> None:
        over = report.state.images >= report.built.run.budget.images
        if report.state.images >= self.next or (over and self.at_end):
            self.next = (report.state.images // self.images + 1) * self.images
            self.act(report)


# --------------------------------------------------------------------------------------------------
# The sentinels of a run: an observer that asks them after every step.


# losses that a resumed run is told again: what lies before them is forgotten eighty times over
REPLAYED = 4096


class Sentinels:
    """Of one session; every process has its own, and they agree, for all see the same numbers."""

    def __init__(self, built: Built, folder: RunFolder, state: State, events: RunEvents) -> None:
        self.built = built
        self.events = events
        self.batch = built.run.budget.batch
        self.spike = LossSpike()
        self.dead = InARow(STEPS)
        self.stalled = InARow(COUNTS)
        self.drift = DtypeDrift(built)
        steps = state.images // self.batch
        losses = list(step_losses(folder)[:steps]) if built.ranks.first else []
        first = max(0, len(losses) - REPLAYED)
        told: list[float] = json.loads(of_first(json.dumps(losses[first:]), built.ranks))
        for number, loss in enumerate(told, first):
            self.spike.take(loss, self.made_of(number * self.batch))
        self._look_at_dtypes(state.images)

    def __call__(self, report: StepReport) -> None:
        images = report.state.images
        if why := self.spike.take(report.loss, self.made_of(images - self.batch)):
            self._sound("loss spike", images, why)
        if self.dead.take(report.norm < NOTHING):
            self._sound(
                "dead gradients", images, f"the gradient has been nothing for {STEPS} steps"
            )
        # under random rounding others of their size moved
        if report.stalled is not None and self.built.run.precision.rounding == "nearest":
            share = stalled_share(report.stalled)
            if self.stalled.take(share > MOST):
                why = f"{share:.0%} of the updates round to nothing, more than {MOST:.0%}"
                self._sound("stalled updates", images, why)
        if (images // self.batch) % WATCH_EVERY == 0:
            self._look_at_dtypes(images)

    def made_of(self, images: int) -> Hashable:
        """Return what a loss at this position is made of: the phase and its terms."""
        phase = sum(phase.end <= images for phase in self.built.phases)
        return phase, tuple(self.built.feed.weights(images))

    def _look_at_dtypes(self, images: int) -> None:
        if why := self.drift.found():
            self._sound("dtype drift", images, why)

    def _sound(self, sentinel: str, images: int, why: str) -> None:
        sound(Alarm(sentinel, images, why), self.built, self.events)


def require_not_rolled_back(events: RunEvents, ranks: Ranks) -> None:
    """Refuse, on all ranks, a run that an earlier release rolled back: this one does not leave its
    steps out."""
    here = ranks.first and any(event["event"] == ROLLED_BACK for event in events.read())
    if of_first(here, ranks):
        raise BadInput(
            f"the run was rolled back by an earlier release ({events.path}), which left steps out;"
            " this release does not",
            "finish it with that release, or remove it with 'fulcrum runs rm' and train it again",
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
        built.feed.weights(0).keys() == built.feed.weights(last).keys()
        and len(built.phases) == 1
        and run.start.kind == "fresh"
    )
    nothing = nothing_learned(step_losses(folder)) if same else ""
    facts = {"alarms": alarms, "nothing_learned": nothing}
    return {name: fact for name, fact in facts.items() if fact}
