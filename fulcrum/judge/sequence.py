"""Studies with sequential seeds: which arms continue, and when an arm may stop early."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from fulcrum.judge.card import METRICS, Better
from fulcrum.judge.cells import CellRecord, Cells
from fulcrum.judge.design import Design, JudgedArm
from fulcrum.judge.effects import effects_on, if_learned
from fulcrum.judge.looks import UNLIKELY, Answer, PlannedLook, decide, looks_of
from fulcrum.judge.metrics import compared, margins
from fulcrum.judge.schema import Effect
from fulcrum.judge.statistics import Floats, PairedEffect, judge
from fulcrum.spec.remark import Remark, remark

# --------------------------------------------------------------------------------------------------
# When an arm may end early: the crossing guard. Curves cross: alignment helps early and hurts late,
# routing the reverse.
#
# An arm is stopped only when, over several successive evaluation points, the interval of its paired
# differences lies on the worse side of the baseline, *and* the differences, carried on as they
# move, do not come back by the end of the budget. A decaying learning rate turns curves where it
# begins: a loud arm calms down then, and may well win. Points from before say nothing about the
# end, so only those within the decay count. A stopped arm is censored: it has no final value, and
# its verdict says so.
#
# n pairs, P points


class StoppedArm(NamedTuple):
    """An arm that the crossing guard ended."""

    share: float  # of the budget
    effect: PairedEffect  # on the primary metric there

    @property
    def arm(self) -> str:
        return self.effect.arm


def enough_points(shares: Sequence[float], decay: float, successive: int) -> bool:
    """Are so many of these shares of the budget within the share at its end whose points tell of
    the end?"""
    return sum(share >= 1.0 - (decay or 1.0) - 1e-9 for share in shares) >= successive


def hopeless(
    shares: Sequence[float],
    differences: Floats,
    better: Better,
    *,
    decay: float = 0.0,
    successive: int = 3,
    level: float = 0.99,
) -> bool:
    """May the arm be stopped at the last of `shares` of the budget?

    differences: (n, P), arm minus baseline.

    decay: the share of the budget, at its end, over which the learning rate of either side falls;
    0: it stays.
    """
    worse = np.asarray(differences if better == "lower" else -differences, dtype=np.float64)
    n = len(worse)
    if n < 2 or not np.isfinite(worse).all() or not enough_points(shares, decay, successive):
        return False
    recent, places = worse[:, -successive:], np.asarray(shares[-successive:], dtype=np.float64)
    reach = float(stdtrit(n - 1, 0.5 + level / 2)) / math.sqrt(n)
    low = recent.mean(axis=0) - reach * recent.std(axis=0, ddof=1)
    if not (low > 0.0).all():
        return False
    return all(_low_at_end(recent, axis, reach) > 0.0 for axis in (places, np.log(places)))


def _low_at_end(recent: Floats, axis: Floats, reach: float) -> float:
    """The optimistic end of the interval of the differences at the budget's end: each seed's line
    carried on.

    Asked twice, with the budget and with its logarithm as the axis: the first carries a late turn
    further.
    """
    end = 1.0 if axis.max() > 0.0 else 0.0  # the whole budget, or its logarithm
    centred = axis - axis.mean()
    slope = (recent @ centred) / float(centred @ centred)  # (n,)
    final = recent.mean(axis=1) + slope * (end - axis.mean())
    return float(final.mean() - reach * final.std(ddof=1))


# --------------------------------------------------------------------------------------------------
# A study with sequential seeds, from its finished cells: which arms go on, which cells are needed,
# what is said of each.
#
# Everything follows from the cells that are finished or failed, in the order of the plan's seeds: a
# study that was killed decides the same again, and cells that another study has finished beyond an
# arm's last look do not count.


class ArmSeeds(NamedTuple):
    """How many of the plan's seeds an arm needs."""

    now: int  # for the next look, or, of one that has left, for its last
    most: int  # if no further look answers


class Sequenced(NamedTuple):
    """How far the looks of a study are."""

    seeds: tuple[int, ...]  # of the plan
    #: every arm, baselines too: they go on while any arm that is held against them does
    needed: dict[str, ArmSeeds]
    answers: dict[str, Answer]  # of the arms that were looked at

    def needs(self, arm: str, seed: int) -> bool:
        """Is this cell needed for the next look, or was it for an earlier one?"""
        return seed in self.seeds[: self.needed[arm].now]

    def spares(self, arm: str, seed: int) -> bool:
        """Will this cell never be needed?"""
        return seed not in self.seeds[: self.needed[arm].most]

    def within(self, cells: Cells) -> dict[str, dict[int, CellRecord]]:
        """The cells that count."""
        return {
            arm: {seed: cell for seed, cell in by_seed.items() if self.needs(arm, seed)}
            for arm, by_seed in cells.items()
        }


def sequence(plan: Design, arms: Sequence[JudgedArm], cells: Cells) -> Sequenced:
    """Where a study with looks stands."""
    looks, candidates = (
        looks_of(plan.looks, plan.alpha),
        {arm.name: arm for arm in compared(arms, plan.primary)},
    )

    def effects_at(
        look: PlannedLook, names: Sequence[str]
    ) -> Mapping[str, PairedEffect | None] | None:
        seeds = plan.seeds[: look.pairs]
        sides = {side for name in names for side in (name, candidates[name].against)}
        if not all(seed in cells.get(side, {}) for side in sides for seed in seeds):
            return None
        effects = _effects(plan, arms, cells, look)
        return {
            name: effect if isinstance(effect := effects.get(name), PairedEffect) else None
            for name in names
        }

    answers = decide(
        effects_at,
        list(candidates),
        looks,
        plan.seeds,
        better=METRICS[plan.primary].better,
        margins_at=lambda look: _margins(plan, arms, cells, look),
    )
    return Sequenced(plan.seeds, _needed(arms, answers, candidates, looks), answers)


