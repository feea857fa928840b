"""The training loop: verbs from top to bottom. Observers look and never change anything."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property, reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from fulcrum.networks.rows import Batch
from fulcrum.spec.errors import BadInput, TrainingFailed
from fulcrum.spec.phrase import described, home
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases
from fulcrum.training.build import Built
from fulcrum.training.checkpoint import State
from fulcrum.training.dist.collectives import all_finite, average_gradients, clip, means, total
from fulcrum.training.dist.machine import ReadLater
from fulcrum.training.dist.shard import held_gathered, sum_gradients
from fulcrum.training.flow.noise import Draw
from fulcrum.training.loss.terms import Losses
from fulcrum.training.optim.optimizers import keep_gradients

# --------------------------------------------------------------------------------------------------
# What of a step's time is training, and what is encoding and compiling, which happen inside the
# first step of a phase.


class Pace:
    """Of one session. A first step is taken for as long as the one after it: what it took beyond
    that was preparation."""

    def __init__(self, run: RunSpec) -> None:
        self.ends, self.images = [phase.end for phase in phases(run)], run.budget.images
        self.batch, self.phase, self.first = run.budget.batch, -1, 0.0

    def split(self, position: int, seconds: float) -> tuple[float, float]:
        """Seconds of training and of preparation to add for the step that began at `position`
        images.

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


# --------------------------------------------------------------------------------------------------
# Which term of the loss made a backward pass fail: each is tried alone, so that its own file is
# named and not torch.


_IN_PLACE = "modified by an inplace operation"  # what torch says


def require_no_edit(
    error: RuntimeError, built: Built, batch: Batch, draw: Draw, images: int
) -> None:
    """BadInput with the name and the file of the term that wrote over a tensor which the gradient
    needs; of any other error nothing is said."""
    if _IN_PLACE not in str(error):
        return
    weights = built.weights(images)
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
        built.step(batch, draw, weights).total.backward()  # type: ignore[no-untyped-call]  # of torch
    except RuntimeError as error:
        return _IN_PLACE in str(error)
    return False


# --------------------------------------------------------------------------------------------------
# Whether a step counts: it is finite, and its loss within a limit. A bad step never reaches the
# weights, and is told of.
#
# On a CPU the numbers are at hand, and the update of a bad step is not made. Elsewhere reading them
# would keep the device waiting for its host, so the flag stays there as a part of the update, which
# then changes nothing, and the host reads the numbers when it has asked for the next gradients
# (docs/decisions/0060).


class StepNumbers(NamedTuple):
    """What a step's tensors held."""

    total: float
    norm: float  # of the gradient, before clipping
    parts: dict[str, float]

    @property
    def finite(self) -> bool:
        return math.isfinite(self.total) and math.isfinite(self.norm)


class StepCheck:
    """Of the step that began at `before`; `most` is the largest loss that counts, and a larger one
    is left out without an error. It is late where its numbers are on another device."""

    def __init__(
        self, built: Built, before: State, losses: Losses, norm: Tensor, most: float = math.inf
    ) -> None:
        self.built, self.before, self.names, self.most = built, before, tuple(losses.parts), most
        self.late = not norm.is_cpu
        # what the host takes for granted, and whether it knows
        self.after, self.settled = before, not self.late
        self.flag: dict[str, Tensor] = {}  # for the update, which must do nothing where it is false
        if self.late:
            self.flag["counts"] = torch.isfinite(losses.total) & torch.isfinite(norm)
            if most < math.inf:
                self.flag["counts"] &= losses.total <= most
        self.sent = ReadLater(
            torch.stack([one.double() for one in (losses.total, norm, *losses.parts.values())])
        )
        self.refused = not self.late and not self._counts()

    @cached_property
    def numbers(self) -> StepNumbers:
        total, norm, *parts = self.sent.read()
        return StepNumbers(total, norm, dict(zip(self.names, parts, strict=True)))

    @property
    def left_out(self) -> bool:
        """Is it finite, and its loss larger than what counts?"""
        return self.numbers.finite and self.numbers.total > self.most

    def state(self) -> State:
        """Where the run stands after this step, for certain; raises if the step is bad and the run
        stops at such.

        All processes must have come here once before one of them asks alone: of a bad step they
        look at the weights."""
        if not self.settled:
            if not self._counts():
                self.after = self.after._replace(skipped=self.after.skipped + 1)
                self.built.average.take_back()
            self.settled = True
        return self.after

    def _counts(self) -> bool:
        numbers, images = self.numbers, self.before.images
        if numbers.finite:
            return not self.left_out
        if not all_finite(self.built.step.parameters(), self.built.ranks):
            raise TrainingFailed(
                f"the weights are not finite at {images} images: an earlier update was too large",
                "lower optim.lr, remove the run with 'fulcrum runs rm' and train it again",
            )
        if self.built.run.optim.not_finite == "skip":
            return False
        parts = ", ".join(f"{name} {value:g}" for name, value in numbers.parts.items())
        raise TrainingFailed(
            f"the step at {images} images is not finite: {parts}, gradient norm {numbers.norm:g}",
            "the weights are still good and the last checkpoint stands; lower optim.lr, or leave"
            " such steps out with --set optim.not_finite=skip",
        )


