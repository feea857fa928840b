"""A fractional study as the report shows it: its levers in the place of arms, the combinations that were trained beside
them."""

import math
from collections.abc import Mapping, Sequence

from fulcrum.judge.schema import AliasString, ArmCost, FractionFacts, StudyResult
from fulcrum.judge.statistics import PairedEffect, pairs_needed
from fulcrum.spec.remark import Remark, remark
from fulcrum.study.judge.claims import study_claims
from fulcrum.study.judge.findings import confirmed, if_learned
from fulcrum.study.judge.main_effects import FractionEffects, fraction_effects, lever_costs
from fulcrum.study.judge.pairing import Failures, Measurements
from fulcrum.study.judge.remarks import remarks
from fulcrum.study.judge.report_arms import shown_arm
from fulcrum.study.plan.design import BASELINE, fraction_of
from fulcrum.study.plan.fraction import alias_words, named
from fulcrum.study.plan.fraction_power import contrast_detectable
from fulcrum.study.plan.plan import Plan
from fulcrum.study.run.layout import Layout


def as_fraction(
    plan: Plan,
    layout: Layout,
    measured: Measurements,
    failed: Failures,
    costs: Mapping[str, ArmCost] | None,
    result: StudyResult,
) -> StudyResult:
    """The result of all cells, with effects of levers instead of arms."""
    table, arms = fraction_of(plan), [layout.arms[0], *layout.levers]
    metrics = [metric.name for metric in result.metrics]
    by_metric = {name: fraction_effects(plan, layout.arms, measured, name, failed) for name in metrics}
    judged = [row for one in by_metric.values() for row in one.levers]
    lost = [row for one in by_metric.values() for row in one.failed]
    claims = study_claims(plan, arms, measured, {name: [] for name in metrics})  # each tells why it is not held
    judged = [if_learned(plan, measured, _with_sight(plan, row, by_metric[row.metric]), BASELINE) for row in judged]
    effects = [confirmed(plan, row) for row in (*judged, *lost)]
    spent = lever_costs(plan, layout.arms, costs) if costs else {}
    primary, rule = by_metric[plan.primary], _rule(plan)
    found = (*remarks(plan, arms, layout.searches), *_notable(primary.strings, plan.alpha))
    return StudyResult(
        **{
            **{name: getattr(result, name) for name in StudyResult.model_fields},
            "arms": (
                result.arms[0],
                *(shown_arm(plan, arm, arms, (), spent.get(arm.name), claims[arm.name]) for arm in layout.levers),
            ),
            "combinations": result.arms[1:],
            "effects": tuple(effects),
            "detectable": {
                name: max((row.detectable for row in judged if row.metric == name and row.detectable), default=None)
                for name in metrics
            },
            "remarks": tuple(one.text for one in found),
            "codes": found,
            "interactions": tuple(row for one in by_metric.values() for row in one.interactions),
            "time_to_target": (),
            "pareto": (),
            "fraction": FractionFacts(
                levers=table.levers,
                on=tuple(tuple(map(bool, row)) for row in table.on),
                rule=rule.text,
                codes=(rule,),
                aliased=" ".join(alias_words(table)),
                strings=tuple(primary.strings),
                by_seed=_by_seed(primary),
            ),
        }
    )


def _with_sight(plan: Plan, row: PairedEffect, effects: FractionEffects) -> PairedEffect:
    """With the true effect that would have been seen in four studies of five: of few seeds by the scatter that they were
    judged by, which is no smaller than that of all levers together."""
    together = math.sqrt(sum(one.sd**2 for one in effects.levers) / len(effects.levers))
    scatter = max(row.sd, together) if len(plan.seeds) < pairs_needed(plan.alpha) else row.sd
    units = contrast_detectable(plan, row.n, len(effects.levers)) if scatter > 0.0 else None
    return row.model_copy(update={"detectable": None if units is None else units * scatter})


def _rule(plan: Plan) -> Remark:
    if len(plan.seeds) >= pairs_needed(plan.alpha):
        text = f"{len(plan.seeds)} seeds decide by sign flips, as arms are decided."
        return remark("sign-flips", text, seeds=len(plan.seeds))
    text = (
        f"{len(plan.seeds)} seeds are too few for sign flips: the noise is taken to be normal, and the scatter of an "
        "effect over seeds to be that of all levers together, or its own where that is larger."
    )
    return remark("normal-noise", text, seeds=len(plan.seeds))


def _by_seed(effects: FractionEffects) -> dict[str, dict[int, float]]:
    return {row.arm: dict(zip(row.seeds, row.differences, strict=True)) for row in effects.levers}


def _notable(strings: Sequence[AliasString], alpha: float) -> list[Remark]:
    """Pairs that were not asked for, and seem to interact."""
    return [
        remark(
            "pairs-interact",
            f"Some of {', '.join(map(named, row.pairs))} seem to interact (p {row.p_adjusted:.3f} among "
            "the pairs that were not chosen): name one in `interactions` to see it by itself.",
            pairs=[list(pair) for pair in row.pairs],
            p=row.p_adjusted,
        )
        for row in strings
        if row.p_adjusted is not None and row.p_adjusted <= alpha
    ]
