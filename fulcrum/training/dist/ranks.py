"""Start, join, watch and end the processes of a run."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from fulcrum.spec.errors import BadInput, FulcrumError, RankLost, RunFailed, first_line
from fulcrum.training.dist.machine import require_device

# --------------------------------------------------------------------------------------------------
# What a launcher says of a process: which it is, of how many, and where they meet. Needs no torch.


MOST_RANKS = 1_000_000
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # torchrun's own variable: it holds the store, not rank 0
# torchrun's own variable: its store may outlive the processes
RESTARTS = "TORCHELASTIC_RESTART_COUNT"


class Launched(NamedTuple):
    """One process of many."""

    rank: int
    size: int
    local: int  # which of those on this machine
    host: str
    port: int
    agent: bool = False  # torchrun holds the store, not rank 0
    restarts: str = "0"

    @property
    def holds_store(self) -> bool:
        return self.rank == 0 and not self.agent

    @property
    def place(self) -> str:
        """Where all meet."""
        return f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}"


def processes(env: Mapping[str, str]) -> int:
    """How many processes the environment tells of."""
    return _number("WORLD_SIZE", env.get("WORLD_SIZE", "1"), 1, MOST_RANKS)


def launched(env: Mapping[str, str]) -> Launched | None:
    """What the environment says; None: this process is alone."""
    size = processes(env)
    if size == 1:
        return None
    missing = [name for name in TORCHRUN if name not in env]
    if missing:
        raise BadInput(
            f"WORLD_SIZE is {size}, but {', '.join(missing)} is not set",
            "start many processes with torchrun, which sets all of them, or unset WORLD_SIZE",
        )
    rank, local, port = (
        _number(name, env[name], least, most)
        for name, least, most in (
            ("RANK", 0, size - 1),
            ("LOCAL_RANK", 0, size - 1),
            ("MASTER_PORT", 1, 65_535),
        )
    )
    return Launched(
        rank,
        size,
        local,
        env["MASTER_ADDR"],
        port,
        env.get(AGENT) == "True",
        env.get(RESTARTS, "0"),
    )


def _number(name: str, text: str, least: int, most: int) -> int:
    """A number that a launcher gives; what is none, or cannot be, is refused before anybody waits
    for anybody."""
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= most:
        raise BadInput(
            f"{name} is {text!r}, expected a number from {least} to {most}",
            f"start many processes with torchrun, which sets it, or unset {name}",
        )
    return int(text)


# --------------------------------------------------------------------------------------------------
# Signs of life: each process tells the store now and then where it stands, and reads where the
# others do.
#
# A thread looks at where the training says that it is; the training knows nothing of the thread.


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
        self.activity, self.step, self.since = (
            activity,
            self.step if step is None else step,
            time.monotonic(),
        )


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
    """Gives this rank's signs and collects the others'; whoever judges them is another thread,
    which never waits."""

    def __init__(
        self, store: Any, rank: int, size: int, standing: Standing, beat: float = BEAT
    ) -> None:
        # the store is one of torch.distributed, which names no type
        super().__init__(daemon=True, name="heartbeat")
        self.store, self.rank, self.size, self.standing, self.beat = (
            store,
            rank,
            size,
            standing,
            beat,
        )
        self.keys = [f"sign/{other}" for other in range(size)]
        self.signs = {other: Sign() for other in range(size)}
        self.main, self.host = threading.main_thread().ident, os.uname().nodename
        self.count, self.stopped, self.closed = 0, threading.Event(), False
        self.sizes: dict[int, int] = {}  # how many processes each rank was told of, as they come
        self.heard_all_again()

    def heard_all_again(self) -> None:
        """Begin to count every silence anew: at the start, and when this process itself was
        held."""
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
        sign = Sign(
            self.count,
            here.step,
            here.activity,
            time.monotonic() - here.since,
            self.place(),
            self.host,
            ended,
        )
        self.store.set(self.keys[self.rank], json.dumps(sign))

    def collect(self) -> None:
        """The newest signs of the others. A key that is not there yet is not asked for: the store
        would wait for it."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        if not self.store.check([self.keys[rank] for rank in others]):
            others = [rank for rank in others if self.store.check([self.keys[rank]])]
        now = time.monotonic()
        for rank, text in zip(
            others, self.store.multi_get([self.keys[rank] for rank in others]), strict=True
        ):
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


