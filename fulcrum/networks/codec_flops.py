"""What training a KL codec costs, from its card and the run's description alone. No torch in here.

S side in pixels, C latent channels, w widths of the levels. A multiply-add counts as two, as in
`model.flops`.
"""

from itertools import pairwise
from typing import Any

from fulcrum.files.shipped import card
from fulcrum.spec.flops import TRAINING
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import mean_over_images

KERNEL = 9  # taps of a 3 x 3 convolution


def pixel_convolution(config: dict[str, Any], side: int) -> float:
    """FLOPs of the layer that reads pixels, which nobody asks for a gradient; the one that writes
    them costs the same."""
    return 2.0 * KERNEL * 3 * int(config["widths"][0]) * side**2


def coding_flops(config: dict[str, Any], side: int) -> float:
    """FLOPs of encoding one picture and decoding it again."""
    channels, layers, widths = (
        int(config["channels"]),
        int(config["layers"]),
        [int(width) for width in config["widths"]],
    )
    areas = [(side >> level) ** 2 for level in range(len(widths))]  # pixels or cells of each level
    down = zip(areas, pairwise([widths[0], *widths]), strict=True)
    up = zip(areas[::-1], pairwise([widths[-1], *widths[::-1]]), strict=True)
    blocks = sum(area * _resnets(*pair, layers) for area, pair in down)
    blocks += sum(area * _resnets(*pair, layers + 1) for area, pair in up)
    samplers = sum(
        KERNEL * (width**2 * below + deeper**2 * area)
        for (area, below), (width, deeper) in zip(pairwise(areas), pairwise(widths), strict=True)
    )
    middle = 2 * _resnets(widths[-1], widths[-1], 2)  # of either half
    # to and from the latent, and the two 1 x 1 beside it
    latent = KERNEL * widths[-1] * 3 * channels + 5 * channels**2
    return 2.0 * (blocks + samplers + areas[-1] * (middle + latent)) + 2 * pixel_convolution(
        config, side
    )


def _resnets(before: int, width: int, layers: int) -> int:
    """Multiply-adds per pixel of a level's blocks; the first one changes the width."""
    shortcut = before * width if before != width else 0
    return KERNEL * (before * width + (2 * layers - 1) * width**2) + shortcut


def tuning_flops(run: RunSpec, asset: str) -> float:
    """FLOPs of training the codec on one image, forward and backward: the average over the phases
    of the budget."""
    config = card(asset)["config"]
    return mean_over_images(
        run,
        lambda phase: (
            TRAINING * coding_flops(config, phase.data.size)
            - pixel_convolution(config, phase.data.size)
        ),
    )


def codec_parameters(asset: str) -> int:
    return int(card(asset)["parameters"])
