"""Effects of a fractional design: what each lever does on average over the others, and what pairs do beyond their sum.

Under one seed a lever's contrast is the mean of the combinations that have it, minus the mean of those that have not: one
number per seed, which is judged as the paired difference of an arm is. It is symmetric however skewed the cells are, since
as many of them count plus as minus.

A plan of six seeds or more is decided by sign flips. With fewer they cannot, and normal noise is assumed: the variance of
a contrast over seeds is that of all levers together, or the lever's own where that is larger (one may answer to the seed
more than the rest), and p-values are corrected as Sidak does, step by step. The textbook's residual over all cells is not
used: an effect that differs from seed to seed is no part of it, and it errs in up to 30 % of studies.

S seeds, R combinations, C contrasts
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from fulcrum.judge.card import METRICS, Better
from fulcrum.judge.schema import AliasString, ArmCost, Effect, Interaction
from fulcrum.judge.statistics import (
    Floats,
    PairedEffect,
    effect_without_pairs,
    headline_size,
    judge,
    kept_share,
    paired_effect,
    pairs_needed,
    verdict,
)
from fulcrum.spec.remark import remark
from fulcrum.study.judge.contrast import interaction
from fulcrum.study.judge.margins import margins
from fulcrum.study.judge.pairing import EQUAL, Failures, Measurements, may_differ, other_loss, require_same_card, values_of
from fulcrum.study.plan.arms import Arm, baseline_of
from fulcrum.study.plan.design import BASELINE, fraction_of
from fulcrum.study.plan.fraction import FractionTable, alias_strings, named
from fulcrum.study.plan.plan import Plan

Pair = tuple[str, str]

NORMAL = remark("normal-noise", "so few seeds decide only by the scatter of all levers together, taken to be normal")


class FractionEffects(NamedTuple):
    """What a fractional design says on one metric."""

    levers: list[PairedEffect]
    failed: list[Effect]  # of levers with which nothing finished
    interactions: list[Interaction]  # of the chosen pairs
    strings: list[AliasString]  # other pairs, those together that cannot be told apart


NOTHING = FractionEffects([], [], [], [])


def fraction_effects(
    plan: Plan, arms: Sequence[Arm], measured: Measurements, metric: str, failed: Failures
) -> FractionEffects:
    """Effects over the seeds of which every combination has finished or failed."""
    table, names = fraction_of(plan), [arm.name for arm in arms]
    if metric == "validation_loss" and any(other_loss(arm, baseline_of(arm, arms)) for arm in arms):
        return NOTHING  # of combinations whose losses are not of one kind no mean can be taken
    seeds = [
        seed for seed in plan.seeds if all(seed in measured.get(name, {}) or seed in failed.get(name, ()) for name in names)
    ]
    for arm in arms[1:]:
        for seed in (one for one in seeds if one in measured.get(arm.name, {}) and one in measured.get(BASELINE, {})):
            require_same_card(measured[BASELINE][seed], measured[arm.name][seed], metric, may_differ(arm))
    by_arm, smallest = [values_of(measured, name, metric) for name in names], margins(plan, arms, measured, metric)
    values = np.array([[one.get(seed, math.nan) for one in by_arm] for seed in seeds]).reshape(len(seeds), len(names))
    if len(seeds) < 2 or not smallest:
        return NOTHING
    family = _Family(plan, metric, seeds, next(iter(smallest.values())))
    alone, strings = lever_contrasts(values, table), alias_strings(table)
    together, listed = pair_contrasts(values, table), {named(string[0]): string for string in strings}
    rows = family.judged(table.levers, alone, alone, _means(values, ~table.on))
    keys, count = list(listed), len(table.chosen)
    pairs = family.judged(keys[:count], together[:, :count], together)
    others = family.judged(keys[count:], together[:, count:], together)
    lost = set(table.levers) - {row.arm for row in rows}
    return FractionEffects(
        [_with_failures(row, table, arms, failed) for row in rows],
        [
            effect_without_pairs(lever, metric, unit=EQUAL, planned=len(seeds), failed=len(seeds))
            for lever in table.levers
            if lever in lost
        ],
        [interaction(row, listed[row.arm][0], metric == plan.primary) for row in pairs],
        [_string(row, listed[row.arm]) for row in sorted(others, key=lambda row: row.p_adjusted or 0.0)],
    )


def lever_contrasts(values: Floats, table: FractionTable) -> Floats:
    """With minus without, lever by lever.  (S, R) -> (S, K); NaN in a seed whose cells do not tell it."""
    return 2.0 * _fitted(values, table)[:, : len(table.levers)]


def pair_contrasts(values: Floats, table: FractionTable) -> Floats:
    """What one lever of a pair does with the other, minus what it does without it, string by string.  (S, R) -> (S, C)

    A seed that lost cells tells the chosen pairs, and no others.
    """
    strings = alias_strings(table)
    columns = np.array([table.together(string[0]) for string in strings]).reshape(len(strings), len(table.on))
    contrasts = 4.0 * values @ columns.T / len(table.on)  # NaN where a cell was lost
    contrasts[:, : len(table.chosen)] = 4.0 * _fitted(values, table)[:, len(table.levers) :]
    return np.asarray(contrasts)


def _fitted(values: Floats, table: FractionTable) -> Floats:
    """Coefficients of levers and chosen pairs, each seed by itself.  (S, R) -> (S, C)

    Where cells failed, least squares on what is left, and NaN for what that does not tell: a lever with which everything
    failed. Levers are then clear of the chosen pairs as before, and of others not quite.
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
    """Corrected p-values, standard errors and degrees of freedom of contrasts (..., S, C), by normal theory; `family`
    (..., S, F) are all that scatter over seeds for the same reasons. NaN where a seed does not tell a contrast."""
    counts, means, squares = _scatter(contrasts)
    weights, _, shared = _scatter(family)
    degrees = np.maximum(weights - 1.0, 0.0).sum(axis=-1, keepdims=True)
    together = shared.sum(axis=-1, keepdims=True) / np.maximum(degrees, 1.0)
    errors = np.sqrt(np.maximum(squares / np.maximum(counts - 1.0, 1.0), together) / np.maximum(counts, 1.0))
    p_values = 2.0 * np.asarray(stdtr(degrees, -np.abs(means) / np.where(errors > 0.0, errors, math.inf)))
    order = np.argsort(p_values, axis=-1)  # Sidak's correction, the smallest p first
    left = p_values.shape[-1] - np.arange(p_values.shape[-1])
    corrected = np.maximum.accumulate(1.0 - (1.0 - np.take_along_axis(p_values, order, axis=-1)) ** left, axis=-1)
    return np.asarray(np.take_along_axis(corrected, np.argsort(order, axis=-1), axis=-1)), errors, degrees