# --------------------------------------------------------------------------------------------------
# The watch over the processes of a run: a rank that is dead, stands still or has failed is named,
# and all end.
#
# The main thread of a rank that waits for another cannot be woken: the watch speaks, and ends the
# process.


SILENT = 20.0  # seconds without a sign after which a rank is lost
QUIET = 6.0  # seconds without a sign that are enough where something else tells of a loss
SLOW = 25.0  # seconds without a step after which the slowest are named; nothing ends by that
FINISH = 4.0  # seconds that a rank which saves has to finish what needs no other
GRACE = 10.0  # seconds that a rank has to find out by itself that another has failed
SAME = 5.0  # seconds in which other ranks that fail in the same way do so
LOOK = 0.5  # seconds between two looks
HELD = 5.0  # seconds between two looks that tell that this process itself was held
NAMED = 4  # ranks that one message names
OWN_ABSENCE = "was it stopped (SIGSTOP, Ctrl-Z), or its machine suspended or overloaded?"
AGAIN = "what was saved stays usable: the same command goes on from there"


class Watch(threading.Thread):
    """Judges the signs of the other ranks. `agent`: torchrun holds the store, not rank 0."""

    def __init__(self, heart: Heartbeat, timeout: float, agent: bool) -> None:
        super().__init__(daemon=True, name="watch")
        self.heart, self.timeout, self.agent = heart, timeout, agent
        self.leaving, self.noticed, self.warned = threading.Event(), -1, False
        self.missed: float | None = None  # since when others are missing
        self.looked = time.monotonic()
        # seconds that this process was itself held, and when it woke
        self.held, self.woken = 0.0, 0.0

    def run(self) -> None:
        self.looked = time.monotonic()
        while not self.leaving.wait(LOOK):
            now = time.monotonic()
            self.look(now)
            lost = self.lost(now, SILENT)
            failed = {
                rank: sign
                for rank, sign in self.failed().items()
                if now - self.heart.heard[rank] > GRACE
            }
            if not lost and not failed:
                self.missed = None
            elif self.busy(now):
                self.warn(lost, failed)
            else:
                self.end(lost, failed)
            self.notice(now)

    def look(self, now: float) -> None:
        """See whether this process was stopped or starved since the last look: what it did not hear
        then is no silence."""
        gap, self.looked = now - self.looked, now
        if gap > HELD:
            self.held, self.woken = gap, now
            self.heart.heard_all_again()

    def own_absence(self) -> str:
        """That this process was held itself, so long that the others gave it up, and shortly before
        it missed them."""
        long, lately = self.held > SILENT - 2 * BEAT, time.monotonic() - self.woken < SILENT + GRACE
        if not (long and lately) or self.own_failures(self.failed()):
            return ""
        rank, size = self.heart.rank, self.heart.size
        return (
            f"rank {rank} of {size} was itself held for {self.held:.0f} s, and the others have"
            " ended without it"
        )

    def lost(self, now: float, silent: float) -> list[int]:
        """Ranks that give no sign and have not said that they leave; the holder of the store for
        all, if it is silent."""
        heart = self.heart
        if now - heart.exchanged > (min(silent, GRACE) if heart.closed else silent):
            if not self.agent and heart.rank != 0 and heart.signs[0].ended is None:
                return [0]
            # the store is gone, and nobody was heard since: that is no silence
            now = heart.exchanged
        late = [
            rank
            for rank, heard in heart.heard.items()
            if now - heard > silent and rank != heart.rank
        ]
        return [rank for rank in late if heart.signs[rank].ended is None]

    def failed(self) -> dict[int, Sign]:
        return {
            rank: sign
            for rank, sign in self.heart.signs.items()
            if sign.ended and rank != self.heart.rank
        }

    @staticmethod
    def own_failures(failed: dict[int, Sign]) -> dict[int, Sign]:
        """Without those that only lost another."""
        return {
            rank: sign
            for rank, sign in failed.items()
            if not (sign.ended or "").startswith(RankLost.__name__)
        }

    def busy(self, now: float) -> bool:
        """May this rank still finish what it is at? All write a checkpoint; only its end needs no
        other, and is short."""
        self.missed = now if self.missed is None else self.missed
        return self.heart.standing.activity == SAVING and now - self.missed < FINISH

    def words(self, lost: Iterable[int], failed: dict[int, Sign]) -> str:
        """Who is missing, where it was last seen, and what the failed ones said."""
        size, now = self.heart.size, time.monotonic()
        own = self.own_failures(failed)
        parts = [
            f"rank {rank} of {size} on {sign.host} has failed: {sign.ended}"
            for rank, sign in own.items()
        ]
        for rank in lost:
            sign, silent = self.heart.signs[rank], now - self.heart.heard[rank]
            seen = (
                f"it was last seen on {sign.host} {sign}"
                if sign.number
                else "it was never heard of"
            )
            parts.append(
                f"rank {rank} of {size} has given no sign of life for {silent:.0f} s; {seen}"
            )
        more = [f"{len(parts) - NAMED} more"] if len(parts) > NAMED else []
        return "; ".join([*parts[:NAMED], *more])

    def speaker(self, missing: Iterable[int]) -> bool:
        """The first rank that is left speaks for all."""
        gone = {*missing, *self.failed()}
        return self.heart.rank == min(rank for rank in range(self.heart.size) if rank not in gone)

    def warn(self, lost: list[int], failed: dict[int, Sign]) -> None:
        """Say once who is missing while this rank finishes what it is at."""
        if not self.warned and self.speaker(lost):
            words = self.words(lost, failed) or "another process of the run has left"
            print(
                f"{words}; the run ends, if {SAVING} is not done in {FINISH:.0f} s",
                file=sys.stderr,
                flush=True,
            )
        self.warned = True

    def end(self, lost: list[int], failed: dict[int, Sign]) -> None:
        lost = lost or self.lost(time.monotonic(), QUIET)
        held = self.own_absence()
        words = (
            held or self.words(lost, failed) or "the processes of the run have left this one behind"
        )
        if held or self.speaker(lost):
            why = OWN_ABSENCE if held else "was it stopped, or killed for memory?"
            print(f"error: {words}\n  {why} {AGAIN}", file=sys.stderr, flush=True)
        if not self.heart.closed and time.monotonic() - self.heart.exchanged < SILENT:
            self.heart.end(f"{RankLost.__name__}: {words}")
        os._exit(RankLost.exit_code)

    def notice(self, now: float) -> None:
        """A step that takes much longer than a rank may be silent: say once who is where. The ranks
        are alive."""
        standing, signs = self.heart.standing, self.heart.signs
        if (
            standing.activity != TRAINING
            or standing.step in (0, self.noticed)
            or now - standing.since < SLOW
        ):
            return
        self.noticed = standing.step
        if not self.speaker(()):
            return
        here = Sign(0, standing.step, standing.activity, place=self.heart.place())
        places = {rank: here if rank == self.heart.rank else sign for rank, sign in signs.items()}
        where = [f"rank {rank} is {sign}" for rank, sign in places.items()]
        more = f"; {len(where) - 2 * NAMED} more" if len(where) > 2 * NAMED else ""
        print(
            f"no step for {now - standing.since:.0f} s, all ranks are alive:"
            f" {'; '.join(where[: 2 * NAMED])}{more}. The run ends when one has waited"
            f" {self.timeout:.0f} s for another (--timeout)",
            file=sys.stderr,
            flush=True,
        )

    def explained(self, error: BaseException) -> RankLost:
        """In the main thread, which has missed another rank: who it was. A launcher's SIGTERM must
        not hide it."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # this process is ending
        self.look(time.monotonic())
        self.leaving.set()
        deadline = time.monotonic() + QUIET + 2.0
        lost: list[int] = []
        while time.monotonic() < deadline:
            if held := self.own_absence():
                raised = RankLost(held, f"{OWN_ABSENCE} {AGAIN} ({first_line(error)})")
                raised.speaker = True
                return raised
            lost = self.lost(time.monotonic(), QUIET)
            if lost or self.own_failures(self.failed()):
                break
            time.sleep(LOOK)
        here, size, signs = self.heart.rank, self.heart.size, self.heart.signs
        alive = [
            f"rank {rank} is alive {signs[rank]}"
            for rank in range(size)
            if rank != here and signs[rank].ended is None
        ]
        words = (
            self.words(lost, self.failed()) or "; ".join(alive[:NAMED]) or "all others have left"
        )
        what = (
            error.message
            if isinstance(error, RankLost)
            else f"rank {here} of {size} lost another process of the run"
        )
        raised = RankLost(
            f"{what}: {words}",
            f"was it stopped, or killed for memory? {AGAIN} ({first_line(error)})",
        )
        raised.speaker = self.speaker(lost)
        return raised

    def tell(self, error: BaseException | None) -> str:
        """Tell the others how this process ends; in words if it ends by an error that is its
        own."""
        self.leaving.set()
        well = error is None or getattr(error, "together", False)
        ended = "" if well else f"{type(error).__name__}: {first_line(error)}"
        self.heart.end(ended)
        return ended

    def close(self, error: BaseException | None, patience: float = 4.0) -> None:
        """Leave: tell how. Who holds the store waits until the others have read that, or have left
        themselves; who fails looks whether all others fail in the same way, and if not, it has an
        error of its own."""
        ended = self.tell(error)
        own = (
            error
            if isinstance(error, FulcrumError) and ended and not isinstance(error, RankLost)
            else None
        )
        holds = self.heart.rank == 0 and not self.agent
        signs, deadline = (
            self.heart.signs,
            time.monotonic() + (patience if holds else SAME if own else 0.0),
        )
        while not self.heart.closed and time.monotonic() < deadline:
            try:
                self.heart.collect()
            except RuntimeError:
                return
            if all(
                sign.ended is not None for rank, sign in signs.items() if rank != self.heart.rank
            ):
                break
            time.sleep(0.05)
        if own and any(
            sign.ended != ended[:LONGEST] for rank, sign in signs.items() if rank != self.heart.rank
        ):
            own.rank = self.heart.rank


# --------------------------------------------------------------------------------------------------
# Joining: the processes of a run find each other within a time, and learn who is missing, or failed
# before it came.


TCPStore, PrefixStore = dist.TCPStore, dist.PrefixStore  # type: ignore[attr-defined]  # public, and not in its __all__
TRY = 0.5  # seconds between two attempts to reach the store
JOIN_POLL_SECONDS = 0.05  # seconds between two looks at who has come
LINGER = 6.0  # seconds that the holder of the store stays for those who come late
MAX_RANKS_NAMED = 8  # ranks that one message names


class Groups:
    """How many groups this process has begun to join, also in vain: each has a part of the store
    for itself."""

    begun = 0

    @classmethod
    def next(cls, here: Launched) -> str:
        cls.begun += 1
        return f"fulcrum/{here.restarts}/{cls.begun}"


def open_store(here: Launched, limit: float) -> Any:
    """A connection to the store, which rank 0 opens if torchrun does not hold it; an error with
    words within `limit`."""
    wait = timedelta(seconds=limit)
    if here.holds_store:
        return _within(
            limit,
            lambda: TCPStore(
                here.host, here.port, None, True, wait, wait_for_workers=False, multi_tenant=True
            ),
            lambda: could_not(
                here, f"it does not reach itself at {here.place} within {limit:g} s", _ports(here)
            ),
        )
    _reach(here, limit)
    return connection(here, limit)


def connection(here: Launched, limit: float) -> Any:
    """One more connection to the store, which somebody has opened."""
    silent = min(SILENT, limit)
    store = _within(
        silent,
        lambda: TCPStore(
            here.host, here.port, None, False, timedelta(seconds=silent), wait_for_workers=False
        ),
        lambda: could_not(
            here,
            f"something listens at {here.place} and has not answered for {silent:g} s: another"
            " program has the port, or rank 0, which answers there, is stopped",
            "give all ranks another MASTER_PORT, or end what has this one: ss -ltnp 'sport ="
            f" :{here.port}' on {here.host}",
        ),
    )
    store.set_timeout(timedelta(seconds=limit))
    return store


def could_not(here: Launched, why: str, hint: str, kind: type[RunFailed] = RunFailed) -> RunFailed:
    error = kind(f"{here} could not join the others: {why}", hint)
    # where rank 0 lives, which may not be there to say so; elsewhere the first of each machine does
    if here.rank == 1:
        error.rank = here.rank
    return error


def _ports(here: Launched) -> str:
    return (
        f"all ranks must be started, and reach {here.place}; a port that is taken needs another"
        " MASTER_PORT"
    )


def _reach(here: Launched, limit: float) -> None:
    """Wait until somebody listens: rank 0 may still be starting. By Python's sockets: Ctrl-C does
    not end torch's."""
    begun, noticed = time.monotonic(), False
    while True:
        try:
            socket.create_connection((here.host, here.port), timeout=min(limit, SILENT)).close()
            return
        except OSError as error:
            waited = time.monotonic() - begun
            refused = isinstance(error, ConnectionRefusedError)
            if waited + TRY > limit:
                who = "so rank 0 has not come" if refused else "which is where rank 0 should be"
                why = (
                    f"nobody listens at {here.place} ({error.strerror or error}), {who}; it waited"
                    f" {waited:.0f} s"
                )
                hint = (
                    f"look at the log of rank 0, it may have failed as it started; {_ports(here)}"
                )
                raise could_not(here, why, hint, RankLost if refused else RunFailed) from error
            if waited > SLOW and not noticed and (here.local == 0 or here.rank == 1):
                noticed = True
                _tell(
                    f"{here} waits for rank 0: nobody listens at {here.place}"
                    f" ({error.strerror or error})",
                    limit,
                )
        time.sleep(TRY)


