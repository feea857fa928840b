"""What training a KL codec costs, from its card and the run's description alone. No torch in here.

S side in pixels, C latent channels. A multiply-add counts as two, as in `model.flops`.
"""

from typing import Any

from fulcrum.cost.flops import TRAINING
from fulcrum.files.shipped import card
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images

RESIDUAL = 2 * 9  # two 3 x 3 convolutions


def first_convolution(config: dict[str, Any], side: int) -> float:
    """FLOPs of the layer that reads pixels, which nobody asks for a gradient."""
    return 2.0 * 9 * 12 * int(config["fine"]) * (side // 2) ** 2


def coding_flops(config: dict[str, Any], side: int) -> float:
    """FLOPs of encoding one picture and decoding it again."""
    channels, fine, coarse = (int(config[name]) for name in ("channels", "fine", "coarse"))
    (down_fine, down_coarse), (up_coarse, up_fine) = (map(int, config[name]) for name in ("down", "up"))  # residual blocks
    at_half = 2 * 9 * 12 * fine + (down_fine + up_fine) * RESIDUAL * fine**2  # first and last layer, residuals
    at_quarter = 2 * 4 * fine * coarse + (down_coarse + up_coarse) * RESIDUAL * coarse**2 + 9 * coarse * 3 * channels
    return 2.0 * (at_half * (side // 2) ** 2 + at_quarter * (side // 4) ** 2)


def tuning_flops(run: RunSpec, asset: str) -> float:
    """FLOPs of training the codec on one image, forward and backward: the average over the phases of the budget."""
    config = card(asset)["config"]
    return mean_over_images(
        run,
        lambda phase: TRAINING * coding_flops(config, phase.data.size) - first_convolution(config, phase.data.size),
    )


def codec_parameters(asset: str) -> int:
    return int(card(asset)["parameters"])
