"""Start and end the processes of a run: who am I, who else is there, on which device."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from fulcrum.dist.device import require_device
from fulcrum.spec.errors import BadInput, RunFailed

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Ranks:
    """The processes of a run as one of them sees them: which it is, of how many. One alone needs no process group."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    timeout: float = 600.0  # seconds that a rank waits for the others
    _gloo: dist.ProcessGroup | None = field(default=None, repr=False, compare=False)

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
        begun = time.monotonic()
        try:
            dist.monitored_barrier(self._gloo, timeout=timedelta(seconds=self.timeout), wait_all_ranks=True)
        except RuntimeError as error:
            raise RunFailed(
                f"rank {self.rank} of {self.size} waited {time.monotonic() - begun:.0f} s at {what!r} in vain: {error}",
                "look at the log of the rank that did not come; it failed or hangs elsewhere",
            ) from error

    @contextmanager
    def first_goes_ahead(self, what: str) -> Iterator[None]:
        """The first rank does what follows, then the others: they find what it has made."""
        if not self.first:
            self.barrier(what)
        yield
        if self.first:
            self.barrier(what)

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


def processes(env: Mapping[str, str]) -> int:
    """How many processes the environment tells of."""
    size = env.get("WORLD_SIZE", "1")
    if not size.isdigit() or int(size) < 1:
        raise BadInput(
            f"WORLD_SIZE is {size!r}, expected a number of processes",
            "start many processes with torchrun, which sets it, or unset it",
        )
    return int(size)


@contextmanager
def start(device: str = "cpu", timeout: float = 600.0, env: Mapping[str, str] | None = None) -> Iterator[Ranks]:
    """Join the processes that torchrun describes in the environment, or be alone; leave them cleanly at the end."""
    given = {name: value for name in TORCHRUN if (value := (os.environ if env is None else env).get(name)) is not None}
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
    rank, here = int(given["RANK"]), torch.device(device)
    if device == "cuda":
        here = torch.device("cuda", int(given["LOCAL_RANK"]))
        require_device(device, here.index + 1)
        torch.cuda.set_device(here)
    try:
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
            init_method=f"tcp://{given['MASTER_ADDR']}:{given['MASTER_PORT']}",
        )
    except (RuntimeError, ValueError) as error:  # DistStoreError, DistNetworkError are RuntimeErrors
        raise RunFailed(
            f"rank {rank} of {size} could not join within {timeout:g} s: {error}",
            f"all ranks must reach {given['MASTER_ADDR']}:{given['MASTER_PORT']}",
        ) from error
    try:
        # Only gloo can tell which rank is missing at a barrier, so NCCL worlds get a gloo group beside it.
        gloo = dist.new_group(backend="gloo") if device == "cuda" else None
        yield Ranks(rank, size, here, timeout, gloo)
    except RuntimeError as error:
        if not is_loss(error):
            raise
        raise RunFailed(
            f"rank {rank} of {size} lost another process of the run",
            f"that one has ended or hangs: see its own message ({str(error).splitlines()[0][:120]})",
        ) from error
    finally:
        dist.destroy_process_group()
