"""Fuzzing: every reader gets mutated inputs by the thousand. A refusal in words is sound; anything
else is a loss."""

import random
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from chaos.reader_target import Target

LONGEST = 5.0  # seconds that one input may take
MEMORY = 1 << 30  # bytes that inputs may take beyond what the process had before
NUMBERS = (b"0", b"-1", b"9" * 20, b"1e308", b"nan", b"0x10", b"1_000", "٣".encode())
BYTES = (
    b"\0",
    b"\xff",
    b"\n",
    b"\r",
    b"\\",
    b"\x1b[2J",
    "\u202e".encode(),
    b"\xed\xa0\x80",
    b"../",
    b"'" * 3,
)


class Slow(BaseException):
    """An input took too long. No Exception: readers catch those of their libraries, and a hang
    would pass for a refusal."""


class Loss(NamedTuple):
    target: str
    data: bytes
    what: str

    def __str__(self) -> str:
        return f"{self.target}: {self.what}\n  input {self.data[:300]!r}"


class Counts(NamedTuple):
    inputs: Counter[str]
    losses: list[Loss]


def attack(targets: Sequence[Target], seconds: float, seed: int) -> Counts:
    counts, dice = Counts(Counter(), []), random.Random(seed)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, hard))
    before = signal.signal(signal.SIGALRM, _too_slow)
    try:
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            for target in targets:
                _one(target, Path(folder), time.monotonic() + seconds / len(targets), dice, counts)
    finally:
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return counts


def _one(
    target: Target, folder: Path, deadline: float, dice: random.Random, counts: Counts
) -> None:
    known = Counter[str]()  # a loss is told once for each place that it comes from
    while time.monotonic() < deadline:
        data = mutated(target, dice)
        counts.inputs[target.name] += 1
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
        try:
            target.feed(data, folder)
        except target.refusals:
            pass
        except (Exception, Slow) as error:
            place = _place(error)
            known[place] += 1
            if known[place] == 1:
                loss = Loss(
                    target.name, data, f"{type(error).__name__}: {str(error)[:200]} {place}"
                )
                counts.losses.append(loss)
                print(f"{loss}\n", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def mutated(target: Target, dice: random.Random) -> bytes:
    """A sound input with one to eight changes."""
    data = bytearray(dice.choice(target.seeds))
    for _ in range(dice.choice((1, 1, 2, 3, 5, 8))):
        at, length = dice.randint(0, len(data)), min(dice.choice((1, 1, 2, 4, 16, 64)), len(data))
        piece = dice.choice((*BYTES, *NUMBERS, *target.words))
        change = dice.randrange(6)
        if change == 0:
            data[at:at] = piece
        elif change == 1:
            data[at : at + len(piece)] = piece
        elif change == 2:
            del data[at : at + length]
        elif change == 3 and data:
            data[min(at, len(data) - 1)] ^= 1 << dice.randrange(8)
        elif change == 4:
            data[at:at] = data[at : at + length] * dice.choice((2, 8, 100))
        else:
            other = dice.choice(target.seeds)
            cut = dice.randint(0, len(other))
            data[at:] = other[cut:]
    return bytes(data)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise Slow(f"took more than {LONGEST:.0f} s")


def _place(error: BaseException) -> str:
    """The innermost line of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/fulcrum/" in frame.filename] or list(frames)
    return f"in {ours[-1].filename.rpartition('/fulcrum/')[2]}:{ours[-1].lineno}"


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
