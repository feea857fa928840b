"""The loop: verbs, top to bottom. It knows no lever, no file and no screen; observers look, they never touch."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.dist.reduce import average_gradients, clip, means, total
from fulcrum.dist.shard import held_gathered, sum_gradients
from fulcrum.flow.draw import Draw
from fulcrum.loss.term import Losses
from fulcrum.networks.batch import Batch
from fulcrum.optim.storage import keep_gradients
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.phrase import described
from fulcrum.train.blamed_term import require_no_edit
from fulcrum.train.build import Built
from fulcrum.train.feed import Feed
from fulcrum.train.feed_ahead import FeedAhead, feeding
from fulcrum.train.state import State
from fulcrum.train.step_check import StepCheck, StepNumbers
from fulcrum.train.watched.step_clock import Pace

NUMERIC = (FloatingPointError, OverflowError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]  # about numbers


class Look(NamedTuple):
    """What observers see of a step. Its tensors may be of another device: `numbers` are what they held."""

    built: Built
    check: StepCheck
    losses: Losses
    norm: Tensor  # of the gradient, before clipping
    rate: float  # the learning rate's multiplier

    @property
    def images(self) -> int:
        """Seen so far; known at once."""
        return self.check.after.images

    @property
    def state(self) -> State:
        """Where the run stands, for certain: off the CPU this waits for the step."""
        return self.check.state()

    @property
    def numbers(self) -> StepNumbers:
        """What the losses and the norm held: off the CPU this waits for the step."""
        return self.check.numbers


Observer = Callable[[Look], None]


def unlimited(images: int) -> float:
    return math.inf


def train(
    built: Built,
    state: State,
    observers: Iterable[Observer],
    stop: Callable[[], bool],
    most: Callable[[int], float] = unlimited,
) -> State:
    """Train from `state` to the end of the budget, or until `stop` says so; `most` is the largest loss of a step that
    counts, by its position."""
    run, step, optimizer, pace = built.run, built.step, built.optimizer, Pace(built.run)
    apart, check = step.clipped_apart(), None
    with feeding(built.feed, all_stretches(built, state.images)) as feed:
        while state.images < run.budget.images and not stop():
            begun = time.perf_counter()
            losses = gradients(built, state, feed)
            keep_gradients(step.parameters(), built.gradient_dtype)
            norm = clipped(apart, run.optim.clip)
            state = state if check is None else check.state()  # of the step before: the device has done it by now
            check = StepCheck(built, state, losses, norm, most(state.images))
            rate = built.schedule(state.images, run.budget.batch)
            if not check.refused:
                optimizer.step(rate, watch=built.watches(state), at=state.images, **check.flag)
                if optimizer.stalled is not None:
                    optimizer.stalled = total(optimizer.stalled, built.ranks)
                step.settle(losses, **check.flag)
                built.average.update(step.backbone, **check.flag)
            optimizer.zero_grad()
            spent = pace.split(state.images, time.perf_counter() - begun)
            state = check.after = state.advance(run.budget.batch, *spent, skipped=check.refused)
            if state.images >= run.budget.images:
                state = check.state()  # there is no next step to know it by
            for look in observers:
                look(Look(built, check, losses, norm, rate))
    return state if check is None else check.state()


def after(steps: int) -> Callable[[], bool]:
    """A stop that lets `steps` steps happen."""
    left = [steps]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stop


def stretches(built: Built, images: int) -> list[tuple[int, int]]:
    """The parts in which this process takes its rows of the batch at `images`: the first of each, and how many."""
    mine = built.ranks.rows(built.run.budget.batch)
    rows = built.system.microbatch or mine.stop - mine.start
    return [(images + first, min(rows, mine.stop - first)) for first in range(mine.start, mine.stop, rows)]


def all_stretches(built: Built, images: int) -> Iterator[tuple[int, int]]:
    """Those of every step from `images` on, for a feed that keeps ahead."""
    steps = range(images, built.run.budget.images, built.run.budget.batch)
    return (stretch for at in steps for stretch in stretches(built, at))


def gradients(built: Built, state: State, feed: Feed | FeedAhead | None = None) -> Losses:
    """Forward and backward over this process's rows in one or more parts; parts and processes add up to the same mean."""
    parts, feed = stretches(built, state.images), feed or built.feed
    count = sum(rows for _, rows in parts)
    summed: Losses | None = None
    built.step.refresh()
    with held_gathered(built.step, built.ranks):
        for stretch in parts:
            batch, draw = feed.at(*stretch)
            sum_gradients(built.step, stretch == parts[-1])
            losses = _losses(built, batch, draw, state)
            share = len(batch.x0) / count
            try:
                (losses.total * share).backward()  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                require_no_edit(error, built, batch, draw, state.images)
                raise
            part = Losses(
                losses.total.detach() * share,
                {name: value * share for name, value in losses.parts.items()},
                None if losses.moments is None else losses.moments * share,
            )
            summed = part if summed is None else summed.plus(part)
    assert summed is not None
    average_gradients(built.step.parameters(), built.ranks)
    return _agreed(summed, built)


def clipped(apart: Iterable[Sequence[Parameter]], most: float) -> Tensor:
    """Clip the gradients of the denoiser and of a trained codec, each to `most`; the norm of all of them before."""
    parts = ([weight for weight in part if weight.grad is not None] for part in apart)
    return reduce(torch.hypot, [clip(part, most) for part in parts if part])


def _losses(built: Built, batch: Batch, draw: Draw, state: State) -> Losses:
    """The step; a part of it that refuses, or whose numbers cannot be computed with, ends this training and no other."""
    try:
        losses: Losses = built.step(batch, draw, built.weights(state.images))
        return losses
    except BadInput as error:
        if state.images == 0:  # nothing was trained: what was asked for is wrong
            raise
        raise TrainingFailed(f"the step at {state.images} images was refused: {error.message}", error.hint) from error
    except NUMERIC as error:
        hint = "lower optim.lr, or correct the part that failed"
        raise TrainingFailed(f"the step at {state.images} images failed: {described(error)}", hint) from error


def _agreed(losses: Losses, built: Built) -> Losses:
    """The losses of the whole batch, the same on every process."""
    moments = [] if losses.moments is None else [losses.moments]
    whole, *rest = means([losses.total, *losses.parts.values(), *moments], built.ranks)
    parts = dict(zip(losses.parts, rest, strict=False))
    return Losses(whole, parts, rest[-1] if moments else None)
