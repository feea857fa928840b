"""Joining: the processes of a run find each other within a time, and learn who is missing, or failed before it came."""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from fulcrum.dist.processes.heartbeat import BEAT, Heartbeat
from fulcrum.dist.processes.launched import Launched
from fulcrum.dist.processes.watch import AGAIN, SILENT, SLOW, Watch
from fulcrum.spec.errors import BadInput, FulcrumError, RankLost, RunFailed, first_line

TCPStore, PrefixStore = dist.TCPStore, dist.PrefixStore  # type: ignore[attr-defined]  # public, and not in its __all__
TRY = 0.5  # seconds between two attempts to reach the store
JOIN_POLL_SECONDS = 0.05  # seconds between two looks at who has come
LINGER = 6.0  # seconds that the holder of the store stays for those who come late
MAX_RANKS_NAMED = 8  # ranks that one message names


class Groups:
    """How many groups this process has begun to join, also in vain: each has a part of the store for itself."""

    begun = 0

    @classmethod
    def next(cls, here: Launched) -> str:
        cls.begun += 1
        return f"fulcrum/{here.restarts}/{cls.begun}"


def open_store(here: Launched, limit: float) -> Any:
    """A connection to the store, which rank 0 opens if torchrun does not hold it; an error with words within `limit`."""
    wait = timedelta(seconds=limit)
    if here.holds_store:
        return _within(
            limit,
            lambda: TCPStore(here.host, here.port, None, True, wait, wait_for_workers=False, multi_tenant=True),
            lambda: could_not(here, f"it does not reach itself at {here.place} within {limit:g} s", _ports(here)),
        )
    _reach(here, limit)
    return connection(here, limit)


def connection(here: Launched, limit: float) -> Any:
    """One more connection to the store, which somebody has opened."""
    silent = min(SILENT, limit)
    store = _within(
        silent,
        lambda: TCPStore(here.host, here.port, None, False, timedelta(seconds=silent), wait_for_workers=False),
        lambda: could_not(
            here,
            f"something listens at {here.place} and has not answered for {silent:g} s: another program has the port, or "
            "rank 0, which answers there, is stopped",
            f"give all ranks another MASTER_PORT, or end what has this one: ss -ltnp 'sport = :{here.port}' on {here.host}",
        ),
    )
    store.set_timeout(timedelta(seconds=limit))
    return store


def could_not(here: Launched, why: str, hint: str, kind: type[RunFailed] = RunFailed) -> RunFailed:
    error = kind(f"{here} could not join the others: {why}", hint)
    if here.rank == 1:  # where rank 0 lives, which may not be there to say so; elsewhere the first of each machine does
        error.rank = here.rank
    return error


def _ports(here: Launched) -> str:
    return f"all ranks must be started, and reach {here.place}; a port that is taken needs another MASTER_PORT"


def _reach(here: Launched, limit: float) -> None:
    """Wait until somebody listens: rank 0 may still be starting. By Python's sockets: Ctrl-C does not end torch's."""
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
                why = f"nobody listens at {here.place} ({error.strerror or error}), {who}; it waited {waited:.0f} s"
                hint = f"look at the log of rank 0, it may have failed as it started; {_ports(here)}"
                raise could_not(here, why, hint, RankLost if refused else RunFailed) from error
            if waited > SLOW and not noticed and (here.local == 0 or here.rank == 1):
                noticed = True
                _tell(f"{here} waits for rank 0: nobody listens at {here.place} ({error.strerror or error})", limit)
        time.sleep(TRY)


def _within(limit: float, make: Callable[[], Any], late: Callable[[], FulcrumError]) -> Any:
    """What `make` makes in a thread, which is left behind when it takes too long: torch waits for an answer for ever."""
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
    """Wait until every rank has given a sign. Who has failed, fell silent or expects another number is named."""
    begun, noticed = time.monotonic(), False
    heart.beat = min(BEAT, 0.1 + 0.02 * here.size)  # many ask a store that one process holds
    while True:
        now = time.monotonic()
        watch.look(now)
        require_one_size(here, heart.sizes)
        missing = [rank for rank, sign in heart.signs.items() if not sign.number and rank != here.rank]
        failed = watch.failed()
        mute = heart.closed or now - heart.exchanged > SILENT  # the store, which rank 0 holds: it has come then
        lost = [rank for rank in watch.lost(now, SILENT) if rank not in missing or (rank == 0 and mute)]
        if lost or failed:
            words = watch.words(lost, failed) or "the others have left: one of them had lost another"
            raise _lost(here, f"{here} was joining the others: {words}", f"nothing was trained; {AGAIN}", {*lost, *failed})
        if not missing and len(heart.sizes) >= here.size:
            heart.beat = BEAT
            return
        if now - begun > limit:
            raise _lost(
                here,
                f"{here} could not join the others: it waited {limit:g} s for {ranks(missing)}, and "
                f"{ranks(rank for rank in heart.signs if rank not in missing)} had come",
                "look at the log of who is missing: it was not started, failed before it could say so, or does not reach "
                f"{here.place}; --timeout waits longer",
                missing,
            )
        if now - begun > SLOW and not noticed:
            noticed = True
            if here.rank == min(rank for rank in heart.signs if rank not in missing):
                _tell(f"{here} waits for {ranks(missing)} to join", limit)
        time.sleep(JOIN_POLL_SECONDS)


def linger(begun: float) -> float:
    """Seconds that the holder of the store stays when joining has failed: for those that are still on their way."""
    return LINGER if time.monotonic() - begun < SILENT else JOIN_POLL_SECONDS


def _lost(here: Launched, message: str, hint: str, gone: Iterable[int]) -> RankLost:
    error = RankLost(message, hint)
    error.speaker = here.rank == min(rank for rank in range(here.size) if rank not in set(gone))
    return error


def require_one_size(here: Launched, sizes: dict[int, int]) -> None:
    """All ranks must have been told the same number of processes."""
    if len({*sizes.values(), here.size}) == 1:
        return
    said = {size: [rank for rank, one in sizes.items() if one == size] for size in sorted({*sizes.values()})}
    raise BadInput(
        "the processes of the run do not agree on how many they are: "
        + "; ".join(f"WORLD_SIZE is {size} for {ranks(who)}" for size, who in said.items()),
        "start all of them with the same WORLD_SIZE, as torchrun and srun do; nothing was trained",
    )


def ranks(numbers: Iterable[int]) -> str:
    known = sorted(numbers)
    more = f" and {len(known) - MAX_RANKS_NAMED} more" if len(known) > MAX_RANKS_NAMED else ""
    return f"rank{'s' * (len(known) != 1)} {', '.join(map(str, known[:MAX_RANKS_NAMED])) or 'none'}{more}"


def failed_to_join(here: Launched, error: BaseException) -> RunFailed:
    """What torch says of a port that is taken, an address that is not this machine's, and its like."""
    return could_not(here, first_line(error), _ports(here))
