"""What every metric over features is: its facts, what it gathers, what it computes. Your own metrics derive from it too.

n generated rows, m reference rows, d feature width
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from fulcrum.measure.card import MEASURE_VERSION, Better
from fulcrum.measure.features.gathered import Rows, Scores
from fulcrum.measure.metrics.interval import GROUPS, JACKKNIFE, Interval, jackknife, student
from fulcrum.measure.probe_expectations import Sees

MINIMUM = 2 * GROUPS  # pictures: a jackknife group of one row would leave no pair inside it
# Features of this width and more are compared with less effort: products in fp32, eight groups for a Fréchet distance. In
# fp64 and with 32 groups Inception's 2,048 would take minutes and a gigabyte; the embedded network's 64 take none.
WIDE = 512


class Distance(ABC):
    """Compares the features of pictures with those of a reference."""

    name: str
    label: str
    unit: str = ""
    better: Better = "lower"
    explain: str = ""
    estimator: str  # what is computed, in words: part of the card
    interval: str = JACKKNIFE
    minimum: int = MINIMUM  # pictures, on either side
    sees: Sees = {}  # what it declares about each fault of probe_expectations.py; what is not named is not promised
    code: str = MEASURE_VERSION  # of the computation; a user's file adds its own hash
    referenced: bool = True  # whether the value depends on reference pictures
    gathers: type = Rows  # metrics that gather the same share one gathering

    def gather(self, width: int, reference: bool) -> Any:
        """An empty gathering for features of this width."""
        return self.gathers(width)

    def described(self, width: int) -> tuple[str, str]:
        """The estimator and the interval in words, as a card of features of this width has them."""
        return self.estimator, self.interval

    def caution(self, pictures: Any) -> str | None:
        """What a reader should know before trusting the number of these gathered pictures; for the card."""
        return None

    @abstractmethod
    def compute(self, pictures: Any, reference: Any) -> Interval:
        """Value, low and high of the gathered pictures against the gathered reference."""


class MeanScore(Distance):
    """The mean of one score per picture."""

    interval = "95 %, Student over pictures"
    gathers = Scores
    minimum = 2

    def gather(self, width: int, reference: bool) -> Scores:
        return Scores(1)

    def compute(self, pictures: Scores, reference: Any = None) -> Interval:
        scores = pictures.rows[:, 0].double()
        return student(float(scores.mean()), float(scores.std()), len(scores))


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
