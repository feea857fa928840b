"""What a worker that was lost printed last, and how it ended; while it lives, what it prints is passed on."""

import signal
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

KEPT = 500  # lines: a crash names every thread's place
LONGEST = 300  # characters of what is told
PATIENCE = 2.0  # seconds for what is still in the pipe
FATAL, HERE, PLACE = "Fatal Python error", "Current thread", "File "
MEMORY = "was it killed for memory? run fewer side by side with --lanes"


class Listener(threading.Thread):
    """Reads what a worker prints to its standard error."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self.stream, self.lines = stream, deque[str](maxlen=KEPT)
        self.start()

    def run(self) -> None:
        with self.stream:
            for line in self.stream:
                self.lines.append(line.strip())
                print(line, end="", file=sys.stderr, flush=True)

    def last(self, files: Sequence[Path] = ()) -> str:
        """The last line; of a crash, what it was and where, in one of `files` if they had a part in it."""
        self.join(PATIENCE)
        lines = [line for line in self.lines if line]
        crash = next((place for place, line in enumerate(lines) if line.startswith(FATAL)), None)
        if crash is None:
            return lines[-1][:LONGEST] if lines else ""
        own = next((place for place, line in enumerate(lines) if place > crash and line.startswith(HERE)), crash)
        frames = [line for line in lines[own:] if line.startswith(PLACE)]
        in_files = [frame for frame in frames if any(f'"{path.resolve()}"' in frame for path in files)]
        return ": ".join([lines[crash], *(in_files or frames)[:1]])[:LONGEST]


def ending(code: int, last: str) -> tuple[str, str]:
    """How a process ended in words, and what to do about it."""
    how = f"it ended with code {code}"
    if code < 0:
        named = {one.value: one.name for one in signal.Signals}
        how = f"{named.get(-code, f'signal {-code}')} ended it"
    if code == -signal.SIGKILL:
        return how, MEMORY
    return (f"{how}; it printed last: {last}", "all that it printed stands above") if last else (how, MEMORY)
