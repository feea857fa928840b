"""What every metric over features is: its facts, what it gathers, what it computes. Your own metrics derive from it too.

n generated rows, m reference rows, d feature width
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from fulcrum.measure.card import MEASURE_VERSION, Better, Metric
from fulcrum.measure.features.gathered import Gathering, Rows
from fulcrum.measure.metrics.interval import GROUPS, JACKKNIFE, jackknife
from fulcrum.measure.probe_expectations import Sees

Interval = tuple[float, float, float]  # value, low, high
MINIMUM = 2 * GROUPS  # pictures: a jackknife group of one row would leave no pair inside it


class Distance(ABC):
    """Compares the features of pictures with those of a reference."""

    name: ClassVar[str]
    label: ClassVar[str]
    unit: ClassVar[str] = ""
    better: ClassVar[Better] = "lower"
    explain: ClassVar[str] = ""
    estimator: ClassVar[str]  # what is computed, in words: part of the card
    interval: ClassVar[str] = JACKKNIFE
    minimum: ClassVar[int] = MINIMUM  # pictures, on either side
    sees: ClassVar[Sees] = {}  # what it declares about each fault of expect.py; what is not named is not promised
    code: ClassVar[str] = MEASURE_VERSION  # of the computation; a user's file adds its own hash
    gathers: ClassVar[type] = Rows  # metrics that gather the same share one gathering

    @property
    def facts(self) -> Metric:
        return Metric(self.name, self.label, self.unit, self.better, self.explain, self.sees)

    def gather(self, width: int, reference: bool) -> Any:
        """An empty gathering for features of this width."""
        return self.gathers(width)

    @abstractmethod
    def compute(self, pictures: Any, reference: Any) -> Interval:
        """Value, low and high of the gathered pictures against the gathered reference."""


class RowDistance(Distance):
    """A metric that is a function of two sets of rows; its interval comes from leaving out groups of pictures."""

    @abstractmethod
    def value(self, pictures: Tensor, reference: Tensor) -> float:
        """The metric of rows (n, d) against rows (m, d)."""

    def compute(self, pictures: Rows, reference: Rows) -> Interval:
        rows, around = pictures.rows, reference.rows
        group = torch.arange(len(rows)) % GROUPS
        whole = float(self.value(rows, around))
        left = [float(self.value(rows[group != leave], around)) for leave in range(GROUPS)]
        return (whole, *jackknife(whole, left))


def enough(metric: Distance, pictures: Gathering, reference: Gathering) -> None:
    """Refuses a number without the pictures to carry it."""
    for what, found in (("pictures", pictures.n), ("reference pictures", reference.n)):
        if found < metric.minimum:
            raise ValueError(f"{metric.name} needs at least {metric.minimum} {what}, found {found}")
