"""LPIPS-like: the predicted and the true picture compared stage by stage inside a frozen network.  arXiv:1801.03924"""

from fulcrum.levers.base import Card
from fulcrum.levers.shared.perceptual_lever import Perceiving
from fulcrum.levers.shared.teacher_caution import or_supervised
from fulcrum.loss.fillers import LPIPS


class UseLPIPS(Perceiving):
    name = "lpips"
    slot, filler = "terms.lpips", LPIPS
    card = Card(
        says="squared differences of unit-normalised features, early stages included: texture and edges count (used in PRX "
        "Part 3 with weight 0.1, never ablated alone)",
        train_only=True,
        warns="LPIPS-like: the embedded alignment teacher instead of VGG, all channels weighted alike; never a metric's "
        "network or the judge, which would be training on the test. At this size the network costs more than the "
        "denoiser; " + or_supervised("the teacher"),
    )
