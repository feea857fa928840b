"""Observers: they look at a run and write down, show or save; they never touch it."""

import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fulcrum.files.atomic import write_atomic
from fulcrum.files.damaged import set_aside
from fulcrum.files.paths import read_regular
from fulcrum.files.records import append_bytes, append_records, keep_records
from fulcrum.optim.storage import stalled_share
from fulcrum.spec.countdown import Countdown, clock
from fulcrum.train.loop import Look

RECORD_EVERY = 10  # steps between two lines of the record
TELLING = 2.0  # seconds of steps before a time left is told


class Averager:
    """Every few steps, and at the end: one line with the mean loss since the last."""

    def __init__(self, every: int = RECORD_EVERY) -> None:
        self.every, self.sum, self.count = every, 0.0, 0

    def __call__(self, look: Look) -> None:
        run = look.built.run
        self.sum, self.count = self.sum + float(look.losses.total), self.count + 1
        last = look.state.images >= run.budget.images
        if (look.state.images // run.budget.batch) % self.every and not last:
            return
        line: dict[str, Any] = {
            "images": look.state.images,
            "loss": round(self.sum / self.count, 6),
            "gradient_norm": float(look.norm),
            "rate": look.rate,
            "seconds": round(look.state.seconds, 3),
            "skipped": look.state.skipped,
            "parts": {name: float(value) for name, value in look.losses.parts.items()},
        }
        if look.built.optimizer.stalled is not None:
            line["stalled"] = round(stalled_share(look.built.optimizer.stalled), 5)
        self.write(line, last)
        self.sum, self.count = 0.0, 0

    def write(self, line: dict[str, Any], last: bool) -> None:
        raise NotImplementedError


class Recorder(Averager):
    """record.jsonl: one line every few steps; a resumed run drops the lines that it will write again."""

    def __init__(self, path: Path, from_images: int, every: int = RECORD_EVERY) -> None:
        super().__init__(every)
        self.path = path
        self.faults = keep_records(path, lambda line: _images(line) <= from_images)  # what was wrong, in sentences
        self.steps, self.resumed = path.with_suffix(".steps"), False  # one float64 a step: what a line is the mean of

    def __call__(self, look: Look) -> None:
        if not self.resumed:
            self.resume(look.state.images // look.built.run.budget.batch - 1)
        append_bytes(self.steps, array("d", [float(look.losses.total)]).tobytes())
        super().__call__(look)

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
        append_records(self.path, line)


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
        self.loss, self.countdown = 0.0, Countdown()

    def __call__(self, look: Look) -> None:
        if self.quiet:
            return
        total, images = look.built.run.budget.images, look.state.images
        if not self.begun:
            self.begun = self.shown = time.monotonic()
            self.start_images = images
        loss = float(look.losses.total)
        self.loss = loss if not self.loss else 0.95 * self.loss + 0.05 * loss
        now, last = time.monotonic(), images >= total
        if not last and now - self.shown < (0.5 if self.screen else 15.0):
            return
        self.shown = now
        pace, speed = (images - self.start_images) / max(now - self.begun, 1e-9), look.state.images_per_second or 0.0
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
        over = look.state.images >= look.built.run.budget.images
        if look.state.images >= self.next or (over and self.at_end):
            self.next = (look.state.images // self.images + 1) * self.images
            self.act(look)
