"""From finished cells to findings: paired effects with verdicts, held against claims, and what a reader must know."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fulcrum.levers.base import Claim
from fulcrum.measure.card import METRICS, MetricCard, compatible
from fulcrum.report.finding import RateSearch
from fulcrum.spec.edit import inside
from fulcrum.study.judge.effect import PairedEffect, paired_effect
from fulcrum.study.judge.rank import pairs_needed
from fulcrum.study.judge.verdict import Claimed, claimed_direction, judge
from fulcrum.study.plan.arms import Arm, baseline_of, unequal
from fulcrum.study.plan.plan import Plan
from fulcrum.study.run.measuring.run_evaluation import loss_of

CLAIMED_AS = {"frechet": "fid", "mmd": "cmmd"}  # which published metric ours stands beside
JUDGED_BY = ("flow", "encode.codec", "sample.prompts", "data.stages")  # what a held-out loss can depend on
EQUAL = "images"  # what was held equal

Measurements = Mapping[str, Mapping[int, Any]]  # arm -> seed -> what was measured of the finished cell


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
    effects, claims = [], {}
    for arm in compared(arms, metric):
        base, allowed = baseline_of(arm, arms), may_differ(arm)
        for seed in seeds:
            _require_same_card(measured[base.name][seed], measured[arm.name][seed], metric, allowed)
        before, after = ({seed: value_of(measured[one.name][seed], metric) for seed in seeds} for one in (base, arm))
        effects.append(paired_effect(before, after, name=arm.name, metric=metric, unit=EQUAL, seeds=seeds))
        claim = _claim(arm, metric)
        if claim is not None:
            claims[arm.name] = claimed_by(claim)
    if not effects:
        return []
    return judge(
        effects,
        better=METRICS[metric].better,
        smallest_effect=smallest(plan, metric, effects),
        claims=claims,
        alpha=plan.alpha,
    )


def common_seeds(plan: Plan, arms: Sequence[Arm], measured: Measurements) -> list[int]:
    return [seed for seed in plan.seeds if all(seed in measured.get(arm.name, {}) for arm in arms)]


def compared(arms: Sequence[Arm], metric: str) -> list[Arm]:
    """The arms whose values of a metric may stand beside their baseline's."""
    return [
        arm
        for arm in arms
        if not arm.is_baseline and not (metric == "validation_loss" and other_loss(arm, baseline_of(arm, arms)))
    ]


def smallest(plan: Plan, metric: str, effects: Sequence[PairedEffect]) -> dict[str, float]:
    """Arm -> the smallest effect of interest."""
    return {
        effect.arm: plan.smallest_effect if metric == plan.primary else plan.smallest_relative * abs(effect.baseline)
        for effect in effects
    }


def may_differ(arm: Arm) -> tuple[str, ...]:
    """Fields of a metric card that this arm's levers openly change."""
    fields = {"sample.prompts": "prompts", "sample.guide": "guidance", "sample.steps": "steps", "sample.shift": "sampler"}
    return tuple(
        sorted({field for change in arm.changes for path, field in fields.items() if change.path.startswith(path)})
    )


def other_loss(arm: Arm, base: Arm) -> bool:
    """Does the arm openly change what a held-out loss is a loss of? Then there is nothing to compare."""
    touched = any(inside(change.path, JUDGED_BY) for change in arm.changes)
    return touched and loss_of(arm.run) != loss_of(base.run)


def _claim(arm: Arm, metric: str) -> Claim | None:
    """What was published about adding the arm's levers; taking one away from a stack is another question."""
    name = CLAIMED_AS.get(metric)
    return next((claim for lever in arm.added for claim in lever.card.claims if claim.metric == name), None)


def claimed_by(claim: Claim) -> Claimed:
    """What a published claim says about this study: its metrics fall, and its direction may not carry over to our scale."""
    return Claimed(claimed_direction(claim.change, "lower"), "scaled" if claim.carries else "other")


def value_of(cell: Mapping[str, Any], metric: str) -> float:
    return float(cell["metrics"][metric]["value"])


def _require_same_card(one: Mapping[str, Any], other: Mapping[str, Any], metric: str, may_differ: tuple[str, ...]) -> None:
    """Refuse numbers that were not measured alike, but for what the arm's levers openly change."""
    mine, yours = one["metrics"][metric]["card"], other["metrics"][metric]["card"]
    if mine != yours:
        compatible(MetricCard(**mine), MetricCard(**yours), may_differ)


def remarks(plan: Plan, arms: Sequence[Arm], searches: Sequence[RateSearch] = ()) -> list[str]:
    """What a reader must know before believing the effects."""
    lines = [*_rates(plan, searches)]
    if len(plan.seeds) < pairs_needed(plan.alpha):
        lines.append(
            f"{len(plan.seeds)} pairs cannot reach significance at {plan.alpha:g}: it takes "
            f"{pairs_needed(plan.alpha)}. Read the intervals, not the verdicts."
        )
    lines += [f"{arm.name}: {lever.card.warns}" for arm in arms for lever in arm.added if lever.card.warns]
    for arm in arms:
        count = len(arm.added) + len(arm.removed)
        if arm.compound and count > 1:
            lines.append(f"{arm.name} is a compound of {count} levers: its effect belongs to them together.")
        lines += [f"{arm.name} {label}." for label in arm.labels]
    apart = [arm.name for arm in arms if other_loss(arm, baseline_of(arm, arms))]
    lines += (
        [
            f"The validation loss of {', '.join(apart)} is not compared: the objective, the latent space or the prompts "
            "are not the baseline's."
        ]
        if apart
        else []
    )
    labelled = {arm.name: may_differ(arm) for arm in arms if may_differ(arm)}
    lines += [f"{name} is evaluated with other {', '.join(fields)} than the baseline." for name, fields in labelled.items()]
    lines += unequal(arms)
    if plan.design == "leave_one_out":
        lines.append(
            "Each arm is the whole stack without one lever: a lever that helps makes its arm worse. Published "
            "claims are about adding a lever to a plain recipe, and are not held against this."
        )
    if plan.trunk is not None:
        lines.append(
            f"All arms branch from '{plan.trunk}' trained for {plan.trunk_images:,} images with the same seed: the "
            "effects are those of a late change, not of training with it from the start."
        )
    return lines


def _rates(plan: Plan, searches: Sequence[RateSearch]) -> list[str]:
    if isinstance(plan.learning_rates, str):
        return [
            f"Learning rates: {plan.learning_rates}. Every arm ran at the recipe's rate; no arm was tuned, so a "
            "verdict on an optimizer or a precision holds at this rate only."
        ]
    lines = [
        f"Learning rates: {plan.learning_rates}; the validation loss has seen this choice, the other metrics have not."
    ]
    edge = [search.arm for search in searches if search.note]
    return lines + (
        [f"The best rate of {', '.join(edge)} lies at the edge of the sweep: a wider one may find a better."]
        if edge
        else []
    )
