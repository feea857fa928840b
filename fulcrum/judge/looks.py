"""Sequential designs: planned looks, spending of alpha, and the test at each look."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from fulcrum.judge.card import Better
from fulcrum.judge.statistics import (
    Floats,
    PairedEffect,
    at_least,
    flipped_statistics,
    judge,
    pairs_needed,
)
from fulcrum.spec.record import Count, Record

# --------------------------------------------------------------------------------------------------
# Sequential seeds: at how many pairs a plan looks at its arms, and how much of alpha may be spent
# by each look.
#
#     seeds = {first = 8, step = 4, most = 16}      looks at 8, 12 and 16 pairs
#
# Who looks several times errs more often: six, then eight, then ten pairs at 0.05 each err in 8 %
# of studies, not in 5 %. So alpha is spent over the looks, by a rule that is fixed before the first
# cell: by a share f of the pairs, at most alpha ln(1 + (e - 1) f) in all (Lan and DeMets 1983, the
# spending that resembles Pocock's bounds).


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
    """What may be spent by each look, all earlier ones included: 0.031, 0.041, 0.050 at 8, 12 and
    16 pairs."""
    return tuple(alpha * math.log1p((math.e - 1.0) * pairs / looks[-1]) for pairs in looks)


def require_looks(looks: Sequence[int], alpha: float) -> None:
    """Refuse (ValueError) looks that do not rise, or whose first could decide nothing."""
    if len(looks) < 2:
        raise ValueError(
            f"looks at {_listed(looks)} pairs are no sequence: name the seeds as a list, seeds ="
            " [0, 1, ...]"
        )
    if list(looks) != sorted(set(looks)) or looks[0] < 2:
        raise ValueError(
            f"expected looks at rising numbers of pairs, two or more, found {_listed(looks)}"
        )
    most, level = looks[-1], spending(looks, alpha)[0]
    if 2.0 / 2 ** looks[0] > level:
        enough = [
            pairs
            for pairs in range(looks[0], most)
            if 2.0 / 2**pairs <= spending((pairs, most), alpha)[0]
        ]
        raise ValueError(
            f"the first look, at {looks[0]} of {most} pairs, could decide nothing: its smallest"
            f" possible p is {2.0 / 2 ** looks[0]:.3g}, and it may spend {level:.3g}; "
            + (
                f"look first at {enough[0]} pairs or more"
                if enough
                else f"name the {most} seeds as a list"
            )
        )


def error_by_hand(looks: Sequence[int], alpha: float) -> float:
    """How often an arm that does nothing gets a verdict when it is tested at alpha with so many
    pairs, time and again: 0.08 for 6, 8 and 10 at 0.05. Of a random walk with the levels that sign
    flips of so many pairs can have."""
    steps = np.sqrt(np.diff([0, *looks]))
    walks = np.cumsum(
        np.random.default_rng(0).standard_normal((100_000, len(looks))) * steps, axis=1
    ) / np.sqrt(looks)
    levels = [math.floor(alpha * 2 ** (pairs - 1)) / 2 ** (pairs - 1) for pairs in looks]
    bounds = [NormalDist().inv_cdf(1.0 - level / 2.0) if level else math.inf for level in levels]
    return float((np.abs(walks) > bounds).any(axis=1).mean())


def _listed(looks: Sequence[int]) -> str:
    return ", ".join(map(str, looks))


# --------------------------------------------------------------------------------------------------
# The test of a plan with sequential seeds: arms are judged look by look, those with an answer
# leave, the others go on.
#
# **The error.** One sign vector over all seeds so far flips every arm at every look. The bound of a
# look is the lowest at which the share of sign vectors that would be rejected at this look or an
# earlier one stays within what may be spent by then (`fulcrum/judge/looks.py`): exact for any noise
# that is symmetric, and what a look could not spend (few pairs have few p-values) is left for the
# next. Rejected arms leave the family, as in a step-down test. One that leaves *without* a
# rejection stays in it, so that the bound is as high as if it had gone on (its leaving is
# "non-binding"): the pairs that it was spared are stood in for by its earlier ones, in order.
# Without them the best of many arms that do nothing would be tested as if it had been alone.
#
# **p-values** are ordered by look (the earlier rejection is the stronger one) and told in units of
# the look's level: p is at most alpha just where an arm is rejected. **Intervals** are at the level
# of the look alone, so that over all looks they hold at 1 - alpha. **Ties** ask intervals of that
# kind too: over all looks, an arm that stands a margin off is called one in at most a share alpha
# of studies.
#
# **An answer that has become unlikely.** At each look but the last, an arm ends when its chance of
# an answer (better, worse or tie) at the last look is below `UNLIKELY`, given its mean and scatter
# so far.
#
# n seeds, A arms, S sign vectors


MOST_SIGNS = 2**15  # sign vectors: all there are up to 16 pairs
UNLIKELY = 0.1  # chance of an answer by the last look, below which an arm ends

Left = Literal["", "decided", "unlikely", "failed"]


class PlannedLook(NamedTuple):
    """One look of a plan."""

    pairs: int
    spent: float  # of alpha, by this look and all before it
    level: float  # of this look alone


class Answer(NamedTuple):
    """What is known of an arm after the last look that it took part in."""

    effect: PairedEffect | None  # judged; None: too few pairs for one
    look: PlannedLook
    left: Left = ""  # why it needs no more seeds


class Round(NamedTuple):
    """The arms whose hypotheses stood at a look, and what they were tested with."""

    arms: list[str]
    differences: Floats  # (n, A), NaN for a missing pair


EffectsAt = Callable[[PlannedLook, Sequence[str]], Mapping[str, PairedEffect | None] | None]
MarginsAt = Callable[[PlannedLook], Mapping[str, float]]  # arm -> the smallest effect of interest


@lru_cache(maxsize=64)
def looks_of(pairs: tuple[int, ...], alpha: float) -> tuple[PlannedLook, ...]:
    """The looks of a plan. The level of each alone is that of a random walk whose bounds spend
    alpha in the same way."""
    spent = spending(pairs, alpha)
    grid = np.linspace(-9.0, 9.0, 1801)  # places of the walk, in units of its deviation at the end
    step, times = float(grid[1] - grid[0]), np.array(pairs) / pairs[-1]
    inside = np.zeros_like(grid)  # density of the walks that no bound has stopped
    inside[len(grid) // 2] = 1.0 / step
    levels, before, time = [], 0.0, 0.0
    for until, now in zip(spent, times, strict=True):
        width = math.sqrt(now - time)
        inside = (
            step
            * np.exp(-np.square((grid[:, None] - grid) / width) / 2)
            @ inside
            / (width * math.sqrt(2 * math.pi))
        )
        # chance to stand beyond a place, on either side
        beyond = step * (2.0 * np.cumsum(inside[::-1])[::-1] - inside)
        half = grid > 0.0
        bound = float(np.interp(-(until - before), -beyond[half], grid[half]))
        inside[np.abs(grid) > bound] = 0.0
        levels.append(2.0 * float(ndtr(-bound / math.sqrt(now))))
        before, time = until, float(now)
    return tuple(map(PlannedLook, pairs, spent, levels))


def decide(
    effects_at: EffectsAt,
    arms: Sequence[str],
    looks: Sequence[PlannedLook],
    seeds: Sequence[int],
    *,
    better: Better,
    margins_at: MarginsAt,
    most_signs: int = MOST_SIGNS,
) -> dict[str, Answer]:
    """The arms after the last look that is there, from effects over the first pairs of `seeds`
    alone: whoever goes on with a study that was stopped decides the same again.

    `effects_at(look, arms)` gives the effects of the arms at a look, with intervals at its level;
    None: cells are missing.
    """
    answers, signs = (
        dict[str, Answer](),
        nested_signs(tuple(look.pairs for look in looks), most_signs),
    )
    # standing: not rejected; going: without an answer
    standing, going, rounds = list(arms), list(arms), list[Round]()
    for number, look in enumerate(looks):
        effects = effects_at(look, going) if going else None
        if effects is None:
            break
        rounds.append(_round(standing, effects, rounds, seeds[: look.pairs], look))
        p_values = _p_values(rounds, looks[: number + 1], signs[: number + 1])
        present = [effect for effect in effects.values() if effect is not None]
        judged = (
            {}
            if not present
            else _judged(present, p_values, look, looks[-1], better, margins_at(look))
        )
        family = len(standing)
        for arm in tuple(going):
            effect = judged.get(arm)
            left = _left(effect, look, looks[-1], family, better)
            answers[arm] = Answer(effect, look, left)
            if left:
                going.remove(arm)
            if effect is not None and effect.verdict in ("better", "worse"):
                standing.remove(arm)
    return answers


def _round(
    standing: Sequence[str],
    effects: Mapping[str, PairedEffect | None],
    before: Sequence[Round],
    seeds: Sequence[int],
    look: PlannedLook,
) -> Round:
    """The family at a look: arms with enough pairs, and those that left, with stand-ins for the
    pairs they were spared."""
    rows, columns = {seed: row for row, seed in enumerate(seeds)}, dict[str, Floats]()
    for arm in standing:
        effect, column = effects.get(arm), np.full(len(seeds), np.nan)
        if effect is not None:
            column[[rows[seed] for seed in effect.seeds]] = effect.differences
        elif before and arm in before[-1].arms:
            earlier = before[-1].differences[:, before[-1].arms.index(arm)]
            column = np.resize(earlier, len(seeds))  # from the beginning again
        if np.isfinite(column).sum() >= pairs_needed(look.spent):
            columns[arm] = column
    return Round(
        list(columns), np.array([*columns.values()], dtype=np.float64).reshape(-1, len(seeds)).T
    )


def _p_values(
    rounds: Sequence[Round], looks: Sequence[PlannedLook], signs: Sequence[Floats]
) -> dict[str, float]:
    """Arm -> share of sign vectors that are rejected before the last of the looks or reach the arm
    there; stepping down."""
    statistics = [_statistics(one, vectors) for one, vectors in zip(rounds, signs, strict=True)]
    family, p_values, floor = list(rounds[-1].arms), dict[str, float](), 0.0
    while family:
        crossed = np.zeros(len(signs[0]), dtype=np.bool_)  # rejected at an earlier look
        for k, look in enumerate(looks[:-1]):
            top = _top(statistics[k], family, len(crossed))
            crossed = crossed | (
                top > _bound(top[~crossed], look.spent * len(crossed) - crossed.sum())
            )
            crossed = np.repeat(crossed, len(signs[k + 1]) // len(crossed))
        top = _top(statistics[-1], family, len(crossed))
        p = {
            arm: max(floor, float((crossed | at_least(top, statistics[-1][arm][:1])).mean()))
            for arm in family
        }
        rejected = [arm for arm in family if p[arm] <= looks[-1].spent]
        p_values.update({arm: p[arm] for arm in rejected or family})
        floor = max([floor, *(p[arm] for arm in rejected)])
        family = [arm for arm in family if arm not in rejected] if rejected else []
    return p_values


def _statistics(one: Round, signs: Floats) -> dict[str, Floats]:
    """Arm -> its statistic under every sign vector (S,)."""
    return (
        dict(zip(one.arms, flipped_statistics(one.differences, signs).T, strict=True))
        if one.arms
        else {}
    )


def _top(statistics: Mapping[str, Floats], family: Sequence[str], many: int) -> Floats:
    present = [statistics[arm] for arm in family if arm in statistics]
    return np.max(present, axis=0) if present else np.zeros(many)


def _bound(top: Floats, may: float) -> float:
    """What a statistic must exceed, so that at most `may` sign vectors do."""
    most = math.floor(may + 1e-9)
    return float(np.partition(top, -1 - most)[-1 - most]) * (1.0 + 1e-9) if most < len(top) else 0.0


@lru_cache(maxsize=4)
def nested_signs(pairs: tuple[int, ...], most: int) -> tuple[Floats, ...]:
    """Sign vectors (S, n) for every look, the observed one first. Those of a look go on from those
    of the look before, each in equally many ways: what was spent by then is known without sampling.
    All there are, or about `most`, keyed.
    """
    # flipping every sign at once changes no two-sided statistic: the first stays +
    signs = [np.ones((1, 1))]
    for n in pairs:
        more, last = n - signs[-1].shape[1], signs[-1]
        ways = min(2**more, max(1, most // len(last)))
        if ways == 2**more:
            bits = np.tile((np.arange(ways)[:, None] >> np.arange(more)) & 1, (len(last), 1))
        else:
            bits = np.random.default_rng([n, ways]).integers(0, 2, size=(len(last) * ways, more))
        bits[0] = 0
        signs.append(np.concatenate([np.repeat(last, ways, axis=0), 1.0 - 2.0 * bits], axis=1))
        signs[-1].flags.writeable = False
    return tuple(signs[1:])


def _judged(
    effects: Sequence[PairedEffect],
    p_values: Mapping[str, float],
    look: PlannedLook,
    last: PlannedLook,
    better: Better,
    margins: Mapping[str, float],
) -> dict[str, PairedEffect]:
    """Verdicts at the level of the look; p in units of the whole alpha, which the last look has
    spent."""
    p = {effect.arm: p_values.get(effect.arm, 1.0) for effect in effects}
    at_level = {arm: min(1.0, value * look.level / look.spent) for arm, value in p.items()}
    rows = judge(
        effects, better=better, smallest_effect=margins, alpha=look.level, p_values=at_level
    )
    return {
        row.arm: row.model_copy(
            update={"p_adjusted": min(1.0, p[row.arm] * last.spent / look.spent)}
        )
        for row in rows
    }


def _left(
    effect: PairedEffect | None, look: PlannedLook, last: PlannedLook, family: int, better: Better
) -> Left:
    if effect is None:
        return "failed"
    if effect.verdict in ("better", "worse", "tie"):
        return "decided"
    if look.pairs < last.pairs and chance_of_answer(effect, look, last, family, better) < UNLIKELY:
        return "unlikely"
    return ""


def chance_of_answer(
    effect: PairedEffect, look: PlannedLook, last: PlannedLook, family: int, better: Better
) -> float:
    """Chance that an arm is better, worse or tied at the last look, predicted from its mean and
    scatter so far.

    The mean at the end is spread around the present one by the noise of the pairs to come and by
    what the present ones do not know of the truth. The bound of the family is taken as that of
    independent arms with a well-known scatter.
    """
    n, pairs = effect.n, effect.n + last.pairs - look.pairs
    if effect.sd <= 0.0 or pairs == n:
        return 1.0
    spread, error = effect.sd * math.sqrt((pairs - n) / (pairs * n)), effect.sd / math.sqrt(pairs)
    reach = -float(ndtri((1.0 - (1.0 - last.level) ** (1.0 / family)) / 2.0)) * error
    # for the mean of a tie
    room = (effect.margin or 0.0) - float(stdtrit(pairs - 1, 1.0 - last.level)) * error

    def below(mean: float) -> float:
        return float(stdtr(n - 1, (mean - effect.mean) / spread))

    sides = (below(-reach), 1.0 - below(reach))
    if effect.failed:  # survivors can only speak against the arm
        return sides[0] if better == "higher" else sides[1]
    return min(1.0, sum(sides) + (below(room) - below(-room) if room > 0.0 else 0.0))
