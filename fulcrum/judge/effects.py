"""From finished cells to effects: differences, interactions, trends and main effects."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from fulcrum.judge.card import METRICS, Better
from fulcrum.judge.cells import Cells, failed_seeds, finished_cells, unlike
from fulcrum.judge.design import (
    BASELINE,
    Design,
    JudgedArm,
    at_scale,
    fraction_of,
    interaction_arms,
)
from fulcrum.judge.fraction import FractionTable, alias_strings, named
from fulcrum.judge.metrics import (
    EQUAL,
    compared,
    margins,
    not_learned,
    require_same_card,
    values_of,
)
from fulcrum.judge.schema import (
    DOUBLED,
    AliasString,
    ArmCost,
    ClaimResult,
    Effect,
    Interaction,
    ScaleFacts,
    Trend,
)
from fulcrum.judge.statistics import (
    Floats,
    PairedEffect,
    corrected,
    effect_without_pairs,
    headline_size,
    judge,
    kept_share,
    paired_effect,
    pairs_needed,
    student_interval,
    verdict,
)
from fulcrum.spec.errors import BadInput
from fulcrum.spec.remark import Remark, remark

# --------------------------------------------------------------------------------------------------
# From finished cells to findings: the effects of all arms, each on its own pairs with its baseline,
# with verdicts.
#
# The primary metric is what a plan sets out to decide: its arms are one family. Every other metric
# is exploratory, or, where the plan says `confirm = "all"`, a part of one joint test over arms and
# metrics.


EXPLORATORY = "exploratory"  # in the place of a verdict: not what the plan set out to decide


def effect(
    plan: Design,
    values: Mapping[str, Mapping[int, float]],
    weights: Mapping[str, float],
    metric: str,
    *,
    unit: str = EQUAL,
    seeds: Sequence[int] | None = None,
    failed: int = 0,
    level: float | None = None,
) -> PairedEffect | None:
    """An effect is a weighted sum of the cells of each seed. None: fewer than two seeds have all.

    values: arm -> seed -> value.

    weights: arm -> its weight, with the arm that the effect is about first. The others, with the
    opposite sign, are what it is compared with: {"muon": 1, "baseline": -1}.

    seeds, level: the plan's where they are None.
    """
    seeds = plan.seeds if seeds is None else seeds
    about, *others = weights
    shared = [seed for seed in seeds if all(seed in values[arm] for arm in weights)]
    if len(shared) < 2:
        return None
    after = {seed: weights[about] * values[about][seed] for seed in shared}
    before = {
        seed: sum((-weights[arm] * values[arm][seed] for arm in others), 0.0) for seed in shared
    }
    return paired_effect(
        before,
        after,
        name=about,
        metric=metric,
        unit=unit,
        seeds=shared,
        planned=len(seeds),
        failed=failed,
        level=1.0 - plan.alpha if level is None else level,
    )


def all_findings(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    effects: Mapping[str, Sequence[Effect]],
) -> list[Effect]:
    """The effects on all metrics (metric -> effects) with verdicts: each metric is a family, or all
    of them are one, as the plan asks. All scales are in one family: a sign flip flips a seed at
    every scale."""
    p_values = (
        joint_p_values(paired(effects.values()), plan.alpha) if plan.confirm == "all" else None
    )
    return [
        row
        for metric in effects
        for row in judged(plan, arms, cells, metric, effects[metric], p_values)
    ]


def effects_on(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    metric: str,
    *,
    seeds: Sequence[int] | None = None,
    level: float | None = None,
) -> list[Effect]:
    """Effects on one metric, not yet judged, over the pairs that each arm has with what it is held
    against; `seeds` and `level` where a plan looks before its end. Cards must match.

    A seed without a number on either side is missing for this metric alone. An arm with fewer than
    two pairs has no effect while more may come, and one without an interval when none can.
    """
    # its combinations are no arms to be compared one by one: see fraction_effects
    if plan.design == "fractional":
        return []
    seeds = plan.seeds if seeds is None else seeds
    by_name = {arm.name: arm for arm in arms}
    rows = [
        _effect_of(plan, arm, by_name[arm.against], cells, metric, seeds, level)
        for arm in compared(arms, metric)
    ]
    return [row for row in rows if row is not None]


def _effect_of(
    plan: Design,
    arm: JudgedArm,
    base: JudgedArm,
    cells: Cells,
    metric: str,
    seeds: Sequence[int],
    level: float | None,
) -> Effect | None:
    own, base_own = (finished_cells(cells, one.name) for one in (arm, base))
    own_failed, base_failed = (failed_seeds(cells, one.name) for one in (arm, base))
    values = {one.name: values_of(cells, one.name, metric) for one in (arm, base)}
    finished = [seed for seed in seeds if seed in own and seed in base_own]
    pairs = [seed for seed in finished if all(seed in one for one in values.values())]
    for seed in pairs:
        require_same_card(base_own[seed], own[seed], metric, arm)
    lost = [seed for seed in seeds if seed in own_failed]
    found: Effect | None = effect(
        plan,
        values,
        {arm.name: 1.0, base.name: -1.0},
        metric,
        seeds=seeds,
        failed=len(lost),
        level=level,
    )
    if found is None:
        if not set(seeds) <= {*finished, *own_failed, *base_failed}:
            return None  # more pairs may come
        only = values[arm.name][pairs[0]] - values[base.name][pairs[0]] if pairs else None
        found = effect_without_pairs(
            arm.name, metric, unit=EQUAL, planned=len(seeds), failed=len(lost), mean=only
        )
    warnings = (
        *_missing(
            "pairs-without-number", [seed for seed in finished if seed not in pairs], "no number"
        ),
        *_missing(
            "pairs-without-baseline",
            [seed for seed in seeds if seed in base_failed - own_failed],
            f"{'the ' * base.is_baseline}{base.name} failed",
        ),
    )
    unlike_pairs = sum(unlike(base_own[seed].machine, own[seed].machine) for seed in pairs)
    return found.warned(*warnings).model_copy(update={"unlike": unlike_pairs})


def _missing(code: str, seeds: Sequence[int], why: str) -> tuple[Remark, ...]:
    """'the pair of seed 3 is missing: no number'"""
    if not seeds:
        return ()
    listed = ", ".join(map(str, seeds))
    one = len(seeds) == 1
    text = (
        f"the {'pair of seed' if one else 'pairs of seeds'} {listed} {'is' if one else 'are'}"
        f" missing: {why}"
    )
    return (remark(code, text, seeds=list(seeds)),)


def judged(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    metric: str,
    effects: Sequence[Effect],
    p_values: Mapping[tuple[str, str], float] | None = None,
) -> list[Effect]:
    """The effects of one metric with verdicts, best first, then those without an interval;
    `p_values` of a larger one."""
    pairs, against = paired([effects]), {arm.name: arm.against for arm in arms}
    if not pairs:
        return list(effects)
    own = None if p_values is None else {row.arm: p_values[row.arm, metric] for row in pairs}
    rows = judge(
        pairs,
        better=METRICS[metric].better,
        smallest_effect=margins(plan, arms, cells, metric),
        alpha=plan.alpha,
        p_values=own,
    )
    known = [if_learned(plan, cells, row, against[row.arm]) for row in rows]
    return [*known, *(row for row in effects if not isinstance(row, PairedEffect))]


def paired(families: Iterable[Sequence[Effect]]) -> list[PairedEffect]:
    return [row for family in families for row in family if isinstance(row, PairedEffect)]


def if_learned(plan: Design, cells: Cells, row: PairedEffect, base: str) -> PairedEffect:
    """A tie says something only where the baseline has learned something."""
    why = not_learned(cells, base, row.metric, 1.0 - plan.alpha) if row.verdict == "tie" else None
    return row if why is None else row.noted(why).model_copy(update={"verdict": "not learned"})


def joint_p_values(effects: Sequence[PairedEffect], alpha: float) -> dict[tuple[str, str], float]:
    """(arm, metric) -> p corrected over arms and metrics together: one sign vector flips a seed of
    all of them."""
    p_values = corrected(effects, alpha) if effects else []
    return {(effect.arm, effect.metric): p for effect, p in zip(effects, p_values, strict=True)}


def confirmed(
    plan: Design, effect: Effect, claims: Mapping[str, Sequence[ClaimResult]] | None = None
) -> Effect:
    """The effect with a verdict only where the plan set out to decide it, and with the verdict on
    what is claimed of it."""
    decided = effect.unit == EQUAL and (effect.metric == plan.primary or plan.confirm == "all")
    about = [
        claim.verdict for claim in (claims or {}).get(effect.arm, ()) if claim.seen == effect.metric
    ]
    return effect.model_copy(
        update={
            "exploratory": not decided,
            "verdict": effect.verdict if decided or effect.verdict == "failed" else EXPLORATORY,
            "claim_verdict": about[0] if about and about[0] != "not comparable" else None,
        }
    )


# --------------------------------------------------------------------------------------------------
# Contrasts of effects: what two levers do beyond their sum, and how an effect moves with scale.
#
# n pairs, K scales


TOGETHER = {
    "better": "better together",
    "worse": "worse together",
    "tie": "adds up",
    "inconclusive": "inconclusive",
}


def interactions(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    metric: str,
) -> list[Interaction]:
    """ab - a - b + base, pair by pair, over the seeds that all four have; corrected over the plan's
    interactions."""
    allowed = {arm.name for arm in compared(arms, metric)}
    effects, names = [], {}
    for pair in plan.interactions if plan.design != "fractional" else ():
        a, b, both = interaction_arms(pair)
        if not {a, b, both} <= allowed:
            continue
        weights = {both: 1.0, a: -1.0, b: -1.0, arms[0].name: 1.0}
        values = {name: values_of(cells, name, metric) for name in weights}
        lost = _failed(plan, (a, b, both), cells)
        found = effect(plan, values, weights, metric, failed=lost)
        if found is not None:
            effects.append(found)
            names[both] = pair
    if not effects:
        return []
    smallest = margins(plan, arms, cells, metric)
    rows = judge(effects, better=METRICS[metric].better, smallest_effect=smallest, alpha=plan.alpha)
    return [interaction(row, names[row.arm], metric == plan.primary) for row in rows]


def interaction(row: PairedEffect, pair: tuple[str, str], primary: bool) -> Interaction:
    """A judged contrast as what two levers do together; only on the primary metric it has a
    verdict."""
    return Interaction(
        a=pair[0],
        b=pair[1],
        metric=row.metric,
        n=row.n,
        mean=row.mean,
        low=row.low,
        high=row.high,
        unit=EQUAL,
        p_adjusted=row.p_adjusted,
        verdict=TOGETHER[_verdict_of_all(row)] if primary else EXPLORATORY,
    )


def axis(plan: Design, arms: Sequence[JudgedArm]) -> dict[str, float]:
    """Scale -> its place on the trend's axis: the plan's, else log2 of the baseline's FLOPs over
    the first's."""
    flops = {arm.scale: arm.flops for arm in arms if arm.is_baseline}
    first = flops[arms[0].scale]
    places = {
        scale.name: scale.at if scale.at is not None else math.log2(flops[scale.name] / first)
        for scale in plan.scales
    }
    ranked = sorted(places.values())
    if any(
        math.isclose(one, other, abs_tol=1e-9)
        for one, other in zip(ranked, ranked[1:], strict=False)
    ):
        raise BadInput(
            "two scales stand at the same place of the trend's axis: they cost the same FLOPs",
            "say where each stands with `at`, such as at = 1",
        )
    return places


