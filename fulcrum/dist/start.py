"""Start and end the processes of a run: who am I, who else is there, on which device."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import torch
import torch.distributed as dist

from fulcrum.dist.device import require_device
from fulcrum.dist.heartbeat import Heartbeat, Standing
from fulcrum.dist.watch import Watch
from fulcrum.spec.errors import BadInput, RankLost, RunFailed

TCPStore, PrefixStore = dist.TCPStore, dist.PrefixStore  # type: ignore[attr-defined]  # public, and not in its __all__
MOST_RANKS = 1_000_000
TIMEOUT = 600.0  # seconds that a rank waits for another, if nobody says
AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # torchrun's own variable: it holds the store, not rank 0
RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # torchrun's own variable: its store may outlive the processes
STARTS = count()  # groups that this process has joined: each has a part of the store for itself
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Ranks:
    """The processes of a run as one of them sees them: which it is, of how many. One alone needs no process group."""

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
        """This rank's rows of a global batch; equal shares, so that the mean of means is the global mean."""
        if total % self.size:
            raise BadInput(
                f"a batch of {total} rows cannot be dealt evenly to {self.size} processes",
                f"choose a multiple of {self.size}, or another number of processes",
            )
        share = total // self.size
        return slice(self.rank * share, (self.rank + 1) * share)

    def barrier(self, what: str) -> None:
        """Wait until every rank has come here; `what` names the place in the error of a rank that waits in vain."""
        if self.size == 1:
            return
        begun, activity = time.monotonic(), self.standing.activity
        self.standing.at(f"waiting at {what!r}")
        try:
            dist.monitored_barrier(self._gloo, timeout=timedelta(seconds=self.timeout), wait_all_ranks=True)
            self.standing.at(activity)
        except RuntimeError as error:
            raise RankLost(
                f"rank {self.rank} of {self.size} waited {time.monotonic() - begun:.0f} s at {what!r} in vain: {error}",
                "look at the log of the rank that did not come; it failed or hangs elsewhere",
            ) from error

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


def is_sharded(tensor: torch.Tensor) -> bool:
    """A DTensor, known by its `placements`: importing the class costs a second that one process can save."""
    return hasattr(tensor, "placements")


def is_loss(error: BaseException | None) -> bool:
    """Does this error tell of another process that is gone?"""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _tells_of_loss(error: BaseException) -> bool:
    return isinstance(error, RankLost) or is_loss(error) or is_loss(error.__cause__)


def processes(env: Mapping[str, str]) -> int:
    """How many processes the environment tells of."""
    return _number("WORLD_SIZE", env.get("WORLD_SIZE", "1"), 1, MOST_RANKS)


def _number(name: str, text: str, least: int, most: int) -> int:
    """A number that a launcher gives; what is none, or cannot be, is refused before anybody waits for anybody."""
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not least <= int(text) <= most:
        raise BadInput(
            f"{name} is {text!r}, expected a number from {least} to {most}",
            f"start many processes with torchrun, which sets it, or unset {name}",
        )
    return int(text)


@contextmanager
def start(device: str = "cpu", timeout: float = TIMEOUT, env: Mapping[str, str] | None = None) -> Iterator[Ranks]:
    """Join the processes that torchrun describes in the environment, or be alone; leave them cleanly at the end.

    Many processes are watched: see `fulcrum/dist/watch.py`.
    """
    environment = os.environ if env is None else env
    given = {name: value for name in TORCHRUN if (value := environment.get(name)) is not None}
    size = processes(given)
    require_device(device)
    if size == 1:
        yield Ranks(device=torch.device(device, 0) if device == "cuda" else torch.device(device), timeout=timeout)
        return
    missing = [name for name in TORCHRUN if name not in given]
    if missing:
        raise BadInput(
            f"WORLD_SIZE is {size}, but {', '.join(missing)} is not set",
            "start many processes with torchrun, which sets all of them, or unset WORLD_SIZE",
        )
    rank, local, port = (
        _number(name, given[name], least, most)
        for name, least, most in (("RANK", 0, size - 1), ("LOCAL_RANK", 0, size - 1), ("MASTER_PORT", 1, 65_535))
    )
    here = torch.device(device)
    if device == "cuda":
        here = torch.device("cuda", local)
        require_device(device, here.index + 1)
        torch.cuda.set_device(here)
    agent, address = environment.get(AGENT) == "True", (given["MASTER_ADDR"], port)
    group, wait = f"fulcrum/{environment.get(RESTARTS, '0')}/{next(STARTS)}", timedelta(seconds=timeout)
    try:
        held = TCPStore(*address, size, rank == 0 and not agent, timeout=wait, multi_tenant=True)
        # The heartbeat's own connection: a wait of the main thread would hold up every other use of the first one.
        own = TCPStore(*address, is_master=False, timeout=wait, wait_for_workers=False)
        store, backend = PrefixStore(group, held), "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=wait, store=PrefixStore("group", store))
    except (RuntimeError, ValueError) as error:  # DistStoreError, DistNetworkError are RuntimeErrors
        raise RunFailed(
            f"rank {rank} of {size} could not join the others (it waits {timeout:g} s at most): {error}",
            f"all ranks must be started, and reach {address[0]}:{port}; a port that is taken needs another MASTER_PORT",
        ) from error
    standing = Standing()
    heart = Heartbeat(PrefixStore(group, own), rank, size, standing)
    watch, ended = Watch(heart, timeout, agent), None
    try:
        heart.start()
        watch.start()
        # Only gloo can tell which rank is missing at a barrier, so NCCL worlds get a gloo group beside it.
        gloo = dist.new_group(backend="gloo") if device == "cuda" else None
        yield Ranks(rank, size, here, timeout, gloo, store, standing=standing)
    except BaseException as error:
        ended = watch.explained(error) if _tells_of_loss(error) else error
        if ended is error:
            raise
        raise ended from error
    finally:
        dist.destroy_process_group()
        watch.close(ended)
