"""Means of one score per picture: how well it fits its caption (CLIP), how far it is from the real picture (LPIPS)."""

from fulcrum.measure.card import METRICS
from fulcrum.measure.metrics.base import MeanScore


class ClipScore(MeanScore):
    """Needs captions and no reference."""

    name = "clip_score"
    label = "CLIP score"
    better = "higher"
    explain = "Mean of 100 max(cos, 0) between the CLIP embeddings of a picture and of its caption."
    estimator = "mean of 100 max(cos, 0) over pictures"
    referenced = False


class Lpips(MeanScore):
    """Needs the reference picture that has the same caption."""

    name = "lpips"
    label, explain = METRICS["vgg.lpips"].label, METRICS["vgg.lpips"].explain
    estimator = "LPIPS with blurred pooling, to the real picture of the same caption, mean"
