"""From finished cells to findings: the effects of all arms, each on its own pairs with its baseline, with verdicts.

The primary metric is what a plan sets out to decide: its arms are one family. Every other metric is exploratory, or, where
the plan says `confirm = "all"`, a part of one joint test over arms and metrics.
"""

from collections.abc import Iterable, Mapping, Sequence

from fulcrum.judge.card import METRICS
from fulcrum.judge.schema import ClaimResult, Effect
from fulcrum.judge.statistics import PairedEffect, corrected, effect_without_pairs, judge, paired_effect
from fulcrum.spec.remark import Remark, remark
from fulcrum.study.judge.margins import margins, not_learned
from fulcrum.study.judge.pairing import (
    EQUAL,
    Failures,
    Measurements,
    PairedArm,
    compared,
    may_differ,
    require_same_card,
    values_of,
)
from fulcrum.study.plan.arms import Arm, baseline_of
from fulcrum.study.plan.plan import Plan
from fulcrum.training.dist.machine import unlike

EXPLORATORY = "exploratory"  # in the place of a verdict: not what the plan set out to decide
NONE_FAILED: Failures = {}


def all_findings(
    plan: Plan, arms: Sequence[PairedArm], measured: Measurements, effects: Mapping[str, Sequence[Effect]]
) -> list[Effect]:
    """The effects on all metrics (metric -> effects) with verdicts: each metric is a family, or all of them are one, as the
    plan asks. All scales are in one family: a sign flip flips a seed at every scale."""
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
    if plan.design == "fractional":  # its combinations are no arms to be compared one by one: see main_effects.py
        return []
    seeds, level = plan.seeds if seeds is None else seeds, 1.0 - plan.alpha if level is None else level
    effects = [
        _effect_of(arm, baseline_of(arm, arms), measured, metric, failed, seeds, level) for arm in compared(arms, metric)
    ]
    return [effect for effect in effects if effect is not None]


def _effect_of(
    arm: Arm, base: Arm, measured: Measurements, metric: str, failed: Failures, seeds: Sequence[int], level: float
) -> Effect | None:
    cells, base_cells = (measured.get(one.name, {}) for one in (arm, base))
    after, before = (values_of(measured, one.name, metric) for one in (arm, base))
    finished = [seed for seed in seeds if seed in cells and seed in base_cells]
    pairs = [seed for seed in finished if seed in after and seed in before]
    for seed in pairs:
        require_same_card(base_cells[seed], cells[seed], metric, may_differ(arm))
    lost, base_lost = ([seed for seed in seeds if seed in failed.get(one.name, {})] for one in (arm, base))
    if len(pairs) > 1:
        effect: Effect = paired_effect(
            before, after, name=arm.name, metric=metric, unit=EQUAL, seeds=pairs, planned=len(seeds), failed=len(lost),
            level=level,
        )  # fmt: skip
    elif set(seeds) <= {*finished, *lost, *base_lost}:  # no more can come
        only = after[pairs[0]] - before[pairs[0]] if pairs else None
        effect = effect_without_pairs(arm.name, metric, unit=EQUAL, planned=len(seeds), failed=len(lost), mean=only)
    else:
        return None
    warnings = (
        *_missing("pairs-without-number", [seed for seed in finished if seed not in pairs], "no number"),
        *_missing(
            "pairs-without-baseline",
            [seed for seed in base_lost if seed not in lost],
            f"{'the ' * base.is_baseline}{base.name} failed",
        ),
    )
    unlike_pairs = sum(unlike(base_cells[seed], cells[seed]) for seed in pairs)
    return effect.warned(*warnings).model_copy(update={"unlike": unlike_pairs})


def _missing(code: str, seeds: Sequence[int], why: str) -> tuple[Remark, ...]:
    """'the pair of seed 3 is missing: no number'"""
    if not seeds:
        return ()
    listed = ", ".join(map(str, seeds))
    one = len(seeds) == 1
    text = f"the {'pair of seed' if one else 'pairs of seeds'} {listed} {'is' if one else 'are'} missing: {why}"
    return (remark(code, text, seeds=list(seeds)),)


def judged(
    plan: Plan, arms: Sequence[PairedArm], measured: Measurements, metric: str, effects: Sequence[Effect],
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
    known = [if_learned(plan, measured, row, against[row.arm]) for row in rows]
    return [*known, *(effect for effect in effects if not isinstance(effect, PairedEffect))]


def paired(families: Iterable[Sequence[Effect]]) -> list[PairedEffect]:
    return [effect for family in families for effect in family if isinstance(effect, PairedEffect)]


def if_learned(plan: Plan, measured: Measurements, row: PairedEffect, base: str) -> PairedEffect:
    """A tie says something only where the baseline has learned something."""
    why = not_learned(measured, base, row.metric, 1.0 - plan.alpha) if row.verdict == "tie" else None
    return row if why is None else row.noted(why).model_copy(update={"verdict": "not learned"})


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
