"""The embedded judges: networks that read what a picture shows, and features for distances."""

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fulcrum.data.world.scene import CENTRES
from fulcrum.files.shipped import load
from fulcrum.networks.network_hash import to_side, to_unit

# --------------------------------------------------------------------------------------------------
# The frozen judges of the metrics: what stands where (AttributeJudge), and features for distances
# (FeatureNet).
#
# Neither is the teacher, neither saw the teacher: a score must not reward agreement with what
# trained the model.
#
# B batch, P = 9 places, K classes of an attribute, C channels, d features


SIDE = 32


def _conv(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(outside)
    )


class JudgeBlock(nn.Module):
    """Residual pair of 3 x 3 convolutions with batch statistics (fixed after training)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = _conv(width, width), _conv(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return F.relu(h + self.last(F.relu(self.first(h))))


class AttributeJudge(nn.Module):
    """Says for each of the nine places whether an object stands there, and its shape, colour,
    texture and size."""

    def __init__(
        self, classes: Mapping[str, int], fine: int = 40, coarse: int = 80, hidden: int = 128
    ) -> None:
        super().__init__()
        self.config = {"classes": dict(classes), "fine": fine, "coarse": coarse, "hidden": hidden}
        self.classes = dict(classes)
        self.stem = _conv(3, 24)
        self.to_fine, self.fine = _conv(24, fine, stride=2), JudgeBlock(fine)  # 16 x 16
        self.to_coarse, self.coarse = _conv(fine, coarse, stride=2), JudgeBlock(coarse)  # 8 x 8
        self.look = nn.Parameter(nine_looks(2.0, 8.0))  # (2P, 64): where each place looks
        self.mix = nn.Linear(2 * coarse, hidden)
        self.place = nn.Parameter(torch.zeros(9, hidden))
        self.heads = nn.ModuleDict(
            {name: nn.Linear(hidden, count) for name, count in self.classes.items()}
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        """(B, 3, 32, 32) in [-1, 1] -> {attribute: logits (B, P, K)}."""
        h = F.relu(self.stem(pixels.contiguous(memory_format=torch.channels_last)))
        h = self.coarse(F.relu(self.to_coarse(self.fine(F.relu(self.to_fine(h))))))  # (B, C, 8, 8)
        cells = h.flatten(2).transpose(1, 2)  # (B, 64, C)
        seen = self.look.softmax(dim=-1) @ cells  # (B, 2P, C)
        seen = seen.unflatten(1, (9, 2)).flatten(2)  # (B, P, 2C)
        seen = F.relu(self.mix(seen) + self.place)  # (B, P, hidden)
        return {name: head(seen) for name, head in self.heads.items()}

    @torch.no_grad()
    def judge(self, images: Tensor, span: tuple[float, float] | None = None) -> dict[str, Tensor]:
        """Images (B, 3, S, S), uint8 or floats with their range as `span` -> {attribute: logits (B,
        P, K)}."""
        return self(to_side(to_unit(images.to(self.place.device), span), SIDE))  # type: ignore[no-any-return]


class FeatureNet(nn.Module):
    """Plain convolution stack; features are its pooled activations, reduced to the d leading
    whitened directions.

    It is trained to answer questions (`asked`), its features are never fitted to them: whitened on
    real pictures, each direction counts alike, so that a distance sees blur and grain as well as
    content and layout.
    """

    def __init__(
        self,
        places: Mapping[str, int],
        whole: Mapping[str, int],
        features: int = 64,
        fine: int = 40,
        middle: int = 80,
    ) -> None:
        super().__init__()
        self.config = {
            "places": dict(places),
            "whole": dict(whole),
            "features": features,
            "fine": fine,
            "middle": middle,
        }
        self.enter = nn.Sequential(
            nn.Conv2d(12, fine, 5, padding=2, bias=False), nn.BatchNorm2d(fine)
        )
        self.down, self.deep, self.wide = (
            _conv(fine, middle, stride=2),
            _conv(middle, middle),
            _conv(middle, middle),
        )
        self.places = nn.ModuleDict(
            {name: nn.Linear(middle, count) for name, count in places.items()}
        )
        self.statistics = 2 * (fine + middle)
        self.whole = nn.ModuleDict(
            {name: nn.Linear(self.statistics, count) for name, count in whole.items()}
        )
        self.centre: Tensor
        self.project: Tensor
        pooled = self.statistics + 9 * middle
        self.register_buffer("centre", torch.zeros(pooled))
        self.register_buffer("project", torch.eye(pooled, features))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 3, 32, 32) in [-1, 1] -> statistics of the whole picture (B, S) and activations by
        place (B, P, C)."""
        # (B, 12, 16, 16)
        h = F.pixel_unshuffle(pixels, 2).contiguous(memory_format=torch.channels_last)
        fine = F.relu(self.enter(h))
        h = F.relu(self.down(fine))  # (B, C, 8, 8)
        h = h + F.relu(self.deep(h))
        h = h + F.relu(self.wide(h))
        whole = [
            part(maps.flatten(2), dim=2) for maps in (fine, h) for part in (torch.mean, _spread)
        ]
        return torch.cat(whole, dim=1), F.adaptive_avg_pool2d(h, 3).flatten(2).transpose(1, 2)

    def asked(self, whole: Tensor, places: Tensor) -> dict[str, Tensor]:
        """Answers to the training questions: {question: (B, P, K)} by place, (B, K) about the
        whole."""
        return {
            **{name: head(places) for name, head in self.places.items()},
            **{name: head(whole) for name, head in self.whole.items()},
        }

    @torch.no_grad()
    def pooled(self, images: Tensor, span: tuple[float, float] | None = None) -> Tensor:
        """All pooled activations side by side, (B, S + P * C)."""
        whole, places = self(to_side(to_unit(images.to(self.centre.device), span), SIDE))
        return torch.cat([whole, places.flatten(1)], dim=1)

    @torch.no_grad()
    def features(self, images: Tensor, span: tuple[float, float] | None = None) -> Tensor:
        """Images (B, 3, S, S), uint8 or floats with their range as `span` -> (B, d) float32."""
        return (self.pooled(images, span) - self.centre) @ self.project


