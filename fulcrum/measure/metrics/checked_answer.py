"""A metric's answer, checked before anyone believes it: three finite numbers in order, and features left as they were."""

import math
from typing import Any

from torch import Tensor

from fulcrum.measure.metrics.base import Distance
from fulcrum.measure.metrics.interval import Interval, within_shares
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import failed, home, place

GUIDE = "see docs/write-a-metric.md"
FEATURES = "look at the features: constant or enormous ones have no distance"


class NoValue(BadInput):
    """The pictures are such that a metric of them has no value: constant, or with features that are not finite."""


def answered(metric: Distance, label: str, pictures: Any, reference: Any) -> Interval:
    """The metric of gathered pictures against a gathered reference; what a user's own metric does wrong is told as such."""
    own = home(metric)
    given = [getattr(gathered, "rows", None) for gathered in (pictures, reference)] if own else []
    shared = [rows for rows in given if isinstance(rows, Tensor)]
    before = [rows._version for rows in shared]
    try:
        value, low, high = (float(number) for number in metric.compute(pictures, reference))
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # a metric that ends the process would end it with success and no word
        if place(error):
            raise failed(error, f"{label} failed") from error
        if own:
            raise BadInput(
                f"{label}{own} gave no value with an interval: {type(error).__name__}: {error}",
                f"`value` returns a number, `compute` (value, low, high): {GUIDE}",
            ) from error
        if isinstance(error, ValueError):
            raise NoValue(f"{label} cannot be computed: {error}", FEATURES) from error
        raise
    if [rows._version for rows in shared] != before:
        raise BadInput(
            f"{label}{own} changes the features that it is given, which all metrics share",
            f"work on a copy, `pictures.clone()`: {GUIDE}",
        )
    if not all(math.isfinite(number) for number in (value, low, high)):
        raise NoValue(f"{label}{own} is not finite ({value}, interval {low} to {high})", FEATURES)
    if low > high:
        raise BadInput(f"{label}{own}: the interval is upside down, {low} to {high}", f"return (value, low, high): {GUIDE}")
    return within_shares(value, low, high) if metric.unit == "share" else (value, low, high)
