"""What judging reads of a plan's arms, as values: the judge knows no trainer."""

from collections.abc import Sequence

from fulcrum.judge.design import JudgedArm
from fulcrum.judge.metrics import metric_names
from fulcrum.measure.evaluation import can_measure, loss_of
from fulcrum.spec.edit import inside
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import own_rates
from fulcrum.studies.arms import Arm, baseline_of
from fulcrum.studies.plan import Plan

# what a held-out loss can depend on
LOSS_DEPENDS_ON = ("flow", "encode.codec", "sample.prompts", "data.stages")
CARD_FIELDS = {  # path of a run -> field of a metric card that says it
    "sample.prompts": "prompts",
    "sample.guide": "guidance",
    "sample.steps": "steps",
    "sample.shift": "sampler",
}


def judged_arms(plan: Plan, arms: Sequence[Arm]) -> list[JudgedArm]:
    """The arms of a plan as the judge reads them."""
    return [_judged_arm(plan, arm, baseline_of(arm, arms)) for arm in arms]


def _judged_arm(plan: Plan, arm: Arm, base: Arm) -> JudgedArm:
    judged = JudgedArm(
        arm.name,
        arm.against,
        arm.scale,
        may_differ=_may_differ(arm),
        own_loss=_own_loss(arm, base),
        decays=arm.run.optim.decay > 0,
    )
    if not plan.scales or not arm.is_baseline:
        return judged
    return judged._replace(
        tokens=arm.run.tokens,
        parameters=parameters(arm.run),
        flops=denoiser_training_flops(arm.run) * arm.run.budget.images,
    )


def _may_differ(arm: Arm) -> tuple[str, ...]:
    """Fields of a metric card that this arm's levers openly change."""
    fields = {
        field
        for change in arm.changes
        for path, field in CARD_FIELDS.items()
        if change.path.startswith(path)
    }
    return tuple(sorted(fields))


def _own_loss(arm: Arm, base: Arm) -> bool:
    """Does the arm openly change what a held-out loss is a loss of? Then there is nothing to
    compare."""
    touched = any(inside(change.path, LOSS_DEPENDS_ON) for change in arm.changes)
    return touched and loss_of(arm.run) != loss_of(base.run)


def metrics_of(plan: Plan, run: RunSpec) -> list[str]:
    """What a study is judged on, the primary metric first: whatever its pictures can tell."""
    return [name for name in metric_names(plan) if can_measure(run, name)]


def telling_share(arm: RunSpec, base: RunSpec) -> float:
    """The share of the budget, at its end, whose points tell of the end: where the rate of either
    side decays, and not before a stage with a rate of its own begins, which turns curves too; 0:
    all of it."""
    decay = max(arm.optim.decay, base.optim.decay)
    turns = [stage.start / run.budget.images for run in (arm, base) for stage in own_rates(run)]
    return min(decay or 1.0, 1.0 - max(turns)) if turns else decay
