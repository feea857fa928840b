"""From finished cells to findings: the effects of all arms, each on its own pairs with its baseline, with verdicts.

The primary metric is what a plan sets out to decide: its arms are one family. Every other metric is exploratory, or, where
the plan says `confirm = "all"`, a part of one joint test over arms and metrics.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from fulcrum.measure.card import METRICS
from fulcrum.report.arm_result import ClaimResult
from fulcrum.report.finding import Effect
from fulcrum.study.judge.effect import PairedEffect, effect_without_pairs, paired_effect
from fulcrum.study.judge.margins import margins, not_learned
from fulcrum.study.judge.pairing import (
    EQUAL,
    Failures,
    Measurements,
    compared,
    may_differ,
    not_stopped,
    require_same_card,
    values_of,
)
from fulcrum.study.judge.rank import corrected
from fulcrum.study.judge.verdict import judge
from fulcrum.study.plan.arms import Arm, baseline_of
from fulcrum.study.plan.plan import Plan
from fulcrum.study.run.machine import unlike

EXPLORATORY = "exploratory"  # in the place of a verdict: not what the plan set out to decide
NONE_FAILED: Failures = {}


def findings(
    plan: Plan, arms: Sequence[Arm], measured: Measurements, metric: str, stopped: Collection[str] = (),
    failed: Failures = NONE_FAILED,
) -> list[Effect]:  # fmt: skip
    """Effects of all arms on one metric, judged as one family.

    All scales are one family: a sign flip flips a seed at every scale. Arms that were stopped early are censored: left out.
    """
    arms = not_stopped(arms, stopped)
    return judged(plan, arms, measured, metric, effects_on(plan, arms, measured, metric, failed))


def all_findings(
    plan: Plan, arms: Sequence[Arm], measured: Measurements, effects: Mapping[str, Sequence[Effect]]
) -> list[Effect]:
    """The effects on all metrics (metric -> effects) with verdicts: each metric is a family, or all of them are one, as the
    plan asks."""
    p_values = joint_p_values(paired(effects.values()), plan.alpha) if plan.confirm == "all" else None
    return [row for metric in effects for row in judged(plan, arms, measured, metric, effects[metric], p_values)]


def effects_on(
    plan: Plan, arms: Sequence[Arm], measured: Measurements, metric: str, failed: Failures = NONE_FAILED, *,
    seeds: Sequence[int] | None = None, level: float | None = None,
) -> list[Effect]:  # fmt: skip
    """Effects on one metric, not yet judged, over the pairs that each arm has with what it is held against; `seeds` and
    `level` where a plan looks before its end. Cards must match.

    A seed without a number on either side is missing for this metric alone. An arm with fewer than two pairs has no effect
    while more may come, and one without an interval when none can.
    """
    seeds, level, effects = plan.seeds if seeds is None else seeds, level or 1.0 - plan.alpha, list[Effect]()
    for arm in compared(arms, metric):
        base = baseline_of(arm, arms)
        cells = [measured.get(one.name, {}) for one in (base, arm)]
        before, after = (values_of(measured, one.name, metric) for one in (base, arm))
        finished = [seed for seed in seeds if all(seed in side for side in cells)]
        pairs = [seed for seed in finished if seed in before and seed in after]
        for seed in pairs:
            require_same_card(cells[0][seed], cells[1][seed], metric, may_differ(arm))
        lost, base_lost = ([seed for seed in seeds if seed in failed.get(one.name, {})] for one in (arm, base))
        warnings = (
            *_missing("has no number", [seed for seed in finished if seed not in pairs]),
            *_missing("failed in the baseline", [seed for seed in base_lost if seed not in lost]),
        )
        if len(pairs) > 1:
            effect: Effect = paired_effect(
                before, after, name=arm.name, metric=metric, unit=EQUAL, seeds=pairs, planned=len(seeds),
                failed=len(lost), level=level,
            )  # fmt: skip
        elif set(seeds) <= {*finished, *lost, *base_lost}:
            only = after[pairs[0]] - before[pairs[0]] if pairs else None
            effect = effect_without_pairs(
                arm.name, metric, unit=EQUAL, planned=len(seeds), failed=len(lost), mean=only
            )  # fmt: skip
        else:
            continue
        strangers = sum(unlike(cells[0][seed], cells[1][seed]) for seed in pairs)
        effects.append(effect.model_copy(update={"warnings": warnings, "unlike": strangers}))
    return effects


def _missing(why: str, seeds: Sequence[int]) -> tuple[str, ...]:
    if not seeds:
        return ()
    listed = ", ".join(map(str, seeds))
    return (f"seed {listed} {why}: its pair is missing",) if len(seeds) == 1 else (f"seeds {listed}: {why}",)


def judged(
    plan: Plan, arms: Sequence[Arm], measured: Measurements, metric: str, effects: Sequence[Effect],
    p_values: Mapping[tuple[str, str], float] | None = None,
) -> list[Effect]:  # fmt: skip
    """The effects of one metric with verdicts, best first, then those without an interval; `p_values` of a larger one."""
    pairs, against = paired([effects]), {arm.name: arm.against for arm in arms}
    if not pairs:
        return list(effects)
    own = None if p_values is None else {effect.arm: p_values[effect.arm, metric] for effect in pairs}
    rows = judge(
        pairs,
        better=METRICS[metric].better,
        smallest_effect=margins(plan, arms, measured, metric),
        alpha=plan.alpha,
        p_values=own,
    )
    known = [_learned(plan, measured, row, against[row.arm]) for row in rows]
    return [*known, *(effect for effect in effects if not isinstance(effect, PairedEffect))]


def paired(families: Iterable[Sequence[Effect]]) -> list[PairedEffect]:
    return [effect for family in families for effect in family if isinstance(effect, PairedEffect)]


def _learned(plan: Plan, measured: Measurements, row: PairedEffect, base: str) -> PairedEffect:
    """A tie says something only where the baseline has learned something."""
    why = not_learned(measured, base, row.metric, 1.0 - plan.alpha) if row.verdict == "tie" else ""
    return (
        row.model_copy(update={"verdict": "not learned", "note": "; ".join(filter(None, (row.note, why)))}) if why else row
    )


def joint_p_values(effects: Sequence[PairedEffect], alpha: float) -> dict[tuple[str, str], float]:
    """(arm, metric) -> p corrected over arms and metrics together: one sign vector flips a seed of all of them."""
    p_values = corrected(effects, alpha) if effects else []
    return {(effect.arm, effect.metric): p for effect, p in zip(effects, p_values, strict=True)}


def confirmed(plan: Plan, effect: Effect, claims: Mapping[str, Sequence[ClaimResult]] | None = None) -> Effect:
    """The effect with a verdict only where the plan set out to decide it, and with the verdict on what is claimed of it."""
    decided = effect.unit == EQUAL and (effect.metric == plan.primary or plan.confirm == "all")
    about = [claim.verdict for claim in (claims or {}).get(effect.arm, ()) if claim.seen == effect.metric]
    return effect.model_copy(
        update={
            "exploratory": not decided,
            "verdict": effect.verdict if decided or effect.verdict == "failed" else EXPLORATORY,
            "claim_verdict": about[0] if about and about[0] != "not comparable" else None,
        }
    )
