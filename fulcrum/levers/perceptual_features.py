"""Perceptual features: the predicted picture must look like the true one to a frozen vision network."""

from typing import ClassVar

from fulcrum.levers.base import Card
from fulcrum.levers.shared.perceptual_lever import Perceiving
from fulcrum.loss.fillers import PerceptualFeatures
from fulcrum.spec.record import Factor


class UsePerceptualFeatures(Perceiving):
    weight: Factor = 0.01

    name: ClassVar[str] = "perceptual_features"
    kind: ClassVar[type[PerceptualFeatures]] = PerceptualFeatures
    touches: ClassVar[tuple[str, ...]] = ("terms.perceptual_features",)
    card: ClassVar[Card] = Card(
        says="1 - cosine of a frozen network's patch tokens of the predicted and the true picture (used in PRX Part 3 with "
        "DINO, weight 0.01, never ablated alone)",
        train_only=True,
        warns="seen through the embedded alignment teacher, never through a metric's network or the judge: that would be "
        "training on the test. At this size the network costs more than the denoiser",
    )
