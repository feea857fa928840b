"""What the time of a study went to: its cells' steps and drawing; the rest is the engine's. bench/engine.py reads it.

timings.json lies beside what was timed. It is for reading only: nothing is decided by it.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fulcrum.files.atomic import write_json
from fulcrum.training.checkpoint import State
from fulcrum.training.loop import Look, Observer

NAME = "timings.json"


class Clock:
    """Named seconds since its making, and when that was."""

    def __init__(self) -> None:
        self.begun = time.time()
        self.first_step: float | None = None
        self.parts: dict[str, float] = {}

    @contextlib.contextmanager
    def counting(self, part: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.parts[part] = self.parts.get(part, 0.0) + time.perf_counter() - begun

    def timed(self, part: str, observer: Observer) -> Observer:
        def look_at(look: Look) -> None:
            with self.counting(part):
                observer(look)

        return look_at

    def steps(self, before: State) -> Observer:
        """An observer: the seconds of the steps from `before` on; the first, which also encodes and compiles, apart."""

        def taken(now: State) -> float:
            return now.seconds + now.preparing - before.seconds - before.preparing

        def look_at(look: Look) -> None:
            if self.first_step is None:
                self.first_step, self.parts["first step"] = time.time(), taken(look.check.after)
            self.parts["steps"] = taken(look.check.after)

        return look_at

    def write(self, folder: Path, **more: Any) -> None:
        """Of this go only: a cell that is resumed is timed anew."""
        with contextlib.suppress(OSError):  # a full disk is said by what matters
            write_json(
                folder / NAME,
                {
                    "begun": self.begun,
                    "ended": time.time(),
                    "first_step": self.first_step,
                    "parts": {name: round(value, 3) for name, value in self.parts.items()},
                    **more,
                },
            )