def _within(limit: float, make: Callable[[], Any], late: Callable[[], FulcrumError]) -> Any:
    """What `make` makes in a thread, which is left behind when it takes too long: torch waits for
    an answer for ever."""
    made: list[Any] = []

    def act() -> None:
        try:
            made.append(make())
        except BaseException as error:
            made.append(error)

    thread = threading.Thread(target=act, daemon=True, name="joining")
    thread.start()
    thread.join(limit + 1.0)
    if not made:
        raise late()
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]


def _tell(text: str, limit: float) -> None:
    print(f"{text}; {limit:.0f} s at most (--timeout)", file=sys.stderr, flush=True)


def meet(here: Launched, heart: Heartbeat, watch: Watch, limit: float) -> None:
    """Wait until every rank has given a sign. Who has failed, fell silent or expects another number
    is named."""
    begun, noticed = time.monotonic(), False
    heart.beat = min(BEAT, 0.1 + 0.02 * here.size)  # many ask a store that one process holds
    while True:
        now = time.monotonic()
        watch.look(now)
        require_one_size(here, heart.sizes)
        missing = [
            rank for rank, sign in heart.signs.items() if not sign.number and rank != here.rank
        ]
        failed = watch.failed()
        # the store, which rank 0 holds: it has come then
        mute = heart.closed or now - heart.exchanged > SILENT
        lost = [
            rank for rank in watch.lost(now, SILENT) if rank not in missing or (rank == 0 and mute)
        ]
        if lost or failed:
            words = (
                watch.words(lost, failed) or "the others have left: one of them had lost another"
            )
            raise _lost(
                here,
                f"{here} was joining the others: {words}",
                f"nothing was trained; {AGAIN}",
                {*lost, *failed},
            )
        if not missing and len(heart.sizes) >= here.size:
            heart.beat = BEAT
            return
        if now - begun > limit:
            raise _lost(
                here,
                f"{here} could not join the others: it waited {limit:g} s for {ranks(missing)}, and"
                f" {ranks(rank for rank in heart.signs if rank not in missing)} had come",
                "look at the log of who is missing: it was not started, failed before it could say"
                f" so, or does not reach {here.place}; --timeout waits longer",
                missing,
            )
        if now - begun > SLOW and not noticed:
            noticed = True
            if here.rank == min(rank for rank in heart.signs if rank not in missing):
                _tell(f"{here} waits for {ranks(missing)} to join", limit)
        time.sleep(JOIN_POLL_SECONDS)


