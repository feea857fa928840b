"""Perceptual features: the predicted picture must look like the true one to a frozen vision network."""

from typing import Any, ClassVar

from fulcrum.levers import price
from fulcrum.levers.base import Card, Cost, Lever
from fulcrum.loss.fillers import PerceptualFeatures
from fulcrum.spec.edit import put
from fulcrum.spec.record import Factor
from fulcrum.spec.run import RunSpec


class UsePerceptualFeatures(Lever):
    weight: Factor = 0.01

    name: ClassVar[str] = "perceptual_features"
    touches: ClassVar[tuple[str, ...]] = ("terms.perceptual_features",)
    card: ClassVar[Card] = Card(
        says="1 - cosine of a frozen network's patch tokens of the predicted and the true picture (used in PRX Part 3 with "
             "DINO, weight 0.01, never ablated alone)",
        train_only=True,
        warns="seen through the embedded alignment teacher, never through a metric's network or the judge: that would be "
              "training on the test. At this size the network costs more than the denoiser")

    def edit(self, run: RunSpec) -> RunSpec:
        return put(run, "terms.perceptual_features", PerceptualFeatures(weight=self.weight))

    def needs(self, run: RunSpec) -> str | None:
        return PerceptualFeatures(weight=self.weight).problem(run)

    def cost(self, run: RunSpec) -> Cost:
        return price.of_term(PerceptualFeatures(weight=self.weight), run, self.edit(run))

    def witness(self, built: Any) -> bool:
        if "perceptual_features" not in built.weights(0):
            return False
        view = built.step.look(*built.feed.at(0, 2))
        return bool((built.step.terms["perceptual_features"](view) > 0).all())
