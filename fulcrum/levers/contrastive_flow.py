"""Contrastive flow matching: a sample's velocity is pushed away from that of another sample.  arXiv:2506.05350

loss = mean (v_b - u_b)^2 - weight mean (v_b - u_pi(b))^2, pi one round inside each chunk of the batch
"""

from fulcrum.levers.base import Built, Card, Swap
from fulcrum.levers.shared.published import claim
from fulcrum.spec.run import RunSpec
from fulcrum.training.loss.fillers import Contrastive


class ContrastiveFlow(Swap):
    name = "contrastive_flow"
    slot, filler = "terms.contrastive", Contrastive
    card = Card(
        says="velocities of different samples are told apart (published by its authors for class-conditional ImageNet and "
        "for CC3M with lambda 0.05; the numbers here are of a text-to-image model, drawn without their correction)",
        claims=(
            claim("fid", +1.83),
            claim("cmmd", -0.01),
            claim("dino_mmd", -0.03),
        ),
        train_only=True,
        warns="on average it asks for (u - weight * mean u) / (1 - weight): the velocity is stretched, and the "
        "validation loss is higher by design; its authors undo the stretch when they draw with guidance, which is a "
        "decision of its own here, of sample.guide",
    )

    def needs(self, run: RunSpec) -> str | None:
        if self.chunk == 1:
            return "a chunk of 1 has no other sample to compare with"
        if run.budget.batch % self.chunk:
            return f"it compares chunks of {self.chunk}, but a batch of {run.budget.batch} is no multiple of that"
        flow = next((term.weight for term in run.terms if term.name == "flow_matching"), 0.0)
        if flow <= self.weight:
            return f"its weight {self.weight:g} must stay below that of flow_matching, {flow:g}, or the loss has no minimum"
        return None

    def witness(self, built: Built) -> bool:
        import torch

        weights = built.weights(0)
        if "contrastive" not in weights:
            return False
        with torch.no_grad():
            losses = built.step(*built.feed.at(0), weights)
        return bool(losses.parts["contrastive"] < 0)  # it found others to be apart from
