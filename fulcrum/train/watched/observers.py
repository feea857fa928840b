"""Observers: they look at a run and write down, show or save; they never touch it."""

import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fulcrum.dist.machine.device import ReadLater
from fulcrum.files.atomic import write_atomic
from fulcrum.files.paths import read_regular, set_aside
from fulcrum.files.sealed import append_bytes, append_records, keep_records
from fulcrum.optim.storage import stalled_share
from fulcrum.spec.progress import Countdown, clock
from fulcrum.train.loop import Look

RECORD_EVERY = 10  # steps between two lines of the record
RECORD_SECONDS = 1.0  # that a line waits to be written with others
TELLING = 2.0  # seconds of steps before a time left is told


Taken = tuple[Look, ReadLater | None]  # a look, with its count of stalled updates, which the next step drops


class Behind:
    """Looks whose numbers are at hand: each at once on a CPU; elsewhere the one before, and at the end all.

    Whoever asks a device for the numbers of the step that it is just taking keeps it from being given the next one."""

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
        return self._first(sum(look.check.settled for look, _ in self.waiting))  # the last one at most is not

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
    """record.jsonl: one line every few steps; a resumed run drops the lines that it will write again.

    What is to be written waits a second at most, and is written before every checkpoint and at the end (`flush`): what a
    killed process had not written was not saved either, and the run that resumes writes it again.
    """

    def __init__(self, path: Path, from_images: int, every: int = RECORD_EVERY) -> None:
        super().__init__(every)
        self.path = path
        self.faults = keep_records(path, lambda line: _images(line) <= from_images)  # what was wrong, in sentences
        self.steps, self.resumed = path.with_suffix(".steps"), False  # one float64 a step: what a line is the mean of
        self.losses, self.lines = array("d"), list[dict[str, Any]]()  # not yet written
        self.written = time.monotonic()

    def __call__(self, look: Look) -> None:
        if not self.resumed:
            self.resume(look.images // look.built.run.budget.batch - 1)
        super().__call__(look)
        if time.monotonic() - self.written > RECORD_SECONDS or look.images >= look.built.run.budget.images:
            self.write_out()

    def take(self, look: Look, stalled: ReadLater | None) -> None:
        self.losses.append(look.numbers.total)
        super().take(look, stalled)

    def resume(self, steps: int) -> None:
        """Take up the steps since the last line, so that the next one is what an unbroken run would write."""
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

    The speed is that of training, as the result tells it; what is left is by the clock on the wall, saving and drawing
    included.
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
        pace, speed = (images - self.start_images) / max(now - self.begun, 1e-9), look.check.after.images_per_second or 0.0
        known = last or (pace and now - self.begun >= TELLING)
        left = clock(self.countdown.tell((total - images) / max(pace, 1e-9), now) if not last else 0.0) if known else "?"
        text = (
            f"{self.label}: {min(images, total):,} of {total:,} images, loss {self.loss:.4f}, {speed:,.1f} images/s, "
            f"{left} left"
        )
        end = "\n" if last or not self.screen else ""
        print(f"\r\x1b[2K{text}" if self.screen else text, end=end, file=sys.stderr, flush=True)


class Every:
    """Call `act` whenever another stretch of images was seen, and at the end if asked."""

    def __init__(self, images: int, act: Callable[[Look], None], from_images: int = 0, at_end: bool = False) -> None:
        self.images, self.act, self.at_end = images, act, at_end
        self.next = (from_images // images + 1) * images

    def __call__(self, look: Look) -> None:
        over = look.images >= look.built.run.budget.images
        if look.images >= self.next or (over and self.at_end):
            self.next = (look.images // self.images + 1) * self.images
            self.act(look)
