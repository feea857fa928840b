"""At the end of a run: is its loss lower than at its beginning, by more than chance?

A denoiser begins by predicting nothing, whatever it is shown: the first losses are those of that prediction.
"""

import math
from collections.abc import Sequence
from statistics import fmean, variance

FIRST = 0.02  # share of the steps, of which the learning rate is hardly warm
LAST = 0.1
FEWEST = 10  # steps on either side
ERRORS = 3.0  # standard errors between the means that are more than chance


def nothing_learned(losses: Sequence[float]) -> str:
    """What of the losses of all steps says that nothing was learned, in a sentence; empty if something was, or if there are
    too few to tell."""
    count = len(losses)
    if count < 5 * FEWEST:
        return ""
    first, last = losses[: max(FEWEST, int(FIRST * count))], losses[-max(FEWEST, int(LAST * count)) :]
    first, last = ([loss for loss in part if math.isfinite(loss)] for part in (first, last))
    if min(len(first), len(last)) < 2:
        return ""
    error = math.sqrt(variance(first) / len(first) + variance(last) / len(last))
    if fmean(first) - fmean(last) > ERRORS * error:
        return ""
    return (
        f"the last losses, {fmean(last):.4f} on average, are not below the first, {fmean(first):.4f}, by more than chance "
        f"({ERRORS:g} standard errors of {error:.2g}): nothing was learned that the loss would show"
    )
