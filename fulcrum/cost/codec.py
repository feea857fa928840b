"""What training a KL codec costs, from its card and the run's description alone. No torch in here.

S side in pixels, C latent channels. A multiply-add counts as two, as in `model.flops`.
"""

from __future__ import annotations

from typing import Any

from fulcrum.files.shipped import card
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases

TRAINING = 3  # forward, gradient of the inputs, gradient of the weights
RESIDUAL = 2 * 9  # two 3 x 3 convolutions


def first_convolution(config: dict[str, Any], side: int) -> float:
    """FLOPs of the layer that reads pixels, which nobody asks for a gradient."""
    return 2.0 * 9 * 12 * config["fine"] * (side // 2) ** 2


def coding_flops(config: dict[str, Any], side: int) -> float:
    """FLOPs of encoding one picture and decoding it again."""
    channels, fine, coarse = (int(config[name]) for name in ("channels", "fine", "coarse"))
    down, up = config["down"], config["up"]
    at_half = 2 * 9 * 12 * fine + (down[0] + up[1]) * RESIDUAL * fine**2  # first and last layer, residuals
    at_quarter = 2 * 4 * fine * coarse + (down[1] + up[0]) * RESIDUAL * coarse**2 + 9 * coarse * 3 * channels
    return 2.0 * (at_half * (side // 2) ** 2 + at_quarter * (side // 4) ** 2)


def tuning_flops(run: RunSpec, asset: str) -> float:
    """FLOPs of training the codec on one image, forward and backward: the average over the phases of the budget."""
    config, parts = card(asset)["config"], phases(run)
    total = sum(
        (phase.end - phase.start)
        * (TRAINING * coding_flops(config, phase.run.data.size) - first_convolution(config, phase.run.data.size))
        for phase in parts
    )
    return total / parts[-1].end


def codec_parameters(asset: str) -> int:
    return int(card(asset)["parameters"])
