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

from fulcrum.dist.machine.device import require_device
from fulcrum.dist.processes.heartbeat import Heartbeat, Standing
from fulcrum.dist.processes.joining import Groups, PrefixStore, connection, failed_to_join, linger, meet, open_store
from fulcrum.dist.processes.launched import Launched, launched
from fulcrum.dist.processes.watch import Watch
from fulcrum.spec.errors import BadInput, RankLost

TIMEOUT = 600.0  # seconds that a rank waits for another, if nobody says
PATIENCE = 4.0  # seconds that the holder of the store stays for those who end
SETTLE = 0.2  # seconds in which gloo's threads let go of what was exchanged last


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

    @property
    def of_hosts(self) -> dist.ProcessGroup | None:
        """The group that exchanges what lies in the hosts' memory, whatever the device is; None is the group of all."""
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


def is_sharded(tensor: torch.Tensor) -> bool:
    """A DTensor, known by its `placements`: importing the class costs a second that one process can save."""
    return hasattr(tensor, "placements")


def is_loss(error: BaseException | None) -> bool:
    """Does this error tell of another process that is gone?"""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _tells_of_loss(error: BaseException) -> bool:
    return isinstance(error, RankLost) or is_loss(error) or is_loss(error.__cause__)


@contextmanager
def start(device: str = "cpu", timeout: float = TIMEOUT, env: Mapping[str, str] | None = None) -> Iterator[Ranks]:
    """Join the processes that torchrun describes in the environment, or be alone; leave them cleanly at the end.

    Many processes are watched: see `fulcrum/dist/processes/watch.py`.
    """
    here = launched(os.environ if env is None else env)
    require_device(device, 1 if here is None or device == "cpu" else here.local + 1)
    if here is None:
        yield Ranks(device=torch.device(device, 0) if device == "cuda" else torch.device(device), timeout=timeout)
        return
    where = torch.device(device)
    if device == "cuda":
        where = torch.device("cuda", here.local)
        torch.cuda.set_device(where)
    group, joining, ended, begun = Groups.next(here), True, None, time.monotonic()
    try:
        held = open_store(here, timeout)
        # The heartbeat's own connection: a wait of the main thread would hold up every other use of the first one.
        own = connection(here, timeout)
    except (RuntimeError, ValueError) as error:  # DistStoreError, DistNetworkError are RuntimeErrors
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
        # Only gloo can tell which rank is missing at a barrier, and takes what is on hosts: NCCL worlds get it besides.
        wait = timedelta(seconds=timeout)
        gloo = dist.new_group(backend="gloo", timeout=wait) if device == "cuda" else None
        yield Ranks(here.rank, here.size, where, timeout, gloo, store, standing=standing)
    except BaseException as error:
        # A loss that `meet` found is told in words already.
        ended = watch.explained(error) if _tells_of_loss(error) and not (joining and isinstance(error, RankLost)) else error
        if ended is error:
            raise
        raise ended from error
    finally:
        try:
            _leave(watch, ended, device)
        finally:  # Ctrl-C may come there, and the others must hear of it
            watch.close(ended, linger(begun) if joining else PATIENCE)


def _leave(watch: Watch, ended: BaseException | None, device: str) -> None:
    """Give up the process group. Under NCCL that waits for the others, who wait for this one if it has failed: it says so
    first, and breaks off what is under way. Gloo's threads need Python to let go of the tensors of the last exchange: one
    that comes to it when Python has begun to end aborts the process."""
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