def _needed(
    arms: Sequence[JudgedArm],
    answers: Mapping[str, Answer],
    candidates: Mapping[str, JudgedArm],
    looks: Sequence[PlannedLook],
) -> dict[str, ArmSeeds]:
    first, last = looks[0].pairs, looks[-1].pairs
    own = dict[str, ArmSeeds]()
    for arm in arms:
        answer = answers.get(arm.name)
        # a baseline, or an arm that cannot be compared on the primary metric
        if arm.name not in candidates:
            own[arm.name] = ArmSeeds(first, first)
        elif answer is None:
            own[arm.name] = ArmSeeds(first, last)
        elif answer.left or answer.look.pairs == last:
            own[arm.name] = ArmSeeds(answer.look.pairs, answer.look.pairs)
        else:
            own[arm.name] = ArmSeeds(
                next(look.pairs for look in looks if look.pairs > answer.look.pairs), last
            )
    held = {
        arm.name: [own[arm.name], *(own[one.name] for one in arms if one.against == arm.name)]
        for arm in arms
    }
    return {
        name: ArmSeeds(max(one.now for one in rows), max(one.most for one in rows))
        for name, rows in held.items()
    }


def sequential_findings(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    sequenced: Sequenced,
) -> list[Effect]:
    """The effects on the primary metric, each as it was at the last look that its arm took part
    in."""
    against, rows = {arm.name: arm.against for arm in arms}, list[Effect]()
    for name, answer in sequenced.answers.items():
        effect: Effect | None = answer.effect
        if isinstance(effect, PairedEffect):
            effect = if_learned(plan, _until(plan, cells, answer.look), effect, against[name])
        else:
            effect = _effects(plan, arms, cells, answer.look).get(name)
        if effect is not None:
            rows.append(effect.noted(ending(answer, plan.looks)))
    return [
        *_best_first(rows, plan),
        *_before_the_first_look(plan, arms, cells, sequenced),
    ]


def ending(answer: Answer, looks: Sequence[int]) -> Remark:
    """Where the looks at an arm ended, and why: 'decided at 12 of 16 pairs'."""
    pairs, last = answer.look.pairs, looks[-1]
    of = f"{pairs} of {last} pairs"
    if answer.left == "decided":
        return remark("decided-at-look", f"decided at {of}", pairs=pairs, most=last)
    if answer.left == "unlikely":
        text = f"stopped at {of}: the chance of an answer by {last} was below {UNLIKELY:.0%}"
        return remark("answer-unlikely", text, pairs=pairs, most=last, chance=UNLIKELY)
    if answer.left == "failed":
        return remark("stopped-by-failures", f"stopped at {of}", pairs=pairs, most=last)
    if pairs == last:
        return remark("undecided", f"undecided after all {last} pairs", pairs=pairs, most=last)
    following = next(look for look in looks if look > pairs)
    text = f"undecided at {of}: it goes on to {following}"
    return remark("undecided-so-far", text, pairs=pairs, most=last, next=following)


def _best_first(rows: Sequence[Effect], plan: Design) -> list[Effect]:
    sign = -1.0 if METRICS[plan.primary].better == "higher" else 1.0
    return sorted(rows, key=lambda row: (row.mean is None, sign * (row.mean or 0.0), row.arm))


def _before_the_first_look(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    sequenced: Sequenced,
) -> list[Effect]:
    """What is seen of the arms so far, without a verdict: looking more often than was planned is
    what looks are against."""
    first = looks_of(plan.looks, plan.alpha)[0]
    effects = _effects(plan, arms, cells, first)
    seen = [
        one
        for one in effects.values()
        if isinstance(one, PairedEffect) and one.arm not in sequenced.answers
    ]
    if not seen:
        return []
    rows = judge(
        seen,
        better=METRICS[plan.primary].better,
        smallest_effect=_margins(plan, arms, cells, first),
        alpha=first.level,
        p_values={one.arm: 1.0 for one in seen},
    )
    note = remark(
        "before-first-look", f"the first look is at {first.pairs} pairs", pairs=first.pairs
    )
    update = {"verdict": "inconclusive", "p_adjusted": None}
    return [row.without_note().noted(note).model_copy(update=update) for row in rows]


def _effects(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    look: PlannedLook,
) -> dict[str, Effect]:
    effects = effects_on(
        plan,
        arms,
        cells,
        plan.primary,
        seeds=plan.seeds[: look.pairs],
        level=1.0 - look.level,
    )
    return {effect.arm: effect for effect in effects}


def _until(plan: Design, cells: Cells, look: PlannedLook) -> Cells:
    """The cells that a look may see: what is finished later changes nothing of it."""
    seeds = plan.seeds[: look.pairs]
    return {
        arm: {seed: by_seed[seed] for seed in seeds if seed in by_seed}
        for arm, by_seed in cells.items()
    }


def _margins(
    plan: Design, arms: Sequence[JudgedArm], cells: Cells, look: PlannedLook
) -> dict[str, float]:
    return margins(plan, arms, _until(plan, cells, look), plan.primary)
