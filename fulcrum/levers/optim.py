"""Levers of optimization: Muon and the moving average of the weights."""

from typing import Any

from fulcrum.levers.base import Built, Card, Cost, Swap
from fulcrum.levers.published import claim, memory_ratio
from fulcrum.spec.edit import put
from fulcrum.spec.flops import learned_matrices, newton_schulz_share, sizes_of
from fulcrum.spec.run import RunSpec
from fulcrum.training.fillers import EMA, NoAverage
from fulcrum.training.optim.fillers import AdamWRule, MuonRule
from fulcrum.training.optim.schedule import rates

# --------------------------------------------------------------------------------------------------
# EMA: pictures are drawn with a moving average of the weights.


class UseEMA(Swap):
    name = "ema"
    slot, filler = "average", EMA
    affects = ("averaged weights", "samples")
    card = Card(
        says=(
            "a smoother model for drawing; training itself is untouched (published: 0.999 every 10"
            " steps of 100,000, at a constant rate; no number was given)"
        ),
        warns=(
            "an average pays by quieting the noise of a rate that stays high, and a decayed rate"
            " has quieted it already: on a recipe that decays it is judged without its fuel. It"
            " changes no schedule, which would be a second decision: for the published setting give"
            " both arms --set optim.decay=0"
        ),
    )

    def needs(self, run: RunSpec) -> str | None:
        steps = run.budget.images // run.budget.batch
        if self.every < steps:
            return None
        return (
            f"it looks at the weights every {self.every} steps, but the run has only {steps}: it"
            " would draw as it began"
        )

    def cost(self, run: RunSpec) -> Cost:
        return Cost(memory=memory_ratio(put(run, "average", NoAverage()), self.edit(run)))

    def in_run(self, run: RunSpec) -> str:
        """The rate under its average: every step's, weighed as the average weighs what came after
        it."""
        steps = rates(run)
        half_life = self.half_life * len(steps)
        weights = [0.5 ** ((len(steps) - 1 - step) / half_life) for step in range(len(steps))]
        mean = sum(weight * rate for weight, rate in zip(weights, steps, strict=True)) / sum(
            weights
        )
        return (
            f"the steps that its average holds had a mean learning rate of {mean:.0%} of the peak"
        )

    def witness(self, built: Built) -> bool:
        return bool(built.average.state())


# --------------------------------------------------------------------------------------------------
# Muon: the blocks' matrices are updated by orthogonalised momentum, everything else by the
# baseline's AdamW.
#
# The modulation matrices (6 D x D, one in each block) have the role `matrix`: they are
# orthogonalised with the others. Newton-Schulz costs the same whatever the batch holds, so its
# share of a step falls as tokens per batch grow.


class UseMuon(Swap):
    name = "muon"
    slot, filler = "optim.rule", MuonRule
    settings = ("momentum", "lr_ratio")
    card = Card(
        says=(
            "every direction of a matrix learns at the same speed, the modulation matrices' too;"
            " Adam's settings stay as they were. Newton-Schulz costs a fixed amount a step: at 1.2"
            " B parameters 14 % of its FLOPs with 65,536 tokens a batch (256 px), 4 % with 262,144"
            " (1024 px)"
        ),
        claims=(
            claim("fid", -2.65, note="the published arm also moved Adam's eps from 1e-15 to 1e-8"),
            claim("cmmd", -0.05),
        ),
        warns=(
            "an optimizer verdict is only as fair as the learning rates: see the plan's"
            " learning-rate policy"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, self.slot, self.made(**_adam(run)))

    def needs(self, run: RunSpec) -> str | None:
        if learned_matrices(sizes_of(run), run.model.learned):
            return None
        return "it orthogonalises the matrices of the blocks, and none of them learns"

    def cost(self, run: RunSpec) -> Cost:
        plain = put(run, self.slot, AdamWRule(**_adam(run)))
        return Cost(flops=1 + newton_schulz_share(run), memory=memory_ratio(plain, self.edit(run)))

    def witness(self, built: Built) -> bool:
        return any(name.startswith("momentum/") for name in built.optimizer.state())


def _adam(run: RunSpec) -> dict[str, Any]:
    """Adam's settings in a run, whatever else its rule has."""
    rule = run.optim.rule
    return (
        {name: getattr(rule, name) for name in AdamWRule.model_fields}
        if isinstance(rule, AdamWRule)
        else {}
    )
