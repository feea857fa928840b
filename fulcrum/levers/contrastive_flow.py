"""Contrastive flow matching: a sample's velocity is pushed away from that of another sample.  arXiv:2506.05350

loss = mean (v_b - u_b)^2 - weight mean (v_b - u_pi(b))^2, pi one round inside each chunk of the batch
"""

from typing import Any, ClassVar

from fulcrum.levers.base import Card, Claim, Lever
from fulcrum.loss.fillers import Contrastive
from fulcrum.spec.edit import put
from fulcrum.spec.record import Count, Fraction
from fulcrum.spec.run import RunSpec

SCOPE = "256 px latents, 1.2 B parameters, 100k steps"


class ContrastiveFlow(Lever):
    weight: Fraction = 0.05  # lambda
    chunk: Count = 8  # rows that are compared; a part of the run, not of the machine

    name: ClassVar[str] = "contrastive_flow"
    touches: ClassVar[tuple[str, ...]] = ("terms.contrastive",)
    card: ClassVar[Card] = Card(
        says="velocities of different samples are told apart",
        claims=(
            Claim(metric="fid", change=+1.83, scope=SCOPE, source="PRX Part 2"),
            Claim(metric="cmmd", change=-0.01, scope=SCOPE, source="PRX Part 2"),
            Claim(metric="dino_mmd", change=-0.03, scope=SCOPE, source="PRX Part 2"),
        ),
        train_only=True,
        warns="on average it asks for (u - weight * mean u) / (1 - weight): the velocity is stretched, and the "
        "validation loss is higher by design",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "terms.contrastive", Contrastive(weight=self.weight, chunk=self.chunk))

    def needs(self, run: RunSpec) -> str | None:
        if self.chunk == 1:
            return "a chunk of 1 has no other sample to compare with"
        if run.budget.batch % self.chunk:
            return f"it compares chunks of {self.chunk}, but a batch of {run.budget.batch} is no multiple of that"
        flow = next((term.weight for term in run.terms if term.name == "flow_matching"), 0.0)
        if flow <= self.weight:
            return f"its weight {self.weight:g} must stay below that of flow_matching, {flow:g}, or the loss has no minimum"
        return None

    def witness(self, built: Any) -> bool:
        import torch

        weights = built.weights(0)
        if "contrastive" not in weights:
            return False
        with torch.no_grad():
            losses = built.step(*built.feed.at(0), weights)
        return bool(losses.parts["contrastive"] < 0)  # it found others to be apart from
