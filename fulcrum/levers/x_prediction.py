"""x-prediction: the network gives the clean picture, and the velocity is computed from it.  arXiv:2511.13720

v = (x_t - x) / max(t, floor): the loss is still on v, the sampler divides in the same way
"""

from fulcrum.levers.base import Built, Card, Swap
from fulcrum.levers.shared.published import claim
from fulcrum.spec.run import RunSpec
from fulcrum.training.flow.fillers import XPrediction


class PredictX(Swap):
    name = "x_prediction"
    slot, filler = "flow.predict", XPrediction
    card = Card(
        says="the network predicts the clean picture; needed where a patch is wider than the network, a choice elsewhere",
        claims=(
            claim("fid", -1.40, note="CMMD and DINO-MMD were worse in the same run"),
            claim("cmmd", +0.13),
            claim("dino_mmd", +0.10),
        ),
        warns="another objective: validation losses are not comparable with the baseline's",
    )

    def needs(self, run: RunSpec) -> str | None:
        predict = run.flow.predict
        return None if isinstance(predict, XPrediction) else f"the network's output means something else here: {predict}"

    def witness(self, built: Built) -> bool:
        batch, draw = built.feed.at(0)
        picture = built.step.predict.to_x(batch.x0, draw.eps, draw.t)
        return bool((picture == batch.x0).all())  # the output is the picture, whatever x_t was
