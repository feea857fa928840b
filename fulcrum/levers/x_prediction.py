"""x-prediction: the network gives the clean picture, and the velocity is computed from it.  arXiv:2511.13720

v = (x_t - x) / max(t, floor): the loss is still on v, the sampler divides in the same way
"""

from typing import Any, ClassVar

from fulcrum.flow.fillers import XPrediction
from fulcrum.levers.base import Card, Claim, Lever
from fulcrum.spec.edit import put
from fulcrum.spec.record import Fraction
from fulcrum.spec.run import RunSpec

SCOPE = "256 px latents, 1.2 B parameters, 100k steps"


class PredictX(Lever):
    floor: Fraction = 0.05  # t below this counts as this, or the loss explodes at t = 0

    name: ClassVar[str] = "x_prediction"
    touches: ClassVar[tuple[str, ...]] = ("flow.predict",)
    card: ClassVar[Card] = Card(
        says="the network predicts the clean picture; needed where a patch is wider than the network, a choice elsewhere",
        claims=(
            Claim(
                metric="fid",
                change=-1.40,
                scope=SCOPE,
                source="PRX Part 2",
                note="CMMD and DINO-MMD were worse in the same run",
            ),
            Claim(metric="cmmd", change=+0.13, scope=SCOPE, source="PRX Part 2"),
            Claim(metric="dino_mmd", change=+0.10, scope=SCOPE, source="PRX Part 2"),
        ),
        warns="another objective: validation losses are not comparable with the baseline's",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "flow.predict", XPrediction(floor=self.floor))

    def needs(self, run: RunSpec) -> str | None:
        predict = run.flow.predict
        return None if isinstance(predict, XPrediction) else f"the network's output means something else here: {predict}"

    def witness(self, built: Any) -> bool:
        batch, draw = built.feed.at(0)
        picture = built.step.predict.to_x(batch.x0, draw.eps, draw.t)
        return bool((picture == batch.x0).all())  # the output is the picture, whatever x_t was
