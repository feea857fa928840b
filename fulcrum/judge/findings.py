"""From the cells of a study to everything that is found: effects with verdicts, noise, trends."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fulcrum.judge.cells import Cells
from fulcrum.judge.claim_verdicts import ClaimPlace, judged_claims
from fulcrum.judge.design import BASELINE, Design, JudgedArm, fraction_of
from fulcrum.judge.effects import (
    FractionEffects,
    all_findings,
    confirmed,
    effects_on,
    fraction_effects,
    if_learned,
    interactions,
    scales,
    trends,
)
from fulcrum.judge.equal_cost import at_equal_cost, fronts, targets
from fulcrum.judge.fraction import alias_words, named
from fulcrum.judge.looks import looks_of
from fulcrum.judge.metrics import FAMILY, not_stopped, values_of
from fulcrum.judge.power import contrast_detectable, detectable
from fulcrum.judge.schema import (
    AliasString,
    ClaimResult,
    Effect,
    FractionFacts,
    Front,
    Interaction,
    Noise,
    ScaleFacts,
    Target,
    TimedCost,
    Trend,
)
from fulcrum.judge.sequence import Sequenced, StoppedArm, sequential_findings
from fulcrum.judge.statistics import PairedEffect, noise_floor, pairs_needed, student_interval
from fulcrum.spec.remark import Remark, remark

# --------------------------------------------------------------------------------------------------
# A study that compares arms.


class Findings(NamedTuple):
    """What the cells of a study say."""

    claims: dict[str, tuple[ClaimResult, ...]]  # by arm
    effects: tuple[Effect, ...]
    detectable: dict[str, float | None]  # metric -> what would have been seen of the loudest arm
    noise: tuple[Noise, ...] = ()
    interactions: tuple[Interaction, ...] = ()
    scales: tuple[ScaleFacts, ...] = ()
    trends: tuple[Trend, ...] = ()
    time_to_target: tuple[Target, ...] = ()
    pareto: tuple[Front, ...] = ()


def findings_of(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    metrics: Sequence[str],
    places: Sequence[ClaimPlace] = (),
    costs: Mapping[str, TimedCost] | None = None,
    stopped: Sequence[StoppedArm] = (),
    sequenced: Sequenced | None = None,
) -> Findings:
    """Judge the cells of a study, the metrics in their order.

    places: the claims about the arms.

    stopped: arms that were ended early, and have no final value.

    sequenced: where a plan with looks stands; its cells are those that count.
    """
    running = not_stopped(arms, [one.arm for one in stopped])
    pairs = {metric: effects_on(plan, running, cells, metric) for metric in metrics}
    claims = judged_claims(plan, arms, cells, pairs, places)
    family = len(pairs[plan.primary])
    if plan.confirm == "all":
        family = sum(map(len, pairs.values()))
    at_looks = sequential_findings(plan, arms, cells, sequenced) if sequenced else []
    at_end = {
        metric: rows for metric, rows in pairs.items() if not (sequenced and metric == plan.primary)
    }
    found = [*at_looks, *all_findings(plan, running, cells, at_end)]
    sizes = [_detectable(plan, row, family) for row in found]
    effects = [
        confirmed(plan, row.model_copy(update={"detectable": size}), claims)
        for row, size in zip(found, sizes, strict=True)
    ]
    at_cost = list[Effect]()
    reached = list[Target]()
    for metric in metrics if plan.design != "fractional" else ():
        if costs:
            at_cost += at_equal_cost(plan, running, cells, costs, metric)
        reached += targets(plan, running, cells, costs, metric)
    baseline = {metric: values_of(cells, arms[0].name, metric) for metric in metrics}
    return Findings(
        claims=claims,
        effects=(*effects, *(one.effect for one in stopped), *at_cost),
        detectable=_loudest(effects),
        noise=tuple(
            noise_floor(values, metric) for metric, values in baseline.items() if len(values) > 1
        ),
        interactions=tuple(
            row for metric in metrics for row in interactions(plan, running, cells, metric)
        ),
        scales=tuple(scales(plan, arms)),
        trends=tuple(row for metric in metrics for row in trends(plan, running, cells, metric)),
        time_to_target=tuple(reached),
        pareto=tuple(_fronts(plan, running, cells, costs)) if costs else (),
    )


def _detectable(plan: Design, effect: Effect, arms: int) -> float | None:
    """The smallest true effect that this study would have seen in four of five repeats, with the
    scatter of this arm's differences on this metric. With looks: at the last of them, whatever the
    earlier ones would have seen."""
    if not isinstance(effect, PairedEffect) or effect.sd <= 0:
        return None
    pairs, alpha = effect.n, plan.alpha
    if plan.looks and effect.metric == plan.primary:
        pairs, _, alpha = looks_of(plan.looks, plan.alpha)[-1]
    scatters = detectable(pairs, min(max(arms, 1), FAMILY), alpha=alpha)
    return None if scatters is None else scatters * effect.sd


def _loudest(effects: Sequence[Effect]) -> dict[str, float | None]:
    """Metric -> what would have been seen of the arm whose differences scatter most."""
    most: dict[str, float | None] = {}
    for effect in effects:
        if effect.detectable is not None:
            most[effect.metric] = max(effect.detectable, most.get(effect.metric) or 0.0)
    return most


def _fronts(
    plan: Design,
    arms: Sequence[JudgedArm],
    cells: Cells,
    costs: Mapping[str, TimedCost],
) -> list[Front]:
    means = {}
    for arm in arms:
        values = list(values_of(cells, arm.name, plan.primary).values())
        if len(values) > 1:
            mean = sum(values) / len(values)
            sd = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
            means[arm.name] = (mean, *student_interval(mean, sd, len(values), 1.0 - plan.alpha))
    return fronts(arms, means, costs, plan.primary)


# --------------------------------------------------------------------------------------------------
# A fractional study: its levers are judged in the place of arms.


class FractionFindings(NamedTuple):
    """What the cells of a fractional study say of its levers."""

    claims: dict[str, tuple[ClaimResult, ...]]  # by lever: why each is not compared
    effects: tuple[Effect, ...]
    detectable: dict[str, float | None]
    interactions: tuple[Interaction, ...]
    fraction: FractionFacts
    remarks: tuple[Remark, ...]


def fraction_findings(
    plan: Design,
    arms: Sequence[JudgedArm],
    levers: Sequence[JudgedArm],
    cells: Cells,
    metrics: Sequence[str],
    places: Sequence[ClaimPlace] = (),
) -> FractionFindings:
    """Judge the cells of all combinations (`arms`) for the baseline and the levers alone."""
    table = fraction_of(plan)
    by_metric = {name: fraction_effects(plan, arms, cells, name) for name in metrics}
    judged = [
        if_learned(plan, cells, _with_sight(plan, row, one), BASELINE)
        for one in by_metric.values()
        for row in one.levers
    ]
    lost = [row for one in by_metric.values() for row in one.failed]
    primary = by_metric[plan.primary]
    rule = _rule(plan)
    return FractionFindings(
        claims=judged_claims(plan, levers, cells, {name: [] for name in metrics}, places),
        effects=tuple(confirmed(plan, row) for row in (*judged, *lost)),
        detectable={
            name: max(
                (row.detectable for row in judged if row.metric == name and row.detectable),
                default=None,
            )
            for name in metrics
        },
        interactions=tuple(row for one in by_metric.values() for row in one.interactions),
        fraction=FractionFacts(
            levers=table.levers,
            on=tuple(tuple(map(bool, row)) for row in table.on),
            rule=rule.text,
            codes=(rule,),
            aliased=" ".join(alias_words(table)),
            strings=tuple(primary.strings),
            by_seed=_by_seed(primary),
        ),
        remarks=tuple(_notable(primary.strings, plan.alpha)),
    )


def _with_sight(plan: Design, row: PairedEffect, effects: FractionEffects) -> PairedEffect:
    """With the true effect that would have been seen in four studies of five: of few seeds by the
    scatter that they were judged by, which is no smaller than that of all levers together."""
    together = math.sqrt(sum(one.sd**2 for one in effects.levers) / len(effects.levers))
    scatter = max(row.sd, together) if len(plan.seeds) < pairs_needed(plan.alpha) else row.sd
    units = contrast_detectable(plan, row.n, len(effects.levers)) if scatter > 0.0 else None
    return row.model_copy(update={"detectable": None if units is None else units * scatter})


def _rule(plan: Design) -> Remark:
    if len(plan.seeds) >= pairs_needed(plan.alpha):
        text = f"{len(plan.seeds)} seeds decide by sign flips, as arms are decided."
        return remark("sign-flips", text, seeds=len(plan.seeds))
    text = (
        f"{len(plan.seeds)} seeds are too few for sign flips: the noise is taken to be normal, and"
        " the scatter of an effect over seeds to be that of all levers together, or its own where"
        " that is larger."
    )
    return remark("normal-noise", text, seeds=len(plan.seeds))


def _by_seed(effects: FractionEffects) -> dict[str, dict[int, float]]:
    return {row.arm: dict(zip(row.seeds, row.differences, strict=True)) for row in effects.levers}


def _notable(strings: Sequence[AliasString], alpha: float) -> list[Remark]:
    """Pairs that were not asked for, and seem to interact."""
    return [
        remark(
            "pairs-interact",
            f"Some of {', '.join(map(named, row.pairs))} seem to interact (p {row.p_adjusted:.3f}"
            " among the pairs that were not chosen): name one in `interactions` to see it by"
            " itself.",
            pairs=[list(pair) for pair in row.pairs],
            p=row.p_adjusted,
        )
        for row in strings
        if row.p_adjusted is not None and row.p_adjusted <= alpha
    ]
