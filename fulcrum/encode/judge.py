"""The frozen judges of the metrics: what stands where (AttributeJudge), and features for distances (FeatureNet).

Neither is the teacher, neither saw the teacher: a score must not reward agreement with what trained the model.

B batch, P = 9 places, K classes of an attribute, C channels, d features
"""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.encode.pixels import to_side, to_unit
from fulcrum.encode.shipped import load

SIDE = 32


def _conv(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(outside))


class JudgeBlock(nn.Module):
    """Residual pair of 3 x 3 convolutions with batch statistics (fixed after training)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = _conv(width, width), _conv(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return F.relu(h + self.last(F.relu(self.first(h))))


class AttributeJudge(nn.Module):
    """Says for each of the nine places whether an object stands there, and its shape, colour, texture and size."""

    def __init__(self, classes: Mapping[str, int], fine: int = 40, coarse: int = 80, hidden: int = 128) -> None:
        super().__init__()
        self.config = {"classes": dict(classes), "fine": fine, "coarse": coarse, "hidden": hidden}
        self.classes = dict(classes)
        self.stem = _conv(3, 24)
        self.to_fine, self.fine = _conv(24, fine, stride=2), JudgeBlock(fine)                # 16 x 16
        self.to_coarse, self.coarse = _conv(fine, coarse, stride=2), JudgeBlock(coarse)      # 8 x 8
        self.look = nn.Parameter(_windows())                             # (2P, 64): where each place looks
        self.mix = nn.Linear(2 * coarse, hidden)
        self.place = nn.Parameter(torch.zeros(9, hidden))
        self.heads = nn.ModuleDict({name: nn.Linear(hidden, count) for name, count in self.classes.items()})
        self.to(memory_format=torch.channels_last)                       # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        """(B, 3, 32, 32) in [-1, 1] -> {attribute: logits (B, P, K)}."""
        h = F.relu(self.stem(pixels.contiguous(memory_format=torch.channels_last)))
        h = self.coarse(F.relu(self.to_coarse(self.fine(F.relu(self.to_fine(h))))))          # (B, C, 8, 8)
        cells = h.flatten(2).transpose(1, 2)                                                 # (B, 64, C)
        seen = self.look.softmax(dim=-1) @ cells                                             # (B, 2P, C)
        seen = seen.unflatten(1, (9, 2)).flatten(2)                                          # (B, P, 2C)
        seen = F.relu(self.mix(seen) + self.place)                                           # (B, P, hidden)
        return {name: head(seen) for name, head in self.heads.items()}

    @torch.no_grad()
    def judge(self, images: Tensor, span: tuple[float, float] | None = None) -> dict[str, Tensor]:
        """Images (B, 3, S, S), uint8 or floats with their range as `span` -> {attribute: logits (B, P, K)}."""
        return self(to_side(to_unit(images, span), SIDE))                # type: ignore[no-any-return]


def _windows() -> Tensor:
    """Two looks per place, as logits over the 8 x 8 cells: a narrow and a wide bell around the place's centre."""
    centre = (torch.arange(3) + 0.5) * (8 / 3) - 0.5
    cell = torch.arange(8.0)
    near = (cell[None, :] - centre[:, None]) ** 2                                            # (3, 8)
    square = near[:, None, :, None] + near[None, :, None, :]                                 # (3, 3, 8, 8)
    return torch.stack([-square / 2.0, -square / 8.0], dim=2).reshape(18, 64)


class FeatureNet(nn.Module):
    """Plain convolution stack, pooled at three scales into d features; linear, so that moments describe them."""

    def __init__(self, tasks: Mapping[str, int], features: int = 128,
                 widths: tuple[int, int, int] = (40, 80, 112)) -> None:
        super().__init__()
        fine, middle, coarse = widths
        self.config = {"tasks": dict(tasks), "features": features, "widths": list(widths)}
        self.enter = nn.Conv2d(12, fine, 5, padding=2)                                       # 16 x 16
        self.down = nn.Conv2d(fine, middle, 3, stride=2, padding=1)                          # 8 x 8
        self.middle = nn.Conv2d(middle, middle, 3, padding=1)
        self.deep = nn.Conv2d(middle, coarse, 3, stride=2, padding=1)                        # 4 x 4
        self.coarse = nn.Conv2d(coarse, coarse, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for width in (fine, middle, middle, coarse, coarse))
        self.gather = nn.Linear(2 * fine + middle + 16 * coarse, features)
        self.tasks = nn.ModuleDict({name: nn.Linear(features, count) for name, count in tasks.items()})
        self.to(memory_format=torch.channels_last)                       # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, 32, 32) in [-1, 1] -> (B, d)."""
        norm = iter(self.norms)
        h = F.pixel_unshuffle(pixels, 2).contiguous(memory_format=torch.channels_last)       # (B, 12, 16, 16)
        h = fine = F.gelu(next(norm)(self.enter(h)), approximate="tanh")
        h = F.gelu(next(norm)(self.down(h)), approximate="tanh")                             # (B, middle, 8, 8)
        h = middle = h + F.gelu(next(norm)(self.middle(h)), approximate="tanh")
        h = F.gelu(next(norm)(self.deep(h)), approximate="tanh")                             # (B, coarse, 4, 4)
        h = h + F.gelu(next(norm)(self.coarse(h)), approximate="tanh")
        seen = [fine.mean((2, 3)), fine.var((2, 3)), middle.mean((2, 3)), h.flatten(1)]
        return self.gather(torch.cat(seen, dim=1))                       # type: ignore[no-any-return]

    def answers(self, features: Tensor) -> dict[str, Tensor]:
        """What the training tasks read from the features: {task: (B, K)}."""
        return {name: task(features) for name, task in self.tasks.items()}

    @torch.no_grad()
    def features(self, images: Tensor, span: tuple[float, float] | None = None) -> Tensor:
        """Images (B, 3, S, S), uint8 or floats with their range as `span` -> (B, d) float32."""
        return self(to_side(to_unit(images, span), SIDE))                # type: ignore[no-any-return]


def load_judge(name: str = "judge", folder: Path | None = None) -> AttributeJudge:
    """The shipped attribute judge, frozen, in fp32 and eval mode."""
    return load(name, AttributeJudge, folder)


def load_features(name: str = "features", folder: Path | None = None) -> FeatureNet:
    """The shipped feature network, frozen, in fp32 and eval mode."""
    return load(name, FeatureNet, folder)
