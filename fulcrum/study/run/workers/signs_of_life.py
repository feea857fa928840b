"""The line from a worker to its study: answers, and empty lines between them that say only that the worker lives.

A worker that was killed closes the line. One that stands still (SIGSTOP, a frozen container, a machine that swaps) does
not: its study would wait for ever. While a worker starts it may be silent for longer: to load a library from a slow disk is
one call into C, which holds all threads. No torch in here: the first sign comes before a worker imports it.
"""

import os
import select
import threading
import time
from contextlib import suppress
from typing import IO

BEAT = 2.0  # seconds between two signs
SILENT = 60.0  # seconds without one after which a worker is given up
STARTING = 600.0  # the same, of a worker that has not said a word yet
READY = "ready"  # the first word of a worker that has loaded what it needs
LOOK = 1.0  # seconds between two looks


class Silent(Exception):
    """The worker gives no sign of life."""


class LineToStudy:
    """In the worker. Libraries may print: what goes to standard output goes to the other stream from now on."""

    def __init__(self) -> None:
        self.handle, self.lock = os.dup(1), threading.Lock()
        os.dup2(2, 1)
        threading.Thread(target=self._beat, daemon=True, name="signs of life").start()

    def say(self, text: str = "") -> None:
        data = f"{text}\n".encode()
        with self.lock:
            while data:
                data = data[os.write(self.handle, data) :]

    def ready(self) -> None:
        self.say(READY)

    def _beat(self) -> None:
        with suppress(OSError):  # the study is gone: whoever watches for that ends this process
            while True:
                self.say()
                time.sleep(BEAT)


class LineFromWorker:
    """In the study."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.rest = stream, b""
        self.answers: list[str] = []
        self.ready = False

    def answer(self) -> str:
        """The next one; "" when the worker has ended without it. Silent where it gives no sign for too long."""
        poll, quiet = select.poll(), 0.0
        poll.register(self.stream, select.POLLIN)
        while not self.answers:
            begun = time.monotonic()
            if poll.poll(1000 * LOOK):
                data = self.stream.read1(1 << 16)  # type: ignore[attr-defined]  # of a buffered stream, which a pipe's is
                if not data:
                    return ""
                quiet = 0.0
                *lines, self.rest = (self.rest + data).split(b"\n")
                words = [line.decode(errors="replace") for line in lines if line]
                self.ready = self.ready or bool(words)
                self.answers += [word for word in words if word != READY]
            else:
                quiet += min(time.monotonic() - begun, 2 * LOOK)  # if the study itself stood still, that was no silence
                patience, when = (SILENT, "") if self.ready else (STARTING, " while it started")
                if quiet > patience:
                    raise Silent(f"it gave no sign of life for {patience:.0f} s{when}")
        return self.answers.pop(0)