def scales(plan: Design, arms: Sequence[JudgedArm]) -> list[ScaleFacts]:
    if not plan.scales:
        return []
    places, base = axis(plan, arms), {arm.scale: arm for arm in arms if arm.is_baseline}
    return [
        ScaleFacts(
            name=scale.name,
            at=places[scale.name],
            settings=scale.settings,
            tokens=base[scale.name].tokens,
            parameters=base[scale.name].parameters,
            flops=base[scale.name].flops,
        )
        for scale in plan.scales
    ]


def trends(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    metric: str,
) -> list[Trend]:
    """Slope of each arm's effect over the axis: a line through every seed's effects, Student over
    the slopes of the seeds that the arm has at all scales.

    A family of its own on the primary metric, exploratory on the others.
    """
    if not plan.scales:
        return []
    places = axis(plan, arms)
    allowed = {arm.name: arm for arm in compared(arms, metric)}
    x = np.array([places[scale.name] for scale in plan.scales])
    centred, smallest = x - x.mean(), margins(plan, arms, cells, metric)
    slopes, by_scale, interest = [], {}, {}
    for root in (
        arm.name.removesuffix(f" [{arm.scale}]") for arm in arms if arm.scale == plan.scales[0].name
    ):
        own = [arm for scale in plan.scales if (arm := allowed.get(at_scale(root, scale.name)))]
        if len(own) < len(plan.scales):
            continue
        at = [_differences(arm, cells, metric) for arm in own]
        seeds = [seed for seed in plan.seeds if all(seed in differences for differences in at)]
        if len(seeds) < 2:
            continue
        per_seed = np.array([[differences[seed] for differences in at] for seed in seeds])  # (n, K)
        slope = per_seed @ centred / float(centred @ centred)
        by_seed = dict(zip(seeds, slope.tolist(), strict=True))
        lost = _failed(plan, [arm.name for arm in own], cells)
        found = effect(plan, {root: by_seed}, {root: 1.0}, metric, failed=lost)
        assert found is not None  # of two seeds or more
        slopes.append(found)
        by_scale[root] = per_seed[:, np.argsort(x)]
        interest[root] = float(np.mean([smallest[arm.name] for arm in own])) / float(
            x.max() - x.min()
        )
    rows = (
        judge(slopes, better="higher", smallest_effect=interest, alpha=plan.alpha) if slopes else []
    )
    by = (
        (plan.axis or "1 on the plan's axis")
        if any(scale.at is not None for scale in plan.scales)
        else DOUBLED
    )
    return [
        Trend(
            arm=row.arm,
            metric=metric,
            slope=row.mean,
            low=row.low,
            high=row.high,
            n=row.n,
            axis=by,
            unit=EQUAL,
            verdict=(
                _moves(row, by_scale[row.arm], 1 - plan.alpha)
                if metric == plan.primary
                else EXPLORATORY
            ),
        )
        for row in rows
    ]


