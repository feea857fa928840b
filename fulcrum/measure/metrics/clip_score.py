"""The CLIP score: how well each picture fits its own caption, and the mean of it."""

import math
from typing import Any

from scipy.special import stdtrit

from fulcrum.measure.features.gathered import Rows
from fulcrum.measure.metrics.base import Distance, Interval


class ClipScore(Distance):
    """Needs captions and no reference; one score per picture, gathered as a feature of width one."""

    name = "clip_score"
    label = "CLIP score"
    better = "higher"
    explain = "Mean of 100 max(cos, 0) between the CLIP embeddings of a picture and of its caption."
    estimator = "mean of 100 max(cos, 0) over pictures"
    interval = "95 %, Student over pictures"

    def compute(self, pictures: Rows, reference: Any = None) -> Interval:
        scores = pictures.rows[:, 0].double()
        n, value = len(scores), float(scores.mean())
        if n < 2:
            raise ValueError(f"a CLIP score with its interval needs at least 2 pictures, found {n}")
        reach = float(stdtrit(n - 1, 0.975)) * float(scores.std()) / math.sqrt(n)
        return value, value - reach, value + reach
