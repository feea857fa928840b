"""The training loop: verbs from top to bottom. Observers look and never change anything."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.networks.rows import Batch
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.phrase import described, home
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases
from fulcrum.training.build import WATCH_EVERY, Built
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.collectives import all_finite, average_gradients, clip, means, total
from fulcrum.training.dist.shard import held_gathered, sum_gradients
from fulcrum.training.flow.noise import Draw
from fulcrum.training.loss.terms import Losses
from fulcrum.training.optim.optimizers import keep_gradients

NUMERIC = (FloatingPointError, OverflowError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]


class StepReport(NamedTuple):
    """What observers see of a step: all numbers are on the host."""

    built: Built
    state: State  # after the step
    loss: float
    parts: dict[str, float]  # of the loss, by term
    norm: float  # of the gradient, before clipping
    rate: float  # the learning rate's multiplier
    #: every WATCH_EVERY steps: elements whose update rounded to nothing, and that were to move
    stalled: tuple[float, float] | None = None


Observer = Callable[[StepReport], None]


def train(
    built: Built, state: State, observers: Sequence[Observer], stop: Callable[[], bool]
) -> State:
    """Train from `state` to the end of the budget, or until `stop` says so."""
    run, step, optimizer = built.run, built.step, built.optimizer
    clock, clipped_apart = StepClock(run), step.clipped_apart()
    with closing(built.feed.batches(all_stretches(built, state.images))) as batches:
        while state.images < run.budget.images and not stop():
            begun = time.perf_counter()
            losses = gradients(built, state.images, batches)
            if built.gradient_dtype != torch.float32:
                keep_gradients(step.parameters(), built.gradient_dtype)
            clipped = clip_gradients(clipped_apart, run.optim.clip)
            loss, norm, *parts = read_numbers(losses, clipped)  # the host waits for the device here
            counts = math.isfinite(loss) and math.isfinite(norm)
            named = dict(zip(losses.parts, parts, strict=True))
            if not counts:
                refuse(built, state.images, named, norm)
            rate = built.schedule(state.images, run.budget.batch)
            stalled = None
            if counts:  # a step that is not finite never reaches the weights
                watch = (state.images // run.budget.batch) % WATCH_EVERY == 0
                optimizer.step(rate, watch=watch, at=state.images)
                if optimizer.stalled is not None:
                    nothing, moving = total(optimizer.stalled, built.ranks).cpu().tolist()
                    stalled = (nothing, moving)
                if losses.moments is not None:
                    step.settle(losses.moments)
                built.average.update(step.backbone)
            optimizer.zero_grad()
            spent = clock.split(state.images, time.perf_counter() - begun)
            state = state.advance(run.budget.batch, *spent, skipped=not counts)
            report = StepReport(built, state, loss, named, norm, rate, stalled)
            for observe in observers:
                observe(report)
    return state


def after(steps: int) -> Callable[[], bool]:
    """A stop that lets `steps` steps happen."""
    left = [steps]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stop


# --------------------------------------------------------------------------------------------------
# Gradients of one step: forward and backward over the rows of this process, in one part or several.


def stretches(built: Built, images: int) -> list[tuple[int, int]]:
    """Return the parts in which this process takes its rows of the batch at `images`: the first row
    of each, and how many."""
    mine = built.ranks.rows(built.run.budget.batch)
    rows = built.system.microbatch or mine.stop - mine.start
    return [
        (images + first, min(rows, mine.stop - first))
        for first in range(mine.start, mine.stop, rows)
    ]


def all_stretches(built: Built, images: int) -> Iterator[tuple[int, int]]:
    """Yield those of every step from `images` on, for a feed that reads ahead."""
    for at in range(images, built.run.budget.images, built.run.budget.batch):
        yield from stretches(built, at)


def gradients(
    built: Built, images: int, batches: Iterator[tuple[Batch, Draw]] | None = None
) -> Losses:
    """Run forward and backward on the batch at `images`. Parts and processes add up to the mean
    over the whole batch. `batches` yields those of the parts; None: the feed makes them."""
    parts = stretches(built, images)
    batches = batches or (built.feed.at(*part) for part in parts)
    count = sum(rows for _, rows in parts)
    many = built.ranks.size > 1
    weights = built.feed.weights(images)
    summed: Losses | None = None
    if built.step.stem is not None:
        built.step.refresh()
    with held_gathered(built.step, built.ranks) if many else nullcontext():
        for stretch in parts:
            batch, draw = next(batches)
            if many:
                sum_gradients(built.step, stretch == parts[-1])
            losses = forward(built, batch, draw, weights, images)
            share = len(batch.x0) / count
            try:
                (losses.total * share).backward()  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                require_no_edit(error, built, batch, draw, weights)
                raise
            part = losses.detached(share)
            summed = part if summed is None else summed.plus(part)
    assert summed is not None
    if many:
        average_gradients(built.step.parameters(), built.ranks)
        summed = over_ranks(summed, built)
    return summed


def forward(
    built: Built, batch: Batch, draw: Draw, weights: dict[str, float], images: int
) -> Losses:
    """Run the step. An error of a user's own part ends this training, with a hint."""
    try:
        losses: Losses = built.step(batch, draw, weights)
        return losses
    except BadInput as error:
        if images == 0:  # nothing was trained: what was asked for is wrong
            raise
        raise TrainingFailed(
            f"the step at {images} images was refused: {error.message}", error.hint
        ) from error
    except NUMERIC as error:
        hint = "lower optim.lr, or correct the part that failed"
        raise TrainingFailed(
            f"the step at {images} images failed: {described(error)}", hint
        ) from error