def _differences(arm: JudgedArm, cells: Cells, metric: str) -> dict[int, float]:
    after, before = (values_of(cells, name, metric) for name in (arm.name, arm.against))
    return {seed: after[seed] - before[seed] for seed in after.keys() & before.keys()}


def _failed(plan: Design, names: Collection[str], cells: Cells) -> int:
    """Seeds of the plan under which any of these arms failed."""
    return len(set(plan.seeds) & set().union(*(failed_seeds(cells, name) for name in names)))


def _verdict_of_all(row: PairedEffect) -> str:
    """What survivors show of a contrast speaks neither for nor against it."""
    return "inconclusive" if row.failed else row.verdict


def _moves(slope: PairedEffect, per_seed: Floats, level: float) -> str:
    """How an effect moves; per_seed (n, K) are the effects at every scale, smallest scale first.

    One that is on one side of zero at the first scale and on the other at the last crosses; where
    only one of the two is told from zero at all, it fades to nothing or grows out of it.
    """
    if _verdict_of_all(slope) not in ("better", "worse"):
        return {"tie": "holds"}.get(_verdict_of_all(slope), "inconclusive")
    means, deviations = per_seed.mean(axis=0), per_seed.std(axis=0, ddof=1)
    ends = [student_interval(means[k], deviations[k], len(per_seed), level) for k in (0, -1)]
    clear = [low > 0.0 or high < 0.0 for low, high in ends]
    if means[0] * means[-1] < 0.0 and clear[0] == clear[1]:
        return "crossing"
    return "grows" if (slope.mean > 0) == (means.mean() > 0) else "fades"


