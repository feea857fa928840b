"""VGG16 with blurred pooling and LPIPS heads (shift-tolerant LPIPS, arXiv:2207.13686), to read a package's weights.

B batch, S side, c channels of a stage
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.encode.pretrained.registry import installed
from fulcrum.encode.pretrained.tensors import read_tensors

VGG_STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
VGG_WIDTH = sum(stage[-1] for stage in VGG_STAGES)  # 1,472
VGG_EPS = 1e-10


def convolutions(side: int) -> Iterator[tuple[int, int, int]]:
    """Side of what comes out, inputs of each output and outputs of every convolution on a picture, blurs included."""
    given = 3
    for number, stage in enumerate(VGG_STAGES):
        if number:
            side = side // 2 + 1
            yield side, 1, given  # a blur: every channel by itself
        for out in stage:
            yield side, given, out
            given = out


class Blur(nn.Module):
    """Largest of 2 x 2 at every place, blurred by [1 2 1] with two mirrored pixels around, every second place kept."""

    filt: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        row = torch.tensor([1.0, 2.0, 1.0])
        self.register_buffer("filt", (row[:, None] * row / 16).expand(channels, 1, 3, 3).clone())

    def forward(self, x: Tensor) -> Tensor:
        largest = F.max_pool2d(x, 2, 1)
        return F.conv2d(F.pad(largest, (2, 2, 2, 2), mode="reflect"), self.filt, stride=2, groups=x.shape[1])


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

        Raw activations grow to hundreds in the middle layers: a kernel of their third power sees nothing but those.
        """
        return torch.cat([_unit(h).mean((2, 3)) * h.shape[1] ** 0.5 for h in self(x)], dim=1)

    def lpips(self, one: Tensor, other: Tensor) -> Tensor:
        """Distance of each pair (B,), arXiv:1801.03924 eq. 1 with the package's heads."""
        pairs = zip(self(one), self(other), self.heads, strict=True)
        return torch.stack([((_unit(a) - _unit(b)).square() * head).sum(1).mean((1, 2)) for a, b, head in pairs]).sum(0)


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
