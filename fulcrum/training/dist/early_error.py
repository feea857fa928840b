"""An error that comes before a process has joined the others: they are told of it, and who else has
it is found out.

A lever that is misspelt is the error of all processes and is to be said once; a file that one
machine lacks is the error of one, for which the others would wait in vain.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from fulcrum.spec.errors import FulcrumError, first_line
from fulcrum.training.dist.ranks import (
    LONGEST,
    Groups,
    Heartbeat,
    Launched,
    PrefixStore,
    Sign,
    Standing,
    launched,
    open_store,
    ranks,
)

REACH = 20.0  # seconds in which the store is looked for: rank 0 may still be starting
COME = 10.0  # seconds that the others have to come
LOOK = 0.1  # seconds between two looks


@contextmanager
def telling_others(message: str, env: Mapping[str, str]) -> Iterator[str | None]:
    """Tell the others, then give who has this error: "" all, None if another of those who have it
    says so, else words. Who holds the store stays until the others have read it."""
    try:
        here = launched(env)
        heart = None if here is None else _told(here, first_line(Exception(message))[:LONGEST])
    except (FulcrumError, RuntimeError, ValueError):
        here = heart = None
    if here is None or heart is None:  # nobody can be asked
        yield f"rank {env['RANK']}" if "RANK" in env else ""
        return
    _wait(
        heart,
        lambda others: (
            all(sign.number for sign in others) or any(_has_joined(sign) for sign in others)
        ),
    )
    same = [
        rank for rank, sign in heart.signs.items() if sign.ended == heart.signs[here.rank].ended
    ]
    if len(same) == here.size:
        yield ""
    else:
        yield f"{ranks(same)} of {here.size}" if here.rank == same[0] else None
    if here.holds_store:
        _wait(heart, lambda others: all(sign.ended is not None for sign in others))


def _told(here: Launched, ended: str) -> Heartbeat:
    """The error in the store, as the last sign of this process."""
    store = PrefixStore(Groups.next(here), open_store(here, REACH))
    heart = Heartbeat(store, here.rank, here.size, Standing())
    heart.give(ended)
    heart.signs[here.rank] = Sign(1, ended=ended)
    return heart


def _has_joined(sign: Sign) -> bool:
    return sign.number > 0 and sign.ended is None


def _wait(heart: Heartbeat, enough: Callable[[list[Sign]], bool]) -> None:
    deadline = time.monotonic() + COME
    with suppress(RuntimeError):  # whoever held the store is gone
        while time.monotonic() < deadline:
            heart.collect()
            if enough([sign for rank, sign in heart.signs.items() if rank != heart.rank]):
                return
            time.sleep(LOOK)