def _scatter(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Number, mean and summed squares about it of every column.  (..., S, C) -> three of (..., C)"""
    there = np.isfinite(values)
    counts = there.sum(axis=-2, dtype=np.float64)
    means = np.where(there, values, 0.0).sum(axis=-2) / np.maximum(counts, 1.0)
    return counts, means, np.square(np.where(there, values - means[..., None, :], 0.0)).sum(axis=-2)


class _Family(NamedTuple):
    """What the contrasts of one metric share as they are judged."""

    plan: Plan
    metric: str
    seeds: Sequence[int]
    margin: float

    def judged(
        self, names: Sequence[str], contrasts: Floats, family: Floats, off: Floats | None = None
    ) -> list[PairedEffect]:
        """Contrasts (S, C) as effects with verdicts, best first; `off` (S, C): the side without the lever. What fewer than
        two seeds tell is left out."""
        known = np.isfinite(contrasts).sum(axis=0) > 1
        names, contrasts = [name for name, one in zip(names, known, strict=True) if one], contrasts[:, known]
        before = np.zeros_like(contrasts) if off is None else off[:, known]
        if not names:
            return []
        alpha, better = self.plan.alpha, METRICS[self.metric].better
        effects = [self._effect(name, before[:, place], contrasts[:, place]) for place, name in enumerate(names)]
        if len(self.plan.seeds) >= pairs_needed(alpha):
            return judge(effects, better=better, smallest_effect=self.margin, alpha=alpha)
        p_values, errors, degrees = few_seeds(contrasts, family)
        by_name = dict(zip(names, p_values.tolist(), strict=True))
        rows = judge(effects, better=better, smallest_effect=self.margin, alpha=alpha, p_values=by_name)
        spread = dict(zip(names, errors.tolist(), strict=True))
        return [_by_normal_theory(row, spread[row.arm], float(degrees[0]), len(rows), better, alpha) for row in rows]

    def _effect(self, name: str, before: Floats, contrast: Floats) -> PairedEffect:
        known = [place for place, value in enumerate(contrast) if math.isfinite(value)]
        sides = [{self.seeds[place]: float(side[place]) for place in known} for side in (before, before + contrast)]
        return paired_effect(
            *sides,
            name=name,
            metric=self.metric,
            unit=EQUAL,
            planned=len(self.plan.seeds),
            level=1.0 - self.plan.alpha,
        )


def _by_normal_theory(
    row: PairedEffect, error: float, degrees: float, levers: int, better: Better, alpha: float
) -> PairedEffect:
    """The same effect with the interval of `few_seeds`, the verdict that follows, and what a headline keeps of it."""
    reach, near = (error * float(stdtrit(degrees, 1.0 - tail)) for tail in (alpha / 2.0, alpha))
    limits = {"low": row.mean - reach, "high": row.mean + reach, "tie_low": row.mean - near, "tie_high": row.mean + near}
    moved = row.without_note().noted(NORMAL).model_copy(update=limits)
    assert row.p_adjusted is not None
    word, shrunk = verdict(moved, row.p_adjusted, better=better, alpha=alpha), row.mean
    if word in ("better", "worse"):
        tail = max(float(stdtr(degrees, -abs(row.mean) / error)), 1e-300)
        shrunk = headline_size(row.mean, reach, kept_share(-float(ndtri(tail)), alpha / levers))
    return moved.model_copy(update={"verdict": word, "shrunk": shrunk})


def _means(values: Floats, where: NDArray[np.bool_]) -> Floats:
    """Mean of the cells there are, lever by lever.  (S, R), (R, K) -> (S, K)"""
    return np.asarray(np.nan_to_num(values) @ where / np.maximum(np.isfinite(values) @ where.astype(np.float64), 1.0))


def _with_failures(row: PairedEffect, table: FractionTable, arms: Sequence[Arm], failed: Failures) -> PairedEffect:
    """Where more combinations failed with the lever than without it, the survivors cannot speak for it."""
    on = table.on[:, table.levers.index(row.arm)]
    lost = [len(failed.get(arm.name, ())) for arm in arms]
    with_it, without = (sum(count for count, own in zip(lost, on, strict=True) if own == side) for side in (True, False))
    if not with_it and not without:
        return row
    half = len(on) // 2 * row.planned
    lost_cells = f"{with_it} of {half} cells with it failed, {without} of {half} without it"
    silenced = with_it > without and row.verdict in ("better", "tie")
    if silenced:
        lost_cells += ": survivors alone make it neither better nor a tie"
    word = "inconclusive" if silenced else row.verdict
    warning = remark("cells-failed", lost_cells, with_it=with_it, without=without, silenced=silenced)
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


def lever_costs(plan: Plan, arms: Sequence[Arm], costs: Mapping[str, ArmCost]) -> dict[str, ArmCost]:
    """What a lever costs: the ratio of the geometric means with and without it, over all combinations."""
    table, ratios = fraction_of(plan), dict[str, Floats]()
    for name in ("flops_ratio", "time_ratio", "memory_ratio", "parameters_ratio"):
        row = [getattr(costs[arm.name], name) for arm in arms]
        if all(row):
            ratios[name] = np.exp(2.0 * np.log(np.array(row, dtype=np.float64)) @ table.signs / len(table.on))
    return {
        lever: ArmCost(**{name: float(row[place]) for name, row in ratios.items()})
        for place, lever in enumerate(table.levers)
    }
