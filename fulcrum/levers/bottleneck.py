"""Bottleneck: patches enter through two linears with a narrow waist instead of one.  arXiv:2511.13720

The waist is a seventh of the model: 256 of 1792 in the published pixel model, 128 of 768 in JiT-B.
"""

from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.levers.shared import price
from fulcrum.spec.edit import put
from fulcrum.spec.record import Width
from fulcrum.spec.run import RunSpec


class Bottleneck(Lever):
    width: Width | None = None  # of the waist; none = a seventh of the model's, in eights

    name = "bottleneck"
    touches = ("model.bottleneck",)
    card = Card(
        says="wide patches are squeezed before they reach the stream; pays for pixels, where most of a patch is redundant "
        "(JiT, class-conditional ImageNet in pixels, patches of 768 to 3,072 numbers; part of the published pixel models, "
        "never ablated alone there)",
        warns="a patch of latents has few numbers, and a waist narrower than that loses some of them for good",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "model.bottleneck", self._waist(run))

    def needs(self, run: RunSpec) -> str | None:
        features = run.encode.codec.channels * run.model.patch**2
        if self._waist(run) < features:
            return None
        return (
            f"a patch has {features} features, so a waist of {self._waist(run)} squeezes nothing: "
            f"give a smaller width, or wider patches"
        )

    def idle(self, run: RunSpec) -> str:
        if run.encode.codec.stride == 1:
            return ""
        return "the denoiser sees latents, of which little is redundant: it is for patches of pixels"

    def cost(self, run: RunSpec) -> Cost:
        return price.of_denoiser(put(run, "model.bottleneck", None), self.edit(run))

    def witness(self, built: Built) -> bool:
        shapes = [tuple(weight.shape) for name, weight in built.step.backbone.img_in.named_parameters() if "weight" in name]
        waist, width = self._waist(built.run), built.run.model.width
        return len(shapes) == 2 and shapes[0][0] == waist and shapes[1] == (width, waist)

    def _waist(self, run: RunSpec) -> int:
        return self.width or max(8, 8 * round(run.model.width / 7 / 8))
