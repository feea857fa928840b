"""Signs of life: each process tells the store now and then where it stands, and reads where the others do.

A thread looks at where the training says that it is; the training knows nothing of the thread.
"""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

BEAT = 2.0  # seconds between two signs
LONGEST = 300  # characters of how a rank ended
SIZES = "sizes"  # key of the store
STARTING, TRAINING, SAVING = "starting", "training", "drawing, measuring or saving"  # activities


@dataclass
class Standing:
    """Where this process is: set by the training, read by the heartbeat."""

    step: int = 0
    activity: str = STARTING
    since: float = field(default_factory=time.monotonic)

    def at(self, activity: str, step: int | None = None) -> None:
        self.activity, self.step, self.since = activity, self.step if step is None else step, time.monotonic()


class Sign(NamedTuple):
    """What a rank says of itself."""

    number: int = 0  # of the sign; 0: none was given yet
    step: int = 0
    activity: str = STARTING
    seconds: float = 0.0  # for which it has stood there
    place: str = ""  # in the code
    host: str = ""
    ended: str | None = None  # how it has left; "" = well

    def __str__(self) -> str:
        return f"at step {self.step}, {self.activity}" + (f" ({self.place})" if self.place else "")


class Heartbeat(threading.Thread):
    """Gives this rank's signs and collects the others'; whoever judges them is another thread, which never waits."""

    def __init__(self, store: Any, rank: int, size: int, standing: Standing, beat: float = BEAT) -> None:
        super().__init__(daemon=True, name="heartbeat")  # the store is one of torch.distributed, which names no type
        self.store, self.rank, self.size, self.standing, self.beat = store, rank, size, standing, beat
        self.keys = [f"sign/{other}" for other in range(size)]
        self.signs = {other: Sign() for other in range(size)}
        self.main, self.host = threading.main_thread().ident, os.uname().nodename
        self.count, self.stopped, self.closed = 0, threading.Event(), False
        self.sizes: dict[int, int] = {}  # how many processes each rank was told of, as they come
        self.heard_all_again()

    def heard_all_again(self) -> None:
        """Begin to count every silence anew: at the start, and when this process itself was held."""
        now = time.monotonic()
        self.exchanged, self.heard = now, dict.fromkeys(range(self.size), now)

    def run(self) -> None:
        try:
            self.store.append(SIZES, f"{self.rank}:{self.size} ")
            while not self.stopped.is_set():
                self.give()
                self.collect()
                if len(self.sizes) < self.size:
                    self.sizes = {int(rank): int(size) for rank, size in self.told_sizes()}
                self.stopped.wait(self.beat)
        except RuntimeError:  # the store is gone, with whoever held it
            self.closed = True

    def give(self, ended: str | None = None) -> None:
        """This rank's sign; with `ended` the last one."""
        self.count += 1
        here = self.standing
        sign = Sign(self.count, here.step, here.activity, time.monotonic() - here.since, self.place(), self.host, ended)
        self.store.set(self.keys[self.rank], json.dumps(sign))

    def collect(self) -> None:
        """The newest signs of the others. A key that is not there yet is not asked for: the store would wait for it."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        if not self.store.check([self.keys[rank] for rank in others]):
            others = [rank for rank in others if self.store.check([self.keys[rank]])]
        now = time.monotonic()
        for rank, text in zip(others, self.store.multi_get([self.keys[rank] for rank in others]), strict=True):
            sign = Sign(*json.loads(text))
            if sign != self.signs[rank]:
                self.signs[rank], self.heard[rank] = sign, now
        self.exchanged = now

    def told_sizes(self) -> list[list[str]]:
        """One key for all: a rank that this one does not expect is heard of too."""
        return [word.split(":") for word in self.store.get(SIZES).decode().split()]

    def place(self) -> str:
        """The line of code at which the main thread is."""
        frame: FrameType | None = sys._current_frames().get(self.main or 0)
        if frame is None:
            return ""
        return f"{'/'.join(frame.f_code.co_filename.split('/')[-3:])}:{frame.f_lineno}"

    def end(self, ended: str) -> None:
        """No more signs; the last one tells how this rank ended."""
        self.stopped.set()
        self.join(self.beat + 1.0)
        if not self.closed and not self.is_alive():
            try:
                self.give(ended[:LONGEST])
            except RuntimeError:
                self.closed = True
