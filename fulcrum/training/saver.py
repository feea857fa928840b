"""Save a run while it trains, and resume it from its newest good checkpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from fulcrum.spec.errors import RunFailed
from fulcrum.training import checkpoint
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import Checkpoint, Parts, State, VerifiedCheckpoint
from fulcrum.training.dist.collectives import largest
from fulcrum.training.dist.ranks import Ranks
from fulcrum.training.loop import StepReport
from fulcrum.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------
# When a run is saved: as often as it costs little, or whenever so many images were seen.
#
# Wanted whenever a tenth of the budget has passed, and whenever the last checkpoint is a minute
# old; done if saving has then taken no more than its share of the time, and a little that is always
# granted; after half an hour done in any case.


TENTHS = 10  # checkpoints per budget that are wanted
LEAST, LONGEST = 60.0, 1800.0  # seconds between two that time alone asks for
SHARE = 0.01  # of the time that saving may take
GRANTED = 3.0  # seconds beside it: short runs and first checkpoints


class SavingTimes:
    """Many processes agree: now and then on what each has measured, and in between by counting
    steps."""

    def __init__(
        self,
        ranks: Ranks,
        images: int,
        stretch: int,
        every: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`images` seen so far; a save is wanted whenever a `stretch` of them has passed, or due
        `every` so many."""
        self.ranks, self.every, self.clock = ranks, every, clock
        self.stretch = stretch if every is None else every
        self.next = (images // self.stretch + 1) * self.stretch
        self.begun = self.last = self.asked = clock()
        self.spent = self.cost = 0.0  # seconds that saving took: in all, and the last time
        # steps since the ranks agreed, and after how many they do again
        self.steps = self.ask_in = 0

    def due(self, images: int, writing: bool = False) -> bool:
        """Is the run to be saved after this step? Asked by all processes after every step;
        `writing`: one is on its way."""
        passed = images >= self.next
        if passed:
            self.next = (images // self.stretch + 1) * self.stretch
        if self.every is not None:
            return passed
        self.steps += 1
        if self.ranks.size > 1 and not passed and self.steps < self.ask_in:
            return False
        now = self.clock()
        pace = (now - self.asked) / self.steps
        here = [now - self.last, now - self.begun, self.spent, self.cost, float(writing), pace]
        since, elapsed, spent, cost, busy, pace = largest(here, self.ranks)
        lacking = spent + cost - GRANTED - SHARE * elapsed  # seconds too many, if it were done now
        wait = min(max(LEAST - since, lacking / SHARE), LONGEST - since)
        self.steps, self.asked = 0, now
        self.ask_in = max(1, int(wait / max(pace, 1e-9) / 2))
        if passed and lacking <= 0:
            return True
        return wait <= 0 and not busy

    def saved(self, blocked: float) -> None:
        """A checkpoint was made and held the training up for so many seconds."""
        self.last, self.cost = self.clock(), blocked
        self.spent += blocked

    def written(self, seconds: float) -> None:
        """Writing it took so much of the processor beside the training."""
        self.cost += seconds
        self.spent += seconds


# --------------------------------------------------------------------------------------------------
# Saves a run while it trains: its state is copied, which training waits for, and a thread writes
# the copy.


PATIENCE = 30.0  # seconds that a training which ends by an error waits for what is being written


def live_parts(built: Built) -> Parts:
    """The tensors of a run that make its checkpoint, as they are in memory: whole, or this
    process's rows of them."""
    return {
        "model": built.step.state_dict(),
        "optimizer": built.optimizer.state(),
        "average": built.average.state(),
    }


@torch.no_grad()
def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors in the host's memory, not shared with anything."""
    return {name: value.to("cpu", copy=True) for name, value in tensors.items()}


class Saver:
    """An observer of the training; every process of a run has one, and they write together."""

    def __init__(self, built: Built, folder: RunFolder, state: State) -> None:
        self.folder, run = folder, built.run
        stretch = max(run.budget.images // TENTHS, run.budget.batch)
        self.times = SavingTimes(built.ranks, state.images, stretch, built.system.save_every)
        # A group of its own: what the thread sends must not get between the training's messages.
        patience = timedelta(seconds=built.ranks.timeout)
        self.group = (
            dist.new_group(backend="gloo", timeout=patience) if built.ranks.size > 1 else None
        )
        self.thread: threading.Thread | None = None
        self.failure: BaseException | None = None
        # what must be on disk when a checkpoint is
        self.before_saving: Callable[[], None] = lambda: None

    def __call__(self, look: StepReport) -> None:
        writing = self.thread is not None and self.thread.is_alive()
        # many must learn of it together: when they save again
        if not writing and look.built.ranks.size == 1:
            self.wait()
        if look.state.images < look.built.run.budget.images and self.times.due(
            look.state.images, writing
        ):
            self.begin(look.built, look.state)

    def begin(self, built: Built, state: State) -> None:
        """Copy the state and let a thread write it; one that is still being written is waited
        for."""
        begun = time.perf_counter()
        self.wait()
        live = self._checkpoint(built, state)
        copies = live._replace(
            parts={part: copied(tensors) for part, tensors in live.parts.items()}
        )
        self.before_saving()
        write = partial(checkpoint.save, self.folder.checkpoints, copies, built.ranks, self.group)
        thread = threading.Thread(target=self._kept, args=(write, built.system.device), daemon=True)
        thread.start()  # where memory is short it cannot: then there is none to wait for
        self.thread = thread
        self.times.saved(time.perf_counter() - begun)

    def keep(self, built: Built, state: State) -> None:
        """Save now, and come back when it is on the disk."""
        begun = time.perf_counter()
        self.wait()
        live = self._checkpoint(built, state)
        self.before_saving()
        checkpoint.save(self.folder.checkpoints, live, built.ranks, self.group)
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
        """The training has failed: what is being written is waited for, but not for ever (another
        process may be gone)."""
        if self.thread is not None:
            self.thread.join(PATIENCE)

    def _kept(self, write: Callable[[], None], device: str) -> None:
        try:
            write()
        except BaseException as error:
            self.failure = error
        if device == "cpu":  # it took a share of what the training computes with
            self.times.written(time.thread_time())

    def _checkpoint(self, built: Built, state: State) -> Checkpoint:
        """What this process writes, as it is in memory."""
        parts, rows = checkpoint.own_rows(live_parts(built), built.ranks)
        return Checkpoint(parts, self.folder.path.name, state, built.system, rows)


# --------------------------------------------------------------------------------------------------
# Going on: the newest good checkpoint is put into a run that was built anew.


def resume(built: Built, folder: RunFolder, say: Callable[[str], None]) -> State:
    """Put the newest good checkpoint into the built run; a new run begins at zero."""

    def require(found: VerifiedCheckpoint) -> None:
        checkpoint.require_same(found, live_parts(built))

    saved = checkpoint.newest(
        folder.checkpoints, say, built.run.budget.batch, folder.path.name, built.ranks, require
    )
    if saved is None:
        return State()
    if differences := built.system.differences(saved.system):
        say(
            "resuming under another system, so results may differ in the last bits: "
            + "; ".join(differences)
        )
    parts = live_parts(built)
    checkpoint.load_into(saved, parts, built.ranks)
    built.average.load(parts["average"])
    say(f"resumed at {saved.state.images:,} images")
    return saved.state
