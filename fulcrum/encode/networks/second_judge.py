"""The second judge: a small patch transformer that answers what the first judge answers, learned apart from it.

One judge can be pleased by what only it likes. This one has another architecture (patches and attention, where the first
convolves), other scenes, and was shown what the first never saw: crowds of up to nine objects, noise, empty pictures and
the codec's own faults. Where the two disagree about an arm, neither number is worth much.

B batch, P = 9 places, K classes of an attribute, N = 64 patches, C channels, H heads
"""

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world.scene import CENTRES
from fulcrum.encode.unit_pixels import to_side, to_unit
from fulcrum.files.shipped import load

SECOND_JUDGE_SIDE, PATCH = 32, 4
PATCHES = (SECOND_JUDGE_SIDE // PATCH) ** 2
PLACES = 9


def _dense(inside: int, outside: int) -> nn.Conv2d:
    """A linear map of every patch."""
    return nn.Conv2d(inside, outside, 1)


class PatchNorm(nn.Module):
    """Layer norm over the channels of each patch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, h: Tensor) -> Tensor:
        rows = F.layer_norm(h.permute(0, 2, 3, 1), self.scale.shape, self.scale, self.shift)
        return rows.permute(0, 3, 1, 2)  # (B, C, 8, 8)


class PatchBlock(nn.Module):
    """Attention over all patches with a learned bias for every pair of them, then a layer for each patch alone."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = PatchNorm(width), PatchNorm(width)
        self.ask, self.answer = _dense(width, 3 * width), _dense(width, width)
        self.near = nn.Parameter(_nearness().expand(heads, -1, -1).clone())  # (H, N, N)
        self.up, self.down = _dense(width, hidden), _dense(hidden, width)

    def forward(self, h: Tensor) -> Tensor:
        query, key, value = self.ask(self.before(h)).flatten(2).unflatten(1, (3, self.heads, -1)).transpose(3, 4).unbind(1)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=self.near)  # (B, H, N, C/H)
        h = h + self.answer(seen.transpose(2, 3).reshape(h.shape))
        return h + self.down(F.gelu(self.up(self.between(h))))  # type: ignore[no-any-return]


class PatchJudge(nn.Module):
    """Says for each of the nine places whether an object stands there, and its shape, colour, texture and size."""

    def __init__(
        self, classes: Mapping[str, int], width: int = 96, heads: int = 4, depth: int = 3, hidden: int = 192
    ) -> None:
        super().__init__()
        self.config = {"classes": dict(classes), "width": width, "heads": heads, "depth": depth, "hidden": hidden}
        self.classes = dict(classes)
        self.enter = nn.Conv2d(3, width, PATCH, stride=PATCH)
        self.where = nn.Parameter(torch.zeros(width, SECOND_JUDGE_SIDE // PATCH, SECOND_JUDGE_SIDE // PATCH))
        self.blocks = nn.ModuleList(PatchBlock(width, heads, hidden) for _ in range(depth))
        self.norm = PatchNorm(width)
        self.look = nn.Parameter(_nine_looks())  # (2P, N): which patches each place reads
        self.mix = nn.Linear(2 * width, hidden)
        self.place = nn.Parameter(torch.zeros(PLACES, hidden))
        self.answers = nn.ModuleDict({name: nn.Linear(hidden, count) for name, count in self.classes.items()})
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        """(B, 3, 32, 32) in [-1, 1] -> {attribute: logits (B, P, K)}."""
        h = self.enter(pixels.contiguous(memory_format=torch.channels_last)) + self.where  # (B, C, 8, 8)
        for block in self.blocks:
            h = block(h)
        patches = self.norm(h).flatten(2).transpose(1, 2)  # (B, N, C)
        read = self.look.softmax(dim=-1) @ patches  # (B, 2P, C)
        read = F.gelu(self.mix(read.unflatten(1, (PLACES, 2)).flatten(2)) + self.place)  # (B, P, hidden)
        return {name: answer(read) for name, answer in self.answers.items()}

    @torch.no_grad()
    def judge(self, images: Tensor, span: tuple[float, float] | None = None) -> dict[str, Tensor]:
        """Images (B, 3, S, S), uint8 or floats with their range as `span` -> {attribute: logits (B, P, K)}."""
        return self(to_side(to_unit(images.to(self.place.device), span), SECOND_JUDGE_SIDE))  # type: ignore[no-any-return]


def _squared_distances(centres: Tensor) -> Tensor:
    """From points along one side, to the patches along it; over the grid of both.  (n², N)"""
    along = (torch.arange(SECOND_JUDGE_SIDE // PATCH) - centres[:, None]) ** 2  # (n, 8)
    return (along[:, None, :, None] + along[None, :, None, :]).reshape(len(centres) ** 2, PATCHES)


def _nearness() -> Tensor:
    """Attention begins with a leaning to neighbours.  (1, N, N)"""
    return -_squared_distances(torch.arange(float(SECOND_JUDGE_SIDE // PATCH)))[None] / 4.0


def _nine_looks() -> Tensor:
    """Two looks per place, as logits over the patches: at the middle of the place and over all of it.  (2P, N)"""
    square = _squared_distances(torch.tensor(CENTRES) * (SECOND_JUDGE_SIDE / PATCH) - 0.5)
    return torch.stack([-square / 1.0, -square / 4.0], dim=1).reshape(2 * PLACES, PATCHES)


def load_second_judge(name: str = "judge_second", folder: Path | None = None) -> PatchJudge:
    """The shipped second judge, frozen, in fp32 and eval mode."""
    return load(name, PatchJudge, folder)