def over_ranks(losses: Losses, built: Built) -> Losses:
    """Return the losses of the whole batch, the same on every process."""
    moments = [] if losses.moments is None else [losses.moments]
    whole, *rest = means([losses.total, *losses.parts.values(), *moments], built.ranks)
    parts = dict(zip(losses.parts, rest, strict=False))
    return Losses(whole, parts, rest[-1] if moments else None)


def clip_gradients(apart: Iterable[Sequence[Parameter]], most: float) -> Tensor:
    """Clip the gradients of the denoiser and of a trained codec, each to `most`. Return the norm of
    all of them before."""
    parts = ([weight for weight in part if weight.grad is not None] for part in apart)
    return reduce(torch.hypot, [clip(part, most) for part in parts if part])


_IN_PLACE = "modified by an inplace operation"  # what torch says


def require_no_edit(
    error: RuntimeError, built: Built, batch: Batch, draw: Draw, weights: dict[str, float]
) -> None:
    """Name the term that wrote over a tensor which the gradient needs: each term is tried alone.
    Other errors pass."""
    if _IN_PLACE not in str(error):
        return
    alone = [name for name in weights if _fails({name: weights[name]}, built, batch, draw)]
    names = alone or list(weights)  # none alone: one wrote over what another reads
    homes = {term.name: home(term) for term in built.run.terms}
    own = [name for name in names if homes.get(name)] or names
    raise BadInput(
        f"the term '{own[0]}'{homes.get(own[0], '')} changes a tensor in place that the gradient"
        " still needs",
        "write x = x + 1, not x += 1 or x.add_(1): what a term is given belongs to all of them",
    ) from error


def _fails(weights: dict[str, float], built: Built, batch: Batch, draw: Draw) -> bool:
    try:
        built.step(batch, draw, weights).total.backward()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return _IN_PLACE in str(error)
    return False


# --------------------------------------------------------------------------------------------------
# The numbers of a step: read once, before the update.


def read_numbers(losses: Losses, norm: Tensor) -> list[float]:
    """Return the loss, the gradient norm and the parts of the loss. This is the one read of a step
    that waits for the device."""
    numbers = [losses.total, norm, *losses.parts.values()]
    read: list[float] = torch.stack([number.double() for number in numbers]).cpu().tolist()
    return read


def refuse(built: Built, images: int, parts: dict[str, float], norm: float) -> None:
    """Raise for a step that is not finite, unless the run leaves such steps out."""
    if not all_finite(built.step.parameters(), built.ranks):
        raise TrainingFailed(
            f"the weights are not finite at {images} images: an earlier update was too large",
            "lower optim.lr, remove the run with 'fulcrum runs rm' and train it again",
        )
    if built.run.optim.not_finite == "skip":
        return
    listed = ", ".join(f"{name} {value:g}" for name, value in parts.items())
    raise TrainingFailed(
        f"the step at {images} images is not finite: {listed}, gradient norm {norm:g}",
        "the weights are still good and the last checkpoint stands; lower optim.lr, or leave such"
        " steps out with --set optim.not_finite=skip",
    )


class StepClock:
    """Divide the time of a session's steps into training and preparation (encoding, compiling).

    The first step of a phase prepares. It is counted as training for as long as the step after it
    takes; the rest of it was preparation.
    """

    def __init__(self, run: RunSpec) -> None:
        self.ends, self.images = [phase.end for phase in phases(run)], run.budget.images
        self.batch, self.phase, self.first = run.budget.batch, -1, 0.0

    def split(self, position: int, seconds: float) -> tuple[float, float]:
        """Return the seconds of training and of preparation to add for the step that began at
        `position` images.

        A first step counts as preparation until the next one tells its share, so that neither sum
        needs guessing and training time never runs backwards. The last step of a budget has no next
        one: it is training.
        """
        phase = sum(end <= position for end in self.ends)
        begins, self.phase = phase != self.phase, phase
        if begins and position + self.batch < self.images:
            self.first = seconds
            return 0.0, seconds
        share, self.first = min(self.first, seconds), 0.0
        return seconds + share, -share
