"""From finished cells to findings: the paired effects of all arms on one metric, with verdicts.

The primary metric is what a plan sets out to decide: its arms are one family. Every other metric is exploratory.
"""

from collections.abc import Collection, Mapping, Sequence

from fulcrum.measure.card import METRICS
from fulcrum.report.arm_result import ClaimResult
from fulcrum.study.judge.effect import PairedEffect, paired_effect
from fulcrum.study.judge.margins import margins
from fulcrum.study.judge.pairing import EQUAL, Measurements, compared, may_differ, require_same_card, value_of
from fulcrum.study.judge.verdict import judge
from fulcrum.study.plan.arms import Arm, baseline_of
from fulcrum.study.plan.plan import Plan

EXPLORATORY = "exploratory"  # in the place of a verdict: not what the plan set out to decide


def findings(
    plan: Plan, arms: Sequence[Arm], measured: Measurements, metric: str, stopped: Collection[str] = ()
) -> list[PairedEffect]:
    """Effects of all arms on one metric, over the seeds that every arm has finished; cards must match.

    All scales are one family: a sign flip flips a seed at every scale. Arms that were stopped early are censored: left out.
    """
    arms = [arm for arm in arms if arm.name not in stopped]
    seeds = common_seeds(plan, arms, measured)
    if len(seeds) < 2:
        return []
    effects = []
    for arm in compared(arms, metric):
        base, allowed = baseline_of(arm, arms), may_differ(arm)
        for seed in seeds:
            require_same_card(measured[base.name][seed], measured[arm.name][seed], metric, allowed)
        before, after = ({seed: value_of(measured[one.name][seed], metric) for seed in seeds} for one in (base, arm))
        effects.append(paired_effect(before, after, name=arm.name, metric=metric, unit=EQUAL, seeds=seeds))
    if not effects:
        return []
    smallest = margins(plan, arms, measured, metric)
    return judge(effects, better=METRICS[metric].better, smallest_effect=smallest, alpha=plan.alpha)


def common_seeds(plan: Plan, arms: Sequence[Arm], measured: Measurements) -> list[int]:
    return [seed for seed in plan.seeds if all(seed in measured.get(arm.name, {}) for arm in arms)]


def confirmed(plan: Plan, effect: PairedEffect, claims: Mapping[str, Sequence[ClaimResult]] = {}) -> PairedEffect:
    """The effect with a verdict only where the plan set out to decide it, and with the verdict on what is claimed of it."""
    decided = effect.unit == EQUAL and (effect.metric == plan.primary or plan.confirm == "all")
    held = [claim.verdict for claim in claims.get(effect.arm, ()) if claim.seen == effect.metric]
    return effect.model_copy(
        update={
            "exploratory": not decided,
            "verdict": effect.verdict if decided else EXPLORATORY,
            "claim_verdict": held[0] if held and effect.unit == EQUAL and held[0] != "not comparable" else None,
        }
    )