# --------------------------------------------------------------------------------------------------
# Effects of a fractional design: what each lever does on average over the others, and what pairs do
# beyond their sum.
#
# Under one seed a lever's contrast is the mean of the combinations that have it, minus the mean of
# those that have not: one number per seed, which is judged as the paired difference of an arm is.
# It is symmetric however skewed the cells are, since as many of them count plus as minus.
#
# A plan of six seeds or more is decided by sign flips. With fewer they cannot, and normal noise is
# assumed: the variance of a contrast over seeds is that of all levers together, or the lever's own
# where that is larger (one may answer to the seed more than the rest), and p-values are corrected
# as Sidak does, step by step. The textbook's residual over all cells is not used: an effect that
# differs from seed to seed is no part of it, and it errs in up to 30 % of studies.
#
# S seeds, R combinations, C contrasts


Pair = tuple[str, str]

NORMAL = remark(
    "normal-noise",
    "so few seeds decide only by the scatter of all levers together, taken to be normal",
)


class FractionEffects(NamedTuple):
    """What a fractional design says on one metric."""

    levers: list[PairedEffect]
    failed: list[Effect]  # of levers with which nothing finished
    interactions: list[Interaction]  # of the chosen pairs
    strings: list[AliasString]  # other pairs, those together that cannot be told apart


