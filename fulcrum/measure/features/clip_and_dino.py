"""CLIP and DINOv2 as extractors, through transformers, from a folder or a hub id.

B images, d feature width
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fulcrum.measure.features.extractor import Extractor, antialiased, digest_of
from fulcrum.networks.pretrained.folder import (
    class_of,
    config_of,
    content_hash,
    locate,
    read,
    tokenizer_files,
    tokenizer_of,
)
from fulcrum.spec.errors import BadInput

IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
DINO_SIDE = 224  # what DINOv2 is evaluated with; its config names the 518 that its positions were trained for


def load_clip(where: str) -> Extractor:
    """Projected image embeddings (not yet of unit length); with a tokenizer beside them also the CLIP score."""
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
        pooled = network.vision_model(pixel_values=normalise(antialiased(images, side))).pooler_output
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
    content = digest_of("clip", content_hash(folder, words, fresh=True), resize, colours)
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
    kind = {"dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel"}.get(str(config.get("model_type")))
    if kind is None:
        raise BadInput(
            f"{folder} holds a model of type {config.get('model_type')!r}, expected 'dinov2'",
            "for FD-DINO: facebook/dinov2-large",
        )
    network: Any = read("transformers", kind, folder)
    side, colours = min(DINO_SIDE, int(network.config.image_size)), _colours(folder, IMAGENET)
    normalise = _normaliser(colours)

    def features(images: Tensor) -> Tensor:
        rows: Tensor = network(pixel_values=normalise(antialiased(images, side))).last_hidden_state[:, 0]
        return rows

    resize = f"antialiased bicubic to {side} px, squeezed to a square"
    return Extractor(
        "dino",
        digest_of("dino", content_hash(folder, fresh=True), resize, colours),
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
    return class_of("transformers", "CLIPTokenizer").from_pretrained(str(place), local_files_only=True), files


def _colours(folder: Path, usual: tuple[list[float], list[float]]) -> tuple[list[float], list[float]]:
    try:
        config = json.loads((folder / "preprocessor_config.json").read_bytes())
        return list(config["image_mean"]), list(config["image_std"])
    except (OSError, ValueError, KeyError, TypeError):
        return usual


def _normaliser(colours: tuple[list[float], list[float]]) -> Any:
    mean, deviation = (torch.tensor(part).reshape(1, 3, 1, 1) for part in colours)
    return lambda unit: (unit - mean.to(unit.device)) / deviation.to(unit.device)
