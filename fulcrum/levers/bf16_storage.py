"""BF16 storage: weights are kept in bf16, so small updates round to nothing. No byte is saved: optim.storage says why."""

from fulcrum.levers.base import Built, Card, Lever
from fulcrum.levers.shared.published import claim
from fulcrum.spec.edit import put
from fulcrum.spec.run import RunSpec


class BF16Storage(Lever):
    name = "bf16_storage"
    touches = ("precision.storage",)
    card = Card(
        says="weights stored with 8 bits of precision; an update below 1/256 of a weight is lost",
        claims=(
            claim(
                "fid",
                +3.67,
                note="the published arm's key was read by nobody in the released code: if that is what ran, "
                "3.67 is the size of seed noise",
            ),
            claim("cmmd", +0.20),
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.storage", "bf16")

    def witness(self, built: Built) -> bool:
        from fulcrum.optim.optimizer_state import local

        held = [local(p) for p in built.step.backbone.parameters()]
        return all(bool((p == p.bfloat16().to(p.dtype)).all()) for p in held)
