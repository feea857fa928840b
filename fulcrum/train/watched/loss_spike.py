"""Sentinel: a loss far above those of the steps before it."""

import math
from collections.abc import Hashable

import numpy as np

WARM = 32  # steps before it judges: the first losses fall fast
HORIZON = 50  # steps that the mean remembers
FAR = 10.0  # mean deviations above the mean, and at least as much again as the mean itself
SETTLED = 10  # losses in a row that are far above: a new level, and no spike


class LossSpike:
    """Mean and mean deviation of the losses that were no spikes. Equal losses give equal answers: a resumed run, which is
    told its former losses, judges as an unbroken one does."""

    def __init__(self) -> None:
        self.terms: Hashable = None
        self.restart()

    def restart(self) -> None:
        self.mean = self.deviation = 0.0
        self.count = self.series = 0

    @property
    def limit(self) -> float:
        """The largest loss that is no spike, as a device's float32 holds it."""
        if self.count < WARM:
            return math.inf
        return float(np.float32(self.mean + max(abs(self.mean), FAR * self.deviation)))

    def limit_for(self, terms: Hashable) -> float:
        """Of a loss that is made of these terms: with others than before the mean begins anew."""
        return self.limit if terms == self.terms else math.inf

    def take(self, loss: float, terms: Hashable, limit: float | None = None) -> bool:
        """Is this the first step of a spike? `limit`: the one that the step was held to, where it was held to one."""
        if terms != self.terms:
            self.terms = terms
            self.restart()
        if not math.isfinite(loss):  # not ours: fulcrum/train/step_check.py
            return False
        if loss > (self.limit if limit is None else limit):
            self.series += 1
            if self.series == SETTLED:
                self.restart()
            return self.series == 1
        self.count, self.series = self.count + 1, 0
        share = 1 / min(self.count, HORIZON)
        self.deviation += share * (abs(loss - self.mean) - self.deviation) if self.count > 1 else 0.0
        self.mean += share * (loss - self.mean)
        return False