NOTHING = FractionEffects([], [], [], [])


def fraction_effects(
    plan: Design, arms: Sequence[JudgedArm], cells: Cells, metric: str
) -> FractionEffects:
    """Effects over the seeds of which every combination has finished or failed."""
    table, names = fraction_of(plan), [arm.name for arm in arms]
    if metric == "validation_loss" and any(arm.own_loss for arm in arms):
        return NOTHING  # of combinations whose losses are not of one kind no mean can be taken
    seeds = [seed for seed in plan.seeds if all(seed in cells.get(name, {}) for name in names)]
    finished = {name: finished_cells(cells, name) for name in names}
    for arm in arms[1:]:
        own, base = finished[arm.name], finished[BASELINE]
        for seed in (seed for seed in seeds if seed in own and seed in base):
            require_same_card(base[seed], own[seed], metric, arm)
    by_arm, smallest = (
        [values_of(cells, name, metric) for name in names],
        margins(plan, arms, cells, metric),
    )
    values = np.array([[one.get(seed, math.nan) for one in by_arm] for seed in seeds]).reshape(
        len(seeds), len(names)
    )
    if len(seeds) < 2 or not smallest:
        return NOTHING
    family = _Family(plan, metric, seeds, next(iter(smallest.values())))
    alone, strings = lever_contrasts(values, table), alias_strings(table)
    together, listed = (
        pair_contrasts(values, table),
        {named(string[0]): string for string in strings},
    )
    rows = family.judged(table.levers, alone, alone, _means(values, ~table.on))
    keys, count = list(listed), len(table.chosen)
    pairs = family.judged(keys[:count], together[:, :count], together)
    others = family.judged(keys[count:], together[:, count:], together)
    lost = set(table.levers) - {row.arm for row in rows}
    return FractionEffects(
        [_with_failures(row, table, arms, cells) for row in rows],
        [
            effect_without_pairs(lever, metric, unit=EQUAL, planned=len(seeds), failed=len(seeds))
            for lever in table.levers
            if lever in lost
        ],
        [interaction(row, listed[row.arm][0], metric == plan.primary) for row in pairs],
        [
            _string(row, listed[row.arm])
            for row in sorted(others, key=lambda row: row.p_adjusted or 0.0)
        ],
    )


def lever_contrasts(values: Floats, table: FractionTable) -> Floats:
    """With minus without, lever by lever.  (S, R) -> (S, K); NaN in a seed whose cells do not tell
    it."""
    return 2.0 * _fitted(values, table)[:, : len(table.levers)]


def pair_contrasts(values: Floats, table: FractionTable) -> Floats:
    """What one lever of a pair does with the other, minus what it does without it, string by
    string.  (S, R) -> (S, C)

    A seed that lost cells tells the chosen pairs, and no others.
    """
    strings = alias_strings(table)
    columns = np.array([table.together(string[0]) for string in strings]).reshape(
        len(strings), len(table.on)
    )
    contrasts = 4.0 * values @ columns.T / len(table.on)  # NaN where a cell was lost
    contrasts[:, : len(table.chosen)] = 4.0 * _fitted(values, table)[:, len(table.levers) :]
    return np.asarray(contrasts)


