"""Several at once: two of a command in one folder, tidying beside a training, ranks of a run; one
is killed or stopped."""

import random
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.loss import TOO_LATE, Loss, Struck, not_the_same, unsound
from chaos.subjects import CAPTIONING, ENCODING, IMPORTING, RUN, STUDYING, TRAINING, Subject
from chaos.target import Prepared, Target
from chaos.trial import KILLS, PEACE, REFUSALS, End, Fault, Host, Process, Strike

RANKS = 2
# seconds that a rank waits for another: one that is killed before it has joined is missed by nobody
# else
PATIENCE = 40
# share of the strikes that come at a call that writes; the others come at any moment
AT_CALLS = 0.5
# share of the strikes at ranks: it takes half a minute until a process that stands still is called
# lost
STOPPED = 0.1


class Scene(NamedTuple):
    """What runs at a time; what is compared is the end of the subject, given again in peace."""

    name: str
    subject: Subject
    beside: tuple[str, ...] = ()  # the other command; empty: the same once more
    ranks: bool = False  # processes of one run


SCENES = (
    Scene("two trainings of a key", TRAINING),
    Scene("gc beside a training", TRAINING, ("runs", "gc")),
    Scene("rm beside a training", TRAINING, ("runs", "rm", RUN, "--yes")),
    Scene("two encoders", ENCODING),
    Scene("two imports into one store", IMPORTING),
    Scene("two captioners", CAPTIONING),
    Scene("two studies of a plan", STUDYING),
    Scene("train, two processes", TRAINING, ranks=True),
)


class Staged(NamedTuple):
    scene: Scene
    target: Target
    outcome: str  # of the undisturbed: ranks add up in another order than one process
    seconds: float
    calls: tuple[int, ...]  # that write, of each process; 0: not known


def attack(
    prepared: Prepared, scenes: Sequence[Scene], seconds: float, seed: int, least: int = 0
) -> Struck:
    """For so many seconds, each scene in turn; `least` trials, however long they take."""
    struck, dice = Struck(Counter(), []), random.Random(seed)
    if not scenes:
        return struck
    staged = [_staged(prepared, scene) for scene in scenes]
    prepared.ready()
    deadline, number = time.monotonic() + seconds, 0  # without what it takes to prepare
    while time.monotonic() < deadline or number < least:
        if number % len(staged) == 0:
            dice.shuffle(staged)
        place = prepared.folder / f"crowd{number}"
        _one(prepared.host, staged[number % len(staged)], dice, place, struck)
        shutil.rmtree(place, ignore_errors=True)
        number += 1
    return struck


def _staged(prepared: Prepared, scene: Scene) -> Staged:
    target = prepared.of(scene.subject)
    if not scene.ranks:
        return Staged(
            scene,
            target,
            target.outcome,
            target.seconds,
            (target.calls, 0 if scene.beside else target.calls),
        )
    peace = target.copied(prepared.folder / "ranks")
    ends = _again(prepared.host, scene, peace)
    if any(end.exit for end in ends):
        raise SystemExit(f"{scene.name} failed in peace:\n" + "\n".join(end.text for end in ends))
    calls, seconds = tuple(end.calls or 0 for end in ends), max(end.seconds for end in ends)
    told = " and ".join(map(str, calls))
    print(f"{scene.name}: {seconds:.1f} s in peace, {told} calls that write", flush=True)
    return Staged(scene, target, scene.subject.outcome(peace, ends[0]), seconds, calls)


def _again(host: Host, scene: Scene, folder: Path) -> list[End]:
    """The subject in peace: alone, or on all its ranks."""
    words = scene.subject.words_in(folder)
    return host.together(
        _ranks(words, [PEACE] * RANKS) if scene.ranks else [Process(words)], folder
    )


def _ranks(words: Sequence[str], strikes: Sequence[Strike]) -> list[Process]:
    """As torchrun describes them to each other."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": str(len(strikes)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = [*words, "--timeout", str(PATIENCE)]
    return [
        Process(words, strike, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank, strike in enumerate(strikes)
    ]


def _one(host: Host, staged: Staged, dice: random.Random, folder: Path, struck: Struck) -> None:
    scene = staged.scene
    staged.target.copied(folder)
    strikes = _strikes(staged, dice)
    words = scene.subject.words_in(folder)
    if scene.ranks:
        processes = _ranks(words, strikes)
    else:
        other = [staged.target.run if word == RUN else word for word in scene.beside] or words
        late = dice.uniform(0.0, staged.seconds) if scene.beside else dice.uniform(0.0, 0.3)
        processes = [Process(words, strikes[0]), Process(other, strikes[1], delay=late)]
        struck.counts["pairs at once"] += 1
    ends = host.together(processes, folder)
    again = _again(host, scene, folder)
    for strike, end in zip(strikes, ends, strict=True):
        if strike != PEACE:
            struck.counts[strike.name if end.met(strike) else TOO_LATE] += 1
    names = "; ".join(f"{strike}" for strike in strikes)
    for what, text in _wrong(staged, ends, again, folder):
        struck.lost(Loss(scene.name, names, what, text))


def _strikes(staged: Staged, dice: random.Random) -> list[Strike]:
    """Of ranks one or all are struck at a call or a moment, or one is stopped; of a pair one is
    killed every other time."""
    moment, which = dice.uniform(0.0, 1.1 * staged.seconds), dice.randrange(2)
    strikes = [PEACE] * len(staged.calls)
    if staged.scene.ranks and dice.random() < STOPPED:
        strikes[which] = Strike(stall_after=moment)
    elif staged.scene.ranks:
        faults = (*KILLS, *KILLS, *REFUSALS)  # as many kills as disks that fail, about
        strikes[which] = _strike(staged.calls[which], moment, faults, dice)
        if dice.random() < 0.3:
            strikes[1 - which] = _strike(staged.calls[1 - which], moment, KILLS, dice)
    elif dice.random() < 0.5:
        strikes[which] = _strike(staged.calls[which], moment, KILLS, dice)
    return strikes


def _strike(calls: int, moment: float, faults: Sequence[Fault], dice: random.Random) -> Strike:
    """At a call that writes, if there are any; or a kill at that moment."""
    if not calls or dice.random() >= AT_CALLS:
        return Strike(kill_after=moment)
    fault = dice.choice(faults)
    return Strike(fault, dice.randint(1, calls), on=fault in REFUSALS and dice.random() < 0.5)


def _wrong(
    staged: Staged, ends: list[End], again: list[End], folder: Path
) -> Iterator[tuple[str, str]]:
    for end in (*ends, *again):
        yield from unsound(end)
    outputs = "\n--- beside it\n".join(end.text[-1000:] for end in ends)
    for what, text in not_the_same(staged.scene.subject, staged.outcome, folder, again[0]):
        yield what, f"{outputs}\n--- again\n{text}"
