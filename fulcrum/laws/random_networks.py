"""Tiny random networks of the classes that full-size levers read, written with save_pretrained, so that laws can try them.

Strides, channels and tokenizer are those of the real ones; widths are not, and what they say means nothing.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from fulcrum.files.atomic import folder_atomic
from fulcrum.networks.pretrained.folder import _quiet, class_of
from fulcrum.spec.errors import BadInput

WORDS = ("a", "large", "small", "red", "blue", "circle", "square", "on", "the", "left")
BLOCKS = 4  # of an autoencoder: a stride of 8


def written(network: str, root: Path) -> Path:
    """The folder of a tiny network of this class, made at the first time."""
    folder = root / network
    if not folder.exists():
        library, make = NETWORKS[network]
        with torch.random.fork_rng(devices=[]), _quiet(library), folder_atomic(folder) as aside:
            torch.manual_seed(0)
            make(class_of(library, network)).save_pretrained(aside)
            if network == "Qwen3VLTextModel":
                _tokenizer().save_pretrained(aside)
    return folder


def missing(network: str) -> str | None:
    """Why a network of this class cannot be made here, in words, or None."""
    library, _ = NETWORKS[network]
    if find_spec(library) is None:
        return f"{library} is not installed"
    try:
        class_of(library, network)
    except BadInput as error:
        return error.message
    return None


def _autoencoder(channels: int) -> Callable[[Any], Any]:
    return lambda cls: cls(
        latent_channels=channels,
        block_out_channels=(4,) * BLOCKS,
        down_block_types=("DownEncoderBlock2D",) * BLOCKS,
        up_block_types=("UpDecoderBlock2D",) * BLOCKS,
        layers_per_block=1,
        norm_num_groups=2,
        sample_size=32,
    )


def _vision(cls: Any) -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    inside = {"intermediate_size": 32} if cls.__name__.startswith("DINOv3") else {"mlp_ratio": 2}
    return cls(cls.config_class(**sizes, **inside))


def _language(cls: Any) -> Any:
    turns = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    return cls(
        cls.config_class(
            vocab_size=4 + len(WORDS),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=128,
            rope_parameters=turns,
        )
    )


def _tokenizer() -> Any:
    """Splits at spaces; as Qwen's it gives an empty prompt no token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(("<pad>", "<eos>", "<bos>", "<unk>", *WORDS))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=128, **named)  # type: ignore[no-untyped-call]


NETWORKS: dict[str, tuple[str, Callable[[Any], Any]]] = {  # class -> its library, and how a tiny one is made
    "AutoencoderKLFlux2": ("diffusers", _autoencoder(32)),
    "AutoencoderKL": ("diffusers", _autoencoder(16)),
    "Dinov2Model": ("transformers", _vision),
    "DINOv3ViTModel": ("transformers", _vision),
    "Qwen3VLTextModel": ("transformers", _language),
}
