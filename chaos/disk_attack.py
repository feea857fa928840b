"""Kills, bad disks, clocks and little memory: a command is struck, then given again in peace; it
must end the same."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from chaos.loss import TOO_LATE, Loss, Struck, not_the_same, unsound
from chaos.subjects import Subject
from chaos.target import Prepared, Target
from chaos.trial import LASTING, End, Fault, Host, Strike

MEMORY = (4 << 20, 200 << 20)  # bytes: the least and the most that a limit leaves to a command


def attack(
    prepared: Prepared, subjects: Sequence[Subject], seconds: float, seed: int, least: int = 0
) -> Struck:
    """For so many seconds; `least` trials, however long they take."""
    struck, dice = Struck(Counter(), []), random.Random(seed)
    if not subjects:
        return struck
    targets = [prepared.of(subject) for subject in subjects]
    turns = [
        _strikes(target, random.Random(seed + number)) for number, target in enumerate(targets)
    ]
    prepared.ready()
    deadline, number = time.monotonic() + seconds, 0  # without what it takes to prepare
    while time.monotonic() < deadline or number < least:
        which = dice.choices(range(len(targets)), [1 / target.seconds for target in targets])[0]
        # never one that an orphan of the last trial may still write to
        place = prepared.folder / f"trial{number}"
        _one(prepared.host, targets[which], next(turns[which]), place, struck)
        shutil.rmtree(place, ignore_errors=True)
        number += 1
    return struck


def _strikes(target: Target, dice: random.Random) -> Iterator[Strike]:
    """Every write call once with every fault, in a random order; each fourth is a kill at any
    moment instead, each twentieth a limit on memory, and where there are workers one is stopped."""
    every = [(at, fault) for at in range(1, target.calls + 1) for fault in Fault if fault]
    while True:
        dice.shuffle(every)
        for number, (at, fault) in enumerate(every):
            if number % 4 == 0:
                worker = target.subject.starts_workers and dice.random() < 0.5
                yield Strike(kill_after=dice.uniform(0.0, 1.2 * target.seconds), worker=worker)
            if number % 20 == 7:
                yield Strike(memory=dice.randint(*MEMORY))
            if number % 20 == 3 and target.subject.starts_workers:
                yield Strike(stall_after=dice.uniform(0.0, target.seconds), worker=True)
            yield Strike(fault, at, on=fault in LASTING and dice.random() < 0.5)


def _one(host: Host, target: Target, strike: Strike, folder: Path, struck: Struck) -> None:
    target.copied(folder)
    words = target.subject.words_in(folder)
    first = host.run(words, folder, strike)
    again = first if first.exit == 0 else host.run(words, folder)
    struck.counts[strike.name if first.met(strike) else TOO_LATE] += 1
    for what, text in _wrong(target, strike, first, again, folder):
        struck.lost(Loss(target.subject.name, str(strike), what, text))


def _wrong(
    target: Target, strike: Strike, first: End, again: End, folder: Path
) -> Iterator[tuple[str, str]]:
    for end in (first, again):
        yield from unsound(end)
    silent = first.exit not in (0, -9) and not first.text.strip() and strike.name != "kills"
    if silent and not (strike.memory and target.subject.works_in_torch):
        yield f"ends without a word: exit {first.exit}", ""
    for what, text in not_the_same(target.subject, target.outcome, folder, again):
        yield what, f"{first.text[-1000:]}\n--- again\n{text}" if again is not first else text
