"""Kills and disk faults: a command is struck at a write, then given again in peace; it must end as the undisturbed one."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from chaos.subjects import SUBJECTS, Subject, copied
from chaos.trial import KILLS, REFUSALS, End, Fault, Host, Strike


class Loss(NamedTuple):
    """A promise that did not hold, and how to see it again."""

    subject: str
    strike: str
    what: str
    text: str = ""

    def __str__(self) -> str:
        return f"{self.subject}, {self.strike}: {self.what}\n{self.text}".rstrip()


class Counts(NamedTuple):
    struck: Counter[str]  # kills, write faults
    losses: list[Loss]


class Target(NamedTuple):
    subject: Subject
    template: Path
    outcome: str  # of the undisturbed command
    calls: int
    seconds: float


def attack(folder: Path, seconds: float, seed: int, only: frozenset[str] = frozenset()) -> Counts:
    counts, dice = Counts(Counter(), []), random.Random(seed)
    subjects = [one for one in SUBJECTS if not only or one.name in only]
    if not subjects:
        return counts
    with Host() as host:
        targets = [_target(host, subject, folder / str(number)) for number, subject in enumerate(subjects)]
        turns = [_strikes(target, random.Random(seed + number)) for number, target in enumerate(targets)]
        deadline = time.monotonic() + seconds  # without what it takes to prepare
        while time.monotonic() < deadline:
            which = dice.choices(range(len(targets)), [1 / target.seconds for target in targets])[0]
            _one(host, targets[which], next(turns[which]), folder / "trial", counts)
    return counts


def _target(host: Host, subject: Subject, folder: Path) -> Target:
    template = subject.begun(host, folder / "template")
    peace = copied(template, folder / "peace")
    end = host.run(subject.words_in(peace), peace)
    if end.exit != 0 or end.calls is None:
        raise SystemExit(f"{subject.name} failed in peace:\n{end.text}")
    return Target(subject, template, subject.outcome(peace, end), end.calls, end.seconds)


def _strikes(target: Target, dice: random.Random) -> Iterator[Strike]:
    """Every write call once with every fault, in a random order; each fourth is a kill at any moment instead."""
    every = [(at, fault) for at in range(1, target.calls + 1) for fault in Fault if fault not in (Fault.NONE, Fault.SLOW)]
    while True:
        dice.shuffle(every)
        for number, (at, fault) in enumerate(every):
            if number % 4 == 0:
                yield Strike(kill_after=dice.uniform(0.0, 1.2 * target.seconds))
            yield Strike(fault, at, on=fault in REFUSALS and dice.random() < 0.5)


def _one(host: Host, target: Target, strike: Strike, folder: Path, counts: Counts) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    copied(target.template, folder)
    words = target.subject.words_in(folder)
    struck = host.run(words, folder, strike)
    again = struck if struck.exit == 0 else host.run(words, folder)
    killed = strike.kill_after is not None or strike.fault in KILLS
    counts.struck["kills" if killed else "write faults"] += 1
    for what, text in _wrong(target, strike, struck, again, folder):
        counts.losses.append(Loss(target.subject.name, str(strike), what, text))


def _wrong(target: Target, strike: Strike, struck: End, again: End, folder: Path) -> Iterator[tuple[str, str]]:
    for end in (struck, again):
        if end.hung:
            yield "hangs", end.text[-2000:]
        if end.has_traceback:
            yield "prints a traceback", end.text[-3000:]
    if struck.exit == 0 and target.subject.outcome(folder, struck) != target.outcome:
        yield "says that all went well, with another end", struck.text[-1000:]
    if again.exit != 0:
        yield f"does not go on: exit {again.exit}", f"{struck.text[-1000:]}\n--- again\n{again.text[-2000:]}"
    elif target.subject.outcome(folder, again) != target.outcome:
        yield "ends elsewhere than the undisturbed", again.text[-1000:]
