"""Muon: the blocks' matrices are updated by orthogonalised momentum, everything else by the baseline's AdamW.

The modulation matrices (6 D x D, one in each block) have the role `matrix`: they are orthogonalised with the others.
Newton-Schulz costs the same whatever the batch holds, so its share of a step falls as tokens per batch grow.
"""

from typing import Any

from fulcrum.levers.base import Built, Card, Cost, Swap
from fulcrum.levers.shared.published import claim
from fulcrum.spec.edit import put
from fulcrum.spec.flops import bytes_per_parameter, learned_matrices, newton_schulz_share, sizes_of
from fulcrum.spec.run import RunSpec
from fulcrum.training.optim.fillers import AdamWRule, MuonRule


class UseMuon(Swap):
    name = "muon"
    slot, filler = "optim.rule", MuonRule
    settings = ("momentum", "lr_ratio")
    card = Card(
        says="every direction of a matrix learns at the same speed, the modulation matrices' too; Adam's settings stay as "
        "they were. Newton-Schulz costs a fixed amount a step: at 1.2 B parameters 14 % of its FLOPs with 65,536 "
        "tokens a batch (256 px), 4 % with 262,144 (1024 px)",
        claims=(
            claim("fid", -2.65, note="the published arm also moved Adam's eps from 1e-15 to 1e-8"),
            claim("cmmd", -0.05),
        ),
        warns="an optimizer verdict is only as fair as the learning rates: see the plan's learning-rate policy",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, self.slot, self.made(**_adam(run)))

    def needs(self, run: RunSpec) -> str | None:
        if learned_matrices(sizes_of(run), run.model.learned):
            return None
        return "it orthogonalises the matrices of the blocks, and none of them learns"

    def cost(self, run: RunSpec) -> Cost:
        plain = put(run, self.slot, AdamWRule(**_adam(run)))
        memory = bytes_per_parameter(self.edit(run)) / bytes_per_parameter(plain)
        return Cost(flops=1 + newton_schulz_share(run), memory=memory)

    def witness(self, built: Built) -> bool:
        return any(name.startswith("momentum/") for name in built.optimizer.state())


def _adam(run: RunSpec) -> dict[str, Any]:
    """Adam's settings in a run, whatever else its rule has."""
    rule = run.optim.rule
    return {name: getattr(rule, name) for name in AdamWRule.model_fields} if isinstance(rule, AdamWRule) else {}
