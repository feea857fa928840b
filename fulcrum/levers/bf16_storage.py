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
        warns="the dose follows the rate and the weights' size. Share of updates that round to nothing, by the watchdog "
        "(`stalled` in the record; bench/lost_updates.py, 200 steps at a constant rate, after the first quarter): spark, "
        "width 96, at its rate of 1e-2: 0.08; the same at the published 1e-4: 0.62; the updates that Adam asked for in "
        "these runs, at 1e-4 on matrices that begin as the published 1,792-wide ones do: 0.49 to 0.74. So a small recipe "
        "with a high rate gets about an eighth of the published dose. It grows as weights grow, and as a rate decays",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "precision.storage", "bf16")

    def witness(self, built: Built) -> bool:
        from fulcrum.training.optim.optimizers import local

        held = [local(p) for p in built.step.backbone.parameters()]
        return all(bool((p == p.bfloat16().to(p.dtype)).all()) for p in held)
