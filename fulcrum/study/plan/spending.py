"""Sequential seeds: at how many pairs a plan looks at its arms, and how much of alpha may be spent by each look.

    seeds = {first = 8, step = 4, most = 16}      looks at 8, 12 and 16 pairs

Who looks several times errs more often: six, then eight, then ten pairs at 0.05 each err in 8 % of studies, not in 5 %. So
alpha is spent over the looks, by a rule that is fixed before the first cell: by a share f of the pairs, at most
alpha ln(1 + (e - 1) f) in all (Lan and DeMets 1983, the spending that resembles Pocock's bounds).
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Annotated

import numpy as np
from pydantic import Field

from fulcrum.spec.record import Count, Record

MOST = 64  # pairs: beyond, one more seed tells next to nothing


class SeedRounds(Record):
    """Seeds that are added only where an arm is undecided."""

    first: Count  # pairs of every arm at the first look
    step: Count  # pairs that each further look adds
    most: Annotated[int, Field(ge=1, le=MOST)]  # pairs at which the last look decides

    @property
    def looks(self) -> tuple[int, ...]:
        """The last step takes what is left, which may be less than a step."""
        return (*range(self.first, self.most, self.step), self.most)


def spending(looks: Sequence[int], alpha: float) -> tuple[float, ...]:
    """What may be spent by each look, all earlier ones included: 0.031, 0.041, 0.050 at 8, 12 and 16 pairs."""
    return tuple(alpha * math.log1p((math.e - 1.0) * pairs / looks[-1]) for pairs in looks)


def require_looks(looks: Sequence[int], alpha: float) -> None:
    """Refuse (ValueError) looks that do not rise, or whose first could decide nothing."""
    if len(looks) < 2:
        raise ValueError(f"looks at {_listed(looks)} pairs are no sequence: name the seeds as a list, seeds = [0, 1, ...]")
    if list(looks) != sorted(set(looks)) or looks[0] < 2:
        raise ValueError(f"expected looks at rising numbers of pairs, two or more, found {_listed(looks)}")
    most, level = looks[-1], spending(looks, alpha)[0]
    if 2.0 / 2 ** looks[0] > level:
        enough = [pairs for pairs in range(looks[0], most) if 2.0 / 2**pairs <= spending((pairs, most), alpha)[0]]
        raise ValueError(
            f"the first look, at {looks[0]} of {most} pairs, could decide nothing: its smallest possible p is "
            f"{2.0 / 2 ** looks[0]:.3g}, and it may spend {level:.3g}; "
            + (f"look first at {enough[0]} pairs or more" if enough else f"name the {most} seeds as a list")
        )


def error_by_hand(looks: Sequence[int], alpha: float) -> float:
    """How often an arm that does nothing gets a verdict when it is tested at alpha with so many pairs, time and again: 0.08
    for 6, 8 and 10 at 0.05. Of a random walk with the levels that sign flips of so many pairs can have."""
    steps = np.sqrt(np.diff([0, *looks]))
    walks = np.cumsum(np.random.default_rng(0).standard_normal((100_000, len(looks))) * steps, axis=1) / np.sqrt(looks)
    levels = [math.floor(alpha * 2 ** (pairs - 1)) / 2 ** (pairs - 1) for pairs in looks]
    bounds = [NormalDist().inv_cdf(1.0 - level / 2.0) if level else math.inf for level in levels]
    return float((np.abs(walks) > bounds).any(axis=1).mean())


def _listed(looks: Sequence[int]) -> str:
    return ", ".join(map(str, looks))