# --------------------------------------------------------------------------------------------------
# The loop: verbs, top to bottom. It knows no lever, no file and no screen; observers look, they
# never touch.


NUMERIC = (FloatingPointError, OverflowError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]  # about numbers


class Look(NamedTuple):
    """What observers see of a step. Its tensors may be of another device: `numbers` are what they
    held."""

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
    """Train from `state` to the end of the budget, or until `stop` says so; `most` is the largest
    loss of a step that counts, by its position."""
    run, step, optimizer, pace = built.run, built.step, built.optimizer, Pace(built.run)
    apart, check = step.clipped_apart(), None
    with closing(built.feed.batches(all_stretches(built, state.images))) as batches:
        while state.images < run.budget.images and not stop():
            begun = time.perf_counter()
            losses = gradients(built, state, batches)
            keep_gradients(step.parameters(), built.gradient_dtype)
            norm = clipped(apart, run.optim.clip)
            # of the step before: the device has done it by now
            state = state if check is None else check.state()
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
    """The parts in which this process takes its rows of the batch at `images`: the first of each,
    and how many."""
    mine = built.ranks.rows(built.run.budget.batch)
    rows = built.system.microbatch or mine.stop - mine.start
    return [
        (images + first, min(rows, mine.stop - first))
        for first in range(mine.start, mine.stop, rows)
    ]


def all_stretches(built: Built, images: int) -> Iterator[tuple[int, int]]:
    """Those of every step from `images` on, for a feed that reads ahead."""
    steps = range(images, built.run.budget.images, built.run.budget.batch)
    return (stretch for at in steps for stretch in stretches(built, at))


def gradients(
    built: Built, state: State, batches: Iterator[tuple[Batch, Draw]] | None = None
) -> Losses:
    """Forward and backward over this process's rows in one or more parts; parts and processes add
    up to the same mean. `batches` gives those of the parts next; None: the feed makes them."""
    parts = stretches(built, state.images)
    batches = batches or (built.feed.at(*part) for part in parts)
    count = sum(rows for _, rows in parts)
    summed: Losses | None = None
    built.step.refresh()
    with held_gathered(built.step, built.ranks):
        for stretch in parts:
            batch, draw = next(batches)
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
    """Clip the gradients of the denoiser and of a trained codec, each to `most`; the norm of all of
    them before."""
    parts = ([weight for weight in part if weight.grad is not None] for part in apart)
    return reduce(torch.hypot, [clip(part, most) for part in parts if part])


def _losses(built: Built, batch: Batch, draw: Draw, state: State) -> Losses:
    """The step; a part of it that refuses, or whose numbers cannot be computed with, ends this
    training and no other."""
    try:
        losses: Losses = built.step(batch, draw, built.weights(state.images))
        return losses
    except BadInput as error:
        if state.images == 0:  # nothing was trained: what was asked for is wrong
            raise
        raise TrainingFailed(
            f"the step at {state.images} images was refused: {error.message}", error.hint
        ) from error
    except NUMERIC as error:
        hint = "lower optim.lr, or correct the part that failed"
        raise TrainingFailed(
            f"the step at {state.images} images failed: {described(error)}", hint
        ) from error


def _agreed(losses: Losses, built: Built) -> Losses:
    """The losses of the whole batch, the same on every process."""
    moments = [] if losses.moments is None else [losses.moments]
    whole, *rest = means([losses.total, *losses.parts.values(), *moments], built.ranks)
    parts = dict(zip(losses.parts, rest, strict=False))
    return Losses(whole, parts, rest[-1] if moments else None)
