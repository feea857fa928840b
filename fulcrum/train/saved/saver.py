"""Saves a run while it trains: its state is copied, which training waits for, and a thread writes the copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from fulcrum.optim.optimizer_state import local
from fulcrum.spec.errors import RunFailed
from fulcrum.train.build import Built
from fulcrum.train.loop import Look
from fulcrum.train.saved import checkpoint
from fulcrum.train.saved.checkpoint import Checkpoint
from fulcrum.train.saved.run_folder import RunFolder
from fulcrum.train.saved.saving_times import TENTHS, SavingTimes
from fulcrum.train.state import State

PATIENCE = 30.0  # seconds that a training which ends by an error waits for what is being written

Parts = Mapping[str, Mapping[str, Tensor]]


def live_parts(built: Built) -> Parts:
    """The tensors of a run that make its checkpoint, as they are in memory: whole, or this process's rows of them."""
    return {"model": built.step.state_dict(), "optimizer": built.optimizer.state(), "average": built.average.state()}


@torch.no_grad()
def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What lives on this process, in memory of its own."""
    return {name: local(value).to("cpu", copy=True) for name, value in tensors.items()}


class Saver:
    """An observer of the training; every process of a run has one, and they write together."""

    def __init__(self, built: Built, folder: RunFolder, state: State) -> None:
        self.folder, run = folder, built.run
        stretch = max(run.budget.images // TENTHS, run.budget.batch)
        self.times = SavingTimes(built.ranks, state.images, stretch, built.system.save_every)
        # A group of its own: what the thread sends must not get between the training's messages.
        patience = timedelta(seconds=built.ranks.timeout)
        self.group = dist.new_group(backend="gloo", timeout=patience) if built.ranks.size > 1 else None
        self.thread: threading.Thread | None = None
        self.failure: BaseException | None = None
        self.before_saving: Callable[[], None] = lambda: None  # what must be on disk when a checkpoint is

    def __call__(self, look: Look) -> None:
        writing = self.thread is not None and self.thread.is_alive()
        if not writing and look.built.ranks.size == 1:  # many must learn of it together: when they save again
            self.wait()
        if look.images < look.built.run.budget.images and self.times.due(look.images, writing):
            self.begin(look.built, look.state)

    def begin(self, built: Built, state: State) -> None:
        """Copy the state and let a thread write it; one that is still being written is waited for."""
        begun = time.perf_counter()
        self.wait()
        parts = live_parts(built)
        copies = {part: copied(tensors) for part, tensors in parts.items()}
        self.before_saving()
        write = partial(self._write, built, state, parts, copies)
        thread = threading.Thread(target=self._kept, args=(write, built.system.device), daemon=True)
        thread.start()  # where memory is short it cannot: then there is none to wait for
        self.thread = thread
        self.times.saved(time.perf_counter() - begun)

    def keep(self, built: Built, state: State) -> None:
        """Save now, and come back when it is on the disk."""
        begun = time.perf_counter()
        self.wait()
        parts = live_parts(built)
        here = {part: {name: local(value) for name, value in tensors.items()} for part, tensors in parts.items()}
        self.before_saving()
        self._write(built, state, parts, here)
        self.times.saved(time.perf_counter() - begun)

    def wait(self) -> None:
        """Until nothing is being written; what went wrong with it is raised here."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.failure is not None:
            failure, self.failure = self.failure, None
            if isinstance(failure, RunFailed):
                raise failure
            raise RunFailed(
                f"could not save a checkpoint: {type(failure).__name__}: {failure}",
                "the one before it stands: start the same command again to go on from there",
            ) from failure

    def leave(self) -> None:
        """The training has failed: what is being written is waited for, but not for ever (another process may be gone)."""
        if self.thread is not None:
            self.thread.join(PATIENCE)

    def _kept(self, write: Callable[[], None], device: str) -> None:
        try:
            write()
        except BaseException as error:
            self.failure = error
        if device == "cpu":  # it took a share of what the training computes with
            self.times.written(time.thread_time())

    def _write(self, built: Built, state: State, parts: Parts, values: Parts) -> None:
        key, system = self.folder.path.name, built.system
        if built.ranks.size == 1:
            checkpoint.save(self.folder.checkpoints, Checkpoint(values, key, state, system))
            return
        from fulcrum.train.saved.sharded import flat, save_sharded  # 4 s to import; one process does without

        save_sharded(self.folder.checkpoints, Checkpoint(parts, key, state, system), flat(values), self.group)