def _fitted(values: Floats, table: FractionTable) -> Floats:
    """Coefficients of levers and chosen pairs, each seed by itself.  (S, R) -> (S, C)

    Where cells failed, least squares on what is left, and NaN for what that does not tell: a lever
    with which everything failed. Levers are then clear of the chosen pairs as before, and of others
    not quite.
    """
    chosen = [table.together(string[0]) for string in alias_strings(table)[: len(table.chosen)]]
    columns = np.column_stack([np.ones(len(table.on)), table.signs, *chosen])
    rows = []
    for row in values:
        there = np.isfinite(row)
        inverse = np.linalg.pinv(columns[there])
        estimable = np.isclose(np.diag(inverse @ columns[there]), 1.0)
        rows.append(np.where(estimable, inverse @ row[there], math.nan)[1:])
    return np.array(rows).reshape(len(values), columns.shape[1] - 1)


def few_seeds(contrasts: Floats, family: Floats) -> tuple[Floats, Floats, Floats]:
    """Corrected p-values, standard errors and degrees of freedom of contrasts (..., S, C), by
    normal theory; `family` (..., S, F) are all that scatter over seeds for the same reasons. NaN
    where a seed does not tell a contrast."""
    counts, means, squares = _scatter(contrasts)
    weights, _, shared = _scatter(family)
    degrees = np.maximum(weights - 1.0, 0.0).sum(axis=-1, keepdims=True)
    together = shared.sum(axis=-1, keepdims=True) / np.maximum(degrees, 1.0)
    errors = np.sqrt(
        np.maximum(squares / np.maximum(counts - 1.0, 1.0), together) / np.maximum(counts, 1.0)
    )
    p_values = 2.0 * np.asarray(
        stdtr(degrees, -np.abs(means) / np.where(errors > 0.0, errors, math.inf))
    )
    order = np.argsort(p_values, axis=-1)  # Sidak's correction, the smallest p first
    left = p_values.shape[-1] - np.arange(p_values.shape[-1])
    corrected = np.maximum.accumulate(
        1.0 - (1.0 - np.take_along_axis(p_values, order, axis=-1)) ** left, axis=-1
    )
    return (
        np.asarray(np.take_along_axis(corrected, np.argsort(order, axis=-1), axis=-1)),
        errors,
        degrees,
    )


