"""The loop: verbs, top to bottom. It knows no lever, no file and no screen; observers look, they never touch."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.dist.reduce import all_finite, average_gradients, clip, means, total
from fulcrum.dist.shard import sum_gradients
from fulcrum.encode.batch import Batch
from fulcrum.flow.draw import Draw
from fulcrum.loss.term import Losses
from fulcrum.optim.storage import keep_gradients
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.user_errors import described
from fulcrum.train.blamed_term import require_no_edit
from fulcrum.train.build import Built
from fulcrum.train.state import State
from fulcrum.train.watched.step_clock import Pace

NUMERIC = (FloatingPointError, OverflowError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]  # about numbers


class Look(NamedTuple):
    """What observers see of a step."""

    built: Built
    state: State
    losses: Losses
    norm: Tensor  # of the gradient, before clipping
    rate: float  # the learning rate's multiplier


Observer = Callable[[Look], None]


def train(built: Built, state: State, observers: Iterable[Observer], stop: Callable[[], bool]) -> State:
    """Train from `state` to the end of the budget, or until `stop` says so."""
    run, step, optimizer, pace = built.run, built.step, built.optimizer, Pace(built.run)
    apart = step.clipped_apart()
    while state.images < run.budget.images and not stop():
        begun = time.perf_counter()
        losses = gradients(built, state)
        keep_gradients(step.parameters(), built.gradient_dtype)
        norm = clipped(apart, run.optim.clip)
        finite = _finite(built, losses, norm, state)
        rate = built.schedule(state.images, run.budget.batch)
        if finite:
            optimizer.step(rate, watch=built.watches(state), at=state.images)
            if optimizer.stalled is not None:
                optimizer.stalled = total(optimizer.stalled, built.ranks)
            step.settle(losses)
            built.average.update(step.backbone)
        optimizer.zero_grad()
        state = state.advance(run.budget.batch, *pace.split(state.images, time.perf_counter() - begun), skipped=not finite)
        for look in observers:
            look(Look(built, state, losses, norm, rate))
    return state


def after(steps: int) -> Callable[[], bool]:
    """A stop that lets `steps` steps happen."""
    left = [steps]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stop


def gradients(built: Built, state: State) -> Losses:
    """Forward and backward over this process's rows in one or more parts; parts and processes add up to the same mean."""
    mine = built.ranks.rows(built.run.budget.batch)
    count = mine.stop - mine.start
    rows = built.system.microbatch or count
    summed: Losses | None = None
    built.step.refresh()
    for first in range(mine.start, mine.stop, rows):
        batch, draw = built.feed.at(state.images + first, min(rows, mine.stop - first))
        sum_gradients(built.step, first + rows >= mine.stop)
        losses = _losses(built, batch, draw, state)
        share = len(batch.x0) / count
        try:
            (losses.total * share).backward()
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


def _finite(built: Built, losses: Losses, norm: Tensor, state: State) -> bool:
    """Before the optimizer, not after: a bad step must not reach the weights."""
    if bool(torch.isfinite(losses.total)) and bool(torch.isfinite(norm)):
        return True
    if not all_finite(built.step.parameters(), built.ranks):
        raise TrainingFailed(
            f"the weights are not finite at {state.images} images: an earlier update was too large",
            "lower optim.lr, remove the run with 'fulcrum runs rm' and train it again",
        )
    if built.run.optim.not_finite == "skip":
        return False
    parts = ", ".join(f"{name} {float(value):g}" for name, value in losses.parts.items())
    raise TrainingFailed(
        f"the step at {state.images} images is not finite: {parts}, gradient norm {float(norm):g}",
        "the weights are still good and the last checkpoint stands; lower optim.lr, or leave such steps out "
        "with --set optim.not_finite=skip",
    )
