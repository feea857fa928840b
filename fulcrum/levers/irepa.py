"""iREPA: alignment that cares for the layout: a convolution as projector, teacher tokens normalised over space.

block 0 ──► … ──► middle block ──► … ──► out
                      └──► 3 x 3 convolution ──► 1 - cosine with (y - alpha · mean over tokens) / std over tokens

arXiv:2512.10794
"""

from fulcrum.levers.base import Card
from fulcrum.levers.shared.alignment_lever import Aligning
from fulcrum.levers.shared.teacher_caution import or_supervised
from fulcrum.spec.record import Factor, Share


class IRepa(Aligning):
    alpha: Share = 0.6  # share of the teacher's mean over tokens that is taken away
    weight: Factor = 1.0

    name = "irepa"
    settings = (*Aligning.settings, "alpha")
    projector = "conv"
    normalise = True
    card = Card(
        says="alignment to the teacher's spatial layout rather than to what its tokens share. Its authors run alpha 0.6 "
        "with weight 1.0 in latents, the defaults, and alpha 0.8 with weight 0.5 in pixels: irepa(alpha=0.8, weight=0.5)",
        train_only=True,
        warns="PRX Part 2 says without numbers that iREPA helped with DINOv2 and made DINOv3 worse. That was not this: its "
        "code takes from each token the mean over its own features, about zero after a LayerNorm, instead of the mean "
        "over tokens, and projects by attention instead of a convolution (fault A21 of docs/published.md), so it is no "
        "claim here. The convolution sees the whole grid even where the layer is routed: tokens that are not there are "
        "zero; " + or_supervised("the teacher"),
    )