def _scatter(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Number, mean and summed squares about it of every column.  (..., S, C) -> three of (...,
    C)"""
    there = np.isfinite(values)
    counts = there.sum(axis=-2, dtype=np.float64)
    means = np.where(there, values, 0.0).sum(axis=-2) / np.maximum(counts, 1.0)
    return counts, means, np.square(np.where(there, values - means[..., None, :], 0.0)).sum(axis=-2)


class _Family(NamedTuple):
    """What the contrasts of one metric share as they are judged."""

    plan: Design
    metric: str
    seeds: Sequence[int]
    margin: float

    def judged(
        self, names: Sequence[str], contrasts: Floats, family: Floats, off: Floats | None = None
    ) -> list[PairedEffect]:
        """Contrasts (S, C) as effects with verdicts, best first; `off` (S, C): the side without the
        lever. What fewer than two seeds tell is left out."""
        known = np.isfinite(contrasts).sum(axis=0) > 1
        names, contrasts = (
            [name for name, one in zip(names, known, strict=True) if one],
            contrasts[:, known],
        )
        before = np.zeros_like(contrasts) if off is None else off[:, known]
        if not names:
            return []
        alpha, better = self.plan.alpha, METRICS[self.metric].better
        effects = [
            self._effect(name, before[:, place], contrasts[:, place])
            for place, name in enumerate(names)
        ]
        if len(self.plan.seeds) >= pairs_needed(alpha):
            return judge(effects, better=better, smallest_effect=self.margin, alpha=alpha)
        p_values, errors, degrees = few_seeds(contrasts, family)
        by_name = dict(zip(names, p_values.tolist(), strict=True))
        rows = judge(
            effects, better=better, smallest_effect=self.margin, alpha=alpha, p_values=by_name
        )
        spread = dict(zip(names, errors.tolist(), strict=True))
        return [
            _by_normal_theory(row, spread[row.arm], float(degrees[0]), len(rows), better, alpha)
            for row in rows
        ]

    def _effect(self, name: str, before: Floats, contrast: Floats) -> PairedEffect:
        known = [place for place, value in enumerate(contrast) if math.isfinite(value)]
        without = f"without {name}"
        sides = {name: before + contrast, without: before}
        values = {
            side: {self.seeds[place]: float(column[place]) for place in known}
            for side, column in sides.items()
        }
        found = effect(self.plan, values, {name: 1.0, without: -1.0}, self.metric)
        assert found is not None  # of two seeds or more
        return found


def _by_normal_theory(
    row: PairedEffect, error: float, degrees: float, levers: int, better: Better, alpha: float
) -> PairedEffect:
    """The same effect with the interval of `few_seeds`, the verdict that follows, and what a
    headline keeps of it."""
    reach, near = (error * float(stdtrit(degrees, 1.0 - tail)) for tail in (alpha / 2.0, alpha))
    limits = {
        "low": row.mean - reach,
        "high": row.mean + reach,
        "tie_low": row.mean - near,
        "tie_high": row.mean + near,
    }
    moved = row.without_note().noted(NORMAL).model_copy(update=limits)
    assert row.p_adjusted is not None
    word, shrunk = verdict(moved, row.p_adjusted, better=better, alpha=alpha), row.mean
    if word in ("better", "worse"):
        tail = max(float(stdtr(degrees, -abs(row.mean) / error)), 1e-300)
        shrunk = headline_size(row.mean, reach, kept_share(-float(ndtri(tail)), alpha / levers))
    return moved.model_copy(update={"verdict": word, "shrunk": shrunk})


def _means(values: Floats, where: NDArray[np.bool_]) -> Floats:
    """Mean of the cells there are, lever by lever.  (S, R), (R, K) -> (S, K)"""
    return np.asarray(
        np.nan_to_num(values)
        @ where
        / np.maximum(np.isfinite(values) @ where.astype(np.float64), 1.0)
    )


def _with_failures(
    row: PairedEffect, table: FractionTable, arms: Sequence[JudgedArm], cells: Cells
) -> PairedEffect:
    """Where more combinations failed with the lever than without it, the survivors cannot speak for
    it."""
    on = table.on[:, table.levers.index(row.arm)]
    lost = [len(failed_seeds(cells, arm.name)) for arm in arms]
    with_it, without = (
        sum(count for count, own in zip(lost, on, strict=True) if own == side)
        for side in (True, False)
    )
    if not with_it and not without:
        return row
    half = len(on) // 2 * row.planned
    lost_cells = f"{with_it} of {half} cells with it failed, {without} of {half} without it"
    silenced = with_it > without and row.verdict in ("better", "tie")
    if silenced:
        lost_cells += ": survivors alone make it neither better nor a tie"
    word = "inconclusive" if silenced else row.verdict
    warning = remark(
        "cells-failed", lost_cells, with_it=with_it, without=without, silenced=silenced
    )
    return row.warned(warning).model_copy(update={"verdict": word})


def _string(row: PairedEffect, pairs: tuple[Pair, ...]) -> AliasString:
    return AliasString(
        pairs=pairs,
        metric=row.metric,
        n=row.n,
        mean=row.mean,
        low=row.low,
        high=row.high,
        p_adjusted=row.p_adjusted,
    )


def lever_costs(
    plan: Design, arms: Sequence[JudgedArm], costs: Mapping[str, ArmCost]
) -> dict[str, ArmCost]:
    """What a lever costs: the ratio of the geometric means with and without it, over all
    combinations."""
    table, ratios = fraction_of(plan), dict[str, Floats]()
    for name in ("flops_ratio", "time_ratio", "memory_ratio", "parameters_ratio"):
        row = [getattr(costs[arm.name], name) for arm in arms]
        if all(row):
            ratios[name] = np.exp(
                2.0 * np.log(np.array(row, dtype=np.float64)) @ table.signs / len(table.on)
            )
    return {
        lever: ArmCost(**{name: float(row[place]) for name, row in ratios.items()})
        for place, lever in enumerate(table.levers)
    }