def linger(begun: float) -> float:
    """Seconds that the holder of the store stays when joining has failed: for those that are still
    on their way."""
    return LINGER if time.monotonic() - begun < SILENT else JOIN_POLL_SECONDS


def _lost(here: Launched, message: str, hint: str, gone: Iterable[int]) -> RankLost:
    error = RankLost(message, hint)
    error.speaker = here.rank == min(rank for rank in range(here.size) if rank not in set(gone))
    return error


def require_one_size(here: Launched, sizes: dict[int, int]) -> None:
    """All ranks must have been told the same number of processes."""
    if len({*sizes.values(), here.size}) == 1:
        return
    said = {
        size: [rank for rank, one in sizes.items() if one == size]
        for size in sorted({*sizes.values()})
    }
    raise BadInput(
        "the processes of the run do not agree on how many they are: "
        + "; ".join(f"WORLD_SIZE is {size} for {ranks(who)}" for size, who in said.items()),
        "start all of them with the same WORLD_SIZE, as torchrun and srun do; nothing was trained",
    )


def ranks(numbers: Iterable[int]) -> str:
    known = sorted(numbers)
    more = f" and {len(known) - MAX_RANKS_NAMED} more" if len(known) > MAX_RANKS_NAMED else ""
    return (
        f"rank{'s' * (len(known) != 1)}"
        f" {', '.join(map(str, known[:MAX_RANKS_NAMED])) or 'none'}{more}"
    )


