"""Whether a step counts: it is finite, and its loss within a limit. A bad step never reaches the weights, and is told of.

On a CPU the numbers are at hand, and the update of a bad step is not made. Elsewhere reading them would keep the device
waiting for its host, so the flag stays there as a part of the update, which then changes nothing, and the host reads the
numbers when it has asked for the next gradients (docs/decisions/0060).
"""

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fulcrum.dist.machine.device import ReadLater
from fulcrum.dist.reduce import all_finite
from fulcrum.loss.term import Losses
from fulcrum.spec.errors import TrainingFailed
from fulcrum.train.build import Built
from fulcrum.train.state import State


class StepNumbers(NamedTuple):
    """What a step's tensors held."""

    total: float
    norm: float  # of the gradient, before clipping
    parts: dict[str, float]

    @property
    def finite(self) -> bool:
        return math.isfinite(self.total) and math.isfinite(self.norm)


class StepCheck:
    """Of the step that began at `before`; `most` is the largest loss that counts, and a larger one is left out without an
    error. It is late where its numbers are on another device."""

    def __init__(self, built: Built, before: State, losses: Losses, norm: Tensor, most: float = math.inf) -> None:
        self.built, self.before, self.names, self.most = built, before, tuple(losses.parts), most
        self.late = not norm.is_cpu
        self.after, self.settled = before, not self.late  # what the host takes for granted, and whether it knows
        self.flag: dict[str, Tensor] = {}  # for the update, which must do nothing where it is false
        if self.late:
            self.flag["counts"] = torch.isfinite(losses.total) & torch.isfinite(norm)
            if most < math.inf:
                self.flag["counts"] &= losses.total <= most
        self.sent = ReadLater(torch.stack([one.double() for one in (losses.total, norm, *losses.parts.values())]))
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
        """Where the run stands after this step, for certain; raises if the step is bad and the run stops at such.

        All processes must have come here once before one of them asks alone: of a bad step they look at the weights."""
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
            "the weights are still good and the last checkpoint stands; lower optim.lr, or leave such steps out "
            "with --set optim.not_finite=skip",
        )
