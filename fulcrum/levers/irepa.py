"""iREPA: alignment that cares for the layout: a convolution as projector, teacher tokens normalised over space.

block 0 ──► … ──► middle block ──► … ──► out
                      └──► 3 x 3 convolution ──► 1 - cosine with (y - mean over tokens) / std over tokens
"""

from fulcrum.levers.base import Card
from fulcrum.levers.shared.alignment_lever import Aligning
from fulcrum.levers.shared.same_labels import same_labels


class IRepa(Aligning):
    name = "irepa"
    projector = "conv"
    normalise = True
    card = Card(
        says="alignment to the teacher's spatial layout rather than to what its tokens share (published without numbers: "
        "helped with DINOv2, degraded with DINOv3)",
        train_only=True,
        warns="the convolution sees the whole grid even where the layer is routed: tokens that are not there are zero; "
        + same_labels("the teacher"),
    )
