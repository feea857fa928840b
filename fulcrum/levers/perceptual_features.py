"""Perceptual features: the predicted picture must look like the true one to a frozen vision network."""

from fulcrum.levers.base import Card
from fulcrum.levers.shared.perceptual_lever import Perceiving
from fulcrum.levers.shared.teacher_caution import or_supervised
from fulcrum.training.loss.fillers import PerceptualFeatures


class UsePerceptualFeatures(Perceiving):
    name = "perceptual_features"
    slot, filler = "terms.perceptual_features", PerceptualFeatures
    card = Card(
        says="1 - cosine of a frozen network's patch tokens of the predicted and the true picture (used in PRX Part 3 with "
        "DINO, weight 0.01, never ablated alone)",
        train_only=True,
        warns="seen through the embedded alignment teacher, never through a metric's network or the judge: that would be "
        "training on the test. At this size the network costs more than the denoiser; " + or_supervised("the teacher"),
    )
