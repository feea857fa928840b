"""The world's text encoder as a folder of transformers' ModernBertModel with its tokenizer: the names are the same."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from fulcrum.data.world.scene import TOKEN
from fulcrum.files.atomic import atomic_path, write_atomic
from fulcrum.networks.text import EPS, HIDDEN, LONGEST, PAD, START, THETA, UNKNOWN, Tokenizer, WorldText

TRANSFORMERS_VERSION = "5.22.2"  # the transformers version whose config this is
SPECIALS = {PAD: "[PAD]", UNKNOWN: "[UNK]", START: "[START]", HIDDEN: "[MASK]"}


def export_text(text: WorldText, folder: Path, tokenizer: Path | None = None) -> Path:
    """Write config, weights and tokenizer as save_pretrained would; needs no transformers. `tokenizer`: its own folder."""
    beside = tokenizer or folder
    for place in (folder, beside):
        place.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in text.state_dict().items()}
    with atomic_path(folder / "model.safetensors") as aside:
        save_file(weights, aside, metadata={"format": "pt"})
    for path, content in {
        folder / "config.json": _config(text),
        beside / "tokenizer.json": _tokenizer(text.tokenizer),
        beside / "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": LONGEST,
            "padding_side": "right",
            "pad_token": SPECIALS[PAD],
            "unk_token": SPECIALS[UNKNOWN],
            "bos_token": SPECIALS[START],
            "mask_token": SPECIALS[HIDDEN],
            "split_special_tokens": True,  # a prompt that spells "[PAD]" means the word
        },
    }.items():
        write_atomic(path, json.dumps(content, indent=2) + "\n")
    return folder


def _config(text: WorldText) -> dict[str, Any]:
    depth = len(text.layers)
    return {
        "architectures": ["ModernBertModel"],
        "model_type": "modernbert",
        "transformers_version": TRANSFORMERS_VERSION,
        "dtype": str(torch.float32).removeprefix("torch."),
        "vocab_size": len(text.tokenizer),
        "hidden_size": text.width,
        "intermediate_size": text.config["hidden"],
        "num_hidden_layers": depth,
        "num_attention_heads": text.heads,
        "hidden_activation": "gelu",
        "norm_eps": EPS,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": LONGEST,
        "layer_types": ["full_attention"] * depth,
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": THETA} for kind in ("full_attention", "sliding_attention")
        },
        "global_attn_every_n_layers": 1,  # transformers 4 asks by these two
        "global_rope_theta": THETA,
        "pad_token_id": PAD,
        "bos_token_id": START,
        "cls_token_id": START,
        "eos_token_id": None,
        "sep_token_id": None,
    }


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """A word level tokenizer of the tokenizers library: lower case, our split, one start before the words."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    start = {"SpecialToken": {"id": SPECIALS[START], "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in ("A", "B"))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": name, **special} for number, name in SPECIALS.items()],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": TOKEN.pattern}, "behavior": "Removed", "invert": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [start, first],
            "pair": [start, first, second],
            "special_tokens": {
                SPECIALS[START]: {"id": SPECIALS[START], "ids": [START], "tokens": [SPECIALS[START]]},
            },
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {**{name: number for number, name in SPECIALS.items()}, **tokenizer.index},
            "unk_token": SPECIALS[UNKNOWN],
        },
    }