def _spread(values: Tensor, dim: int) -> Tensor:
    return (values.var(dim) + 1e-4).sqrt()  # finite slope where a channel is silent


def load_judge(name: str = "judge", folder: Path | None = None) -> AttributeJudge:
    """The shipped attribute judge, frozen, in fp32 and eval mode."""
    return load(name, AttributeJudge, folder)


def load_features(name: str = "features", folder: Path | None = None) -> FeatureNet:
    """The shipped feature network, frozen, in fp32 and eval mode."""
    return load(name, FeatureNet, folder)


# --------------------------------------------------------------------------------------------------
# The second judge: a small patch transformer that answers what the first judge answers, learned
# apart from it.
#
# One judge can be pleased by what only it likes. This one has another architecture (patches and
# attention, where the first convolves), other scenes, and was shown what the first never saw:
# crowds of up to nine objects, noise, empty pictures and the codec's own faults. Where the two
# disagree about an arm, neither number is worth much.
#
# B batch, P = 9 places, K classes of an attribute, N = 64 patches, C channels, H heads


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
    """Attention over all patches with a learned bias for every pair of them, then a layer for each
    patch alone."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = PatchNorm(width), PatchNorm(width)
        self.ask, self.answer = _dense(width, 3 * width), _dense(width, width)
        self.near = nn.Parameter(_nearness().expand(heads, -1, -1).clone())  # (H, N, N)
        self.up, self.down = _dense(width, hidden), _dense(hidden, width)

    def forward(self, h: Tensor) -> Tensor:
        query, key, value = (
            self.ask(self.before(h))
            .flatten(2)
            .unflatten(1, (3, self.heads, -1))
            .transpose(3, 4)
            .unbind(1)
        )
        # (B, H, N, C/H)
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=self.near)
        h = h + self.answer(seen.transpose(2, 3).reshape(h.shape))
        return h + self.down(F.gelu(self.up(self.between(h))))  # type: ignore[no-any-return]


class PatchJudge(nn.Module):
    """Says for each of the nine places whether an object stands there, and its shape, colour,
    texture and size."""

    def __init__(
        self,
        classes: Mapping[str, int],
        width: int = 96,
        heads: int = 4,
        depth: int = 3,
        hidden: int = 192,
    ) -> None:
        super().__init__()
        self.config = {
            "classes": dict(classes),
            "width": width,
            "heads": heads,
            "depth": depth,
            "hidden": hidden,
        }
        self.classes = dict(classes)
        self.enter = nn.Conv2d(3, width, PATCH, stride=PATCH)
        self.where = nn.Parameter(
            torch.zeros(width, SECOND_JUDGE_SIDE // PATCH, SECOND_JUDGE_SIDE // PATCH)
        )
        self.blocks = nn.ModuleList(PatchBlock(width, heads, hidden) for _ in range(depth))
        self.norm = PatchNorm(width)
        self.look = nn.Parameter(nine_looks(1.0, 4.0))  # (2P, N): which patches each place reads
        self.mix = nn.Linear(2 * width, hidden)
        self.place = nn.Parameter(torch.zeros(PLACES, hidden))
        self.answers = nn.ModuleDict(
            {name: nn.Linear(hidden, count) for name, count in self.classes.items()}
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> dict[str, Tensor]:
        """(B, 3, 32, 32) in [-1, 1] -> {attribute: logits (B, P, K)}."""
        # (B, C, 8, 8)
        h = self.enter(pixels.contiguous(memory_format=torch.channels_last)) + self.where
        for block in self.blocks:
            h = block(h)
        patches = self.norm(h).flatten(2).transpose(1, 2)  # (B, N, C)
        read = self.look.softmax(dim=-1) @ patches  # (B, 2P, C)
        # (B, P, hidden)
        read = F.gelu(self.mix(read.unflatten(1, (PLACES, 2)).flatten(2)) + self.place)
        return {name: answer(read) for name, answer in self.answers.items()}

    @torch.no_grad()
    def judge(self, images: Tensor, span: tuple[float, float] | None = None) -> dict[str, Tensor]:
        """Images (B, 3, S, S), uint8 or floats with their range as `span` -> {attribute: logits (B,
        P, K)}."""
        return self(to_side(to_unit(images.to(self.place.device), span), SECOND_JUDGE_SIDE))  # type: ignore[no-any-return]


def _squared_distances(centres: Tensor) -> Tensor:
    """From points along one side, to the patches along it; over the grid of both.  (n², N)"""
    along = (torch.arange(SECOND_JUDGE_SIDE // PATCH) - centres[:, None]) ** 2  # (n, 8)
    return (along[:, None, :, None] + along[None, :, None, :]).reshape(len(centres) ** 2, PATCHES)


def _nearness() -> Tensor:
    """Attention begins with a leaning to neighbours.  (1, N, N)"""
    return -_squared_distances(torch.arange(float(SECOND_JUDGE_SIDE // PATCH)))[None] / 4.0


def nine_looks(narrow: float, wide: float) -> Tensor:
    """Two looks per place, as logits over 8 x 8 cells: a narrow and a wide bell around the place's
    centre.  (2P, N)"""
    square = _squared_distances(torch.tensor(CENTRES) * (SECOND_JUDGE_SIDE / PATCH) - 0.5)
    return torch.stack([-square / narrow, -square / wide], dim=1).reshape(2 * PLACES, PATCHES)


def load_second_judge(name: str = "judge_second", folder: Path | None = None) -> PatchJudge:
    """The shipped second judge, frozen, in fp32 and eval mode."""
    return load(name, PatchJudge, folder)