def failed_to_join(here: Launched, error: BaseException) -> RunFailed:
    """What torch says of a port that is taken, an address that is not this machine's, and its
    like."""
    return could_not(here, first_line(error), _ports(here))


# --------------------------------------------------------------------------------------------------
# Start and end the processes of a run: who am I, who else is there, on which device.


TIMEOUT = 600.0  # seconds that a rank waits for another, if nobody says
PATIENCE = 4.0  # seconds that the holder of the store stays for those who end
SETTLE = 0.2  # seconds in which gloo's threads let go of what was exchanged last


@dataclass(frozen=True)
class Ranks:
    """The processes of a run as one of them sees them: which it is, of how many. One alone needs no
    process group."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    timeout: float = TIMEOUT  # seconds that a rank waits for the others
    _gloo: dist.ProcessGroup | None = field(default=None, repr=False, compare=False)
    _store: Any = field(default=None, repr=False, compare=False)
    _turn: Iterator[int] = field(default_factory=count, repr=False, compare=False)
    standing: Standing = field(default_factory=Standing, repr=False, compare=False)  # for the watch

    @property
    def first(self) -> bool:
        """The rank that prints and writes."""
        return self.rank == 0

    def rows(self, total: int) -> slice:
        """This rank's rows of a global batch; equal shares, so that the mean of means is the global
        mean."""
        if total % self.size:
            raise BadInput(
                f"a batch of {total} rows cannot be dealt evenly to {self.size} processes",
                f"choose a multiple of {self.size}, or another number of processes",
            )
        share = total // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def barrier(self, what: str) -> None:
        """Wait until every rank has come here; `what` names the place in the error of a rank that
        waits in vain."""
        if self.size == 1:
            return
        begun, activity = time.monotonic(), self.standing.activity
        self.standing.at(f"waiting at {what!r}")
        try:
            dist.monitored_barrier(
                self._gloo, timeout=timedelta(seconds=self.timeout), wait_all_ranks=True
            )
            self.standing.at(activity)
        except RuntimeError as error:
            raise RankLost(
                f"rank {self.rank} of {self.size} waited {time.monotonic() - begun:.0f} s at"
                f" {what!r} in vain: {error}",
                "look at the log of the rank that did not come; it failed or hangs elsewhere",
            ) from error

    @property
    def of_hosts(self) -> dist.ProcessGroup | None:
        """The group that exchanges what lies in the hosts' memory, whatever the device is; None is
        the group of all."""
        return self._gloo

    @contextmanager
    def first_goes_ahead(self, what: str) -> Iterator[None]:
        """The first rank does what follows, then the others: they find what it has made."""
        if not self.first:
            self.barrier(what)
        self.standing.at(what)
        yield
        if self.first:
            self.barrier(what)

    def told(self, what: str, text: str) -> list[str]:
        """What every rank says of `what`, in the order of the ranks; all must ask."""
        if self._store is None:
            return [text]
        turn, activity = next(self._turn), self.standing.activity
        keys = [f"told/{turn}/{rank}" for rank in range(self.size)]
        self.standing.at(f"waiting for {what}")
        self._store.set(keys[self.rank], text)
        self._store.wait(keys, timedelta(seconds=self.timeout))
        self.standing.at(activity)
        return [value.decode() for value in self._store.multi_get(keys)]

    def any(self, here: bool) -> bool:
        """Whether any rank says so; the same answer on every rank."""
        if self.size == 1:
            return here
        flag = torch.tensor(int(here), device=self.device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag)


ALONE = Ranks()  # the only process there is


def is_loss(error: BaseException | None) -> bool:
    """Does this error tell of another process that is gone?"""
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo" in str(error)
    )


def _tells_of_loss(error: BaseException) -> bool:
    return isinstance(error, RankLost) or is_loss(error) or is_loss(error.__cause__)


@contextmanager
def start(
    device: str = "cpu", timeout: float = TIMEOUT, env: Mapping[str, str] | None = None
) -> Iterator[Ranks]:
    """Join the processes that torchrun describes in the environment, or be alone; leave them
    cleanly at the end.

    Many processes are watched: see `fulcrum/training/dist/ranks.py`.
    """
    here = launched(os.environ if env is None else env)
    require_device(device, 1 if here is None or device == "cpu" else here.local + 1)
    if here is None:
        yield Ranks(
            device=torch.device(device, 0) if device == "cuda" else torch.device(device),
            timeout=timeout,
        )
        return
    where = torch.device(device)
    if device == "cuda":
        where = torch.device("cuda", here.local)
        torch.cuda.set_device(where)
    group, joining, ended, begun = Groups.next(here), True, None, time.monotonic()
    try:
        held = open_store(here, timeout)
        # The heartbeat's own connection: a wait of the main thread would hold up every other use of
        # the first one.
        own = connection(here, timeout)
    # DistStoreError, DistNetworkError are RuntimeErrors
    except (RuntimeError, ValueError) as error:
        raise failed_to_join(here, error) from error
    store, standing = PrefixStore(group, held), Standing()
    heart = Heartbeat(PrefixStore(group, own), here.rank, here.size, standing)
    watch = Watch(heart, timeout, here.agent)
    try:
        heart.start()
        meet(here, heart, watch, timeout)
        watch.start()
        _join(device, here, PrefixStore("group", store), timeout)
        joining = False
        # Only gloo can tell which rank is missing at a barrier, and takes what is on hosts: NCCL
        # worlds get it besides.
        wait = timedelta(seconds=timeout)
        gloo = dist.new_group(backend="gloo", timeout=wait) if device == "cuda" else None
        yield Ranks(here.rank, here.size, where, timeout, gloo, store, standing=standing)
    except BaseException as error:
        # A loss that `meet` found is told in words already.
        ended = (
            watch.explained(error)
            if _tells_of_loss(error) and not (joining and isinstance(error, RankLost))
            else error
        )
        if ended is error:
            raise
        raise ended from error
    finally:
        try:
            _leave(watch, ended, device)
        finally:  # Ctrl-C may come there, and the others must hear of it
            watch.close(ended, linger(begun) if joining else PATIENCE)


def _leave(watch: Watch, ended: BaseException | None, device: str) -> None:
    """Give up the process group. Under NCCL that waits for the others, who wait for this one if it
    has failed: it says so first, and breaks off what is under way. Gloo's threads need Python to
    let go of the tensors of the last exchange: one that comes to it when Python has begun to end
    aborts the process."""
    if not dist.is_initialized():
        return
    if device == "cuda" and ended is not None and watch.tell(ended):
        dist.distributed_c10d._abort_process_group()
    else:
        dist.destroy_process_group()
    time.sleep(SETTLE)


def _join(device: str, here: Launched, store: Any, timeout: float) -> None:
    """The process group: all are there, and the watch is on."""
    try:
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            rank=here.rank,
            world_size=here.size,
            timeout=timedelta(seconds=timeout),
            store=store,
        )
    except (RuntimeError, ValueError) as error:
        if is_loss(error):
            raise
        raise failed_to_join(here, error) from error
