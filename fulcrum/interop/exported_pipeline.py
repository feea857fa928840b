"""A run as the folder of a whole pipeline of diffusers: denoiser, scheduler, text encoder, tokenizer, codec, noises.

C channels, h, w latent rows and columns
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

from fulcrum.files.atomic import atomic_path, write_atomic
from fulcrum.flow import keyed_noise
from fulcrum.interop.diffusers import MADE_FOR, export, pipeline_of
from fulcrum.interop.exported_codec import export_codec
from fulcrum.interop.exported_text import export_text
from fulcrum.model.backbone import Backbone
from fulcrum.networks.codec import IdentityCodec, KLCodec
from fulcrum.networks.pretrained.codec import PretrainedCodec
from fulcrum.networks.pretrained.folder import _quiet
from fulcrum.networks.pretrained.text import PretrainedText
from fulcrum.networks.protocols import Codec, TextEncoder
from fulcrum.networks.text import LONGEST, WorldText
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec

INDEX, NOISE = "model_index.json", "noise.safetensors"
TRAIN_STEPS = 1000  # what diffusers calls t = 1
WORLD_CLASS = "ModernBertModel"  # the embedded text encoder, as it leaves
FAST = "PreTrainedTokenizerFast"  # also the name that transformers 4 has for TokenizersBackend
PLACES = ("_name_or_path", "name_or_path", "is_local", "local_files_only")  # of a config: where it was read from
MOST_NOISE = 64_000_000  # bytes of noises, at most; that of one seed at least

Loaded = tuple[str, str]  # the library and the class that read a part


class PipelineParts(NamedTuple):
    """What a run draws with."""

    run: RunSpec
    backbone: Backbone
    codec: Codec
    text: TextEncoder

    @property
    def longest(self) -> int:
        """Tokens of a prompt, at most; what is longer is cut."""
        return self.text.longest if isinstance(self.text, PretrainedText) else LONGEST

    @property
    def text_class(self) -> str:
        """What transformers calls the text encoder."""
        return type(self.text.network).__name__ if isinstance(self.text, PretrainedText) else WORLD_CLASS


def export_pipeline(parts: PipelineParts, folder: Path, seeds: int = 1, dtype: torch.dtype | None = None) -> list[int]:
    """Fill an empty folder; `dtype` is that of the denoiser's weights. Returns the seeds whose noise was written."""
    run = parts.run
    pixels = pipeline_of(run) == "PRXPixelPipeline"
    index: dict[str, Any] = {
        "_class_name": pipeline_of(run),
        "_diffusers_version": MADE_FOR,
        "default_sample_size": run.data.size,
        "scheduler": ("diffusers", "FlowMatchEulerDiscreteScheduler"),
        "transformer": ("diffusers", "PRXTransformer2DModel"),
    }
    export(parts.backbone, folder / "transformer", dtype)
    index["text_encoder"], index["tokenizer"] = ("transformers", parts.text_class), _text(parts.text, folder)
    if pixels:
        index |= {"noise_scale": run.flow.noise_scale, "prompt_max_tokens": parts.longest}
    else:
        index["vae"] = _codec(parts.codec, folder / "vae")
    (folder / "scheduler").mkdir()
    # The times of a call are shifted already: a shift here would be a second one (docs/decisions/0043).
    scheduler = {"num_train_timesteps": TRAIN_STEPS, "shift": 1.0}
    head = {"_class_name": index["scheduler"][1], "_diffusers_version": MADE_FOR}
    write_atomic(folder / "scheduler" / "scheduler_config.json", _json(head | scheduler))
    write_atomic(folder / INDEX, _json(index))
    return export_noises(run, folder / NOISE, seeds)


def _text(text: TextEncoder, folder: Path) -> Loaded:
    """Encoder and tokenizer, in folders of their own; returns what reads the tokenizer."""
    if isinstance(text, WorldText):
        export_text(text, folder / "text_encoder", folder / "tokenizer")
        return "transformers", FAST
    if isinstance(text, PretrainedText):
        network: Any = text.network
        with _quiet("transformers"):
            network.save_pretrained(folder / "text_encoder")
            if text.name == "T5GemmaEncoder":
                _whole_config(network.config, folder / "text_encoder")
            text.tokenizer.save_pretrained(folder / "tokenizer")  # with the padding token that it got when it was loaded
        _mend(folder / "text_encoder" / "config.json")
        _mend(folder / "tokenizer" / "tokenizer_config.json")
        reads = type(text.tokenizer).__name__
        return "transformers", FAST if reads == "TokenizersBackend" else reads
    raise BadInput(
        f"the text encoder {type(text).__name__} has no class in transformers",
        "train with an embedded or a pretrained one, or draw with fulcrum sample",
    )


def _whole_config(encoder: Any, folder: Path) -> None:
    """diffusers reads the encoder half of T5Gemma through the description of the whole, as published folders have it."""
    from transformers import T5GemmaConfig

    whole = T5GemmaConfig(encoder=encoder.to_dict(), decoder=encoder.to_dict(), vocab_size=encoder.vocab_size)
    whole.architectures = ["T5GemmaEncoder"]
    whole.save_pretrained(folder)


def _codec(codec: Codec, folder: Path) -> Loaded:
    if isinstance(codec, KLCodec):
        export_codec(codec, folder)
        return "diffusers", "AutoencoderKL"
    if isinstance(codec, PretrainedCodec) and getattr(codec.network, "config", {}).get("latents_mean") is None:
        network: Any = codec.network
        with _quiet("diffusers"):
            network.save_pretrained(folder)
        _mend(folder / "config.json")
        return "diffusers", codec.name
    what = "no codec" if isinstance(codec, IdentityCodec) else f"the codec {getattr(codec, 'name', type(codec).__name__)}"
    raise BadInput(
        f"PRXPipeline cannot make pictures as this run does, with {what}",
        "it divides latents by scaling_factor and adds shift_factor; draw with fulcrum sample",
    )


def _mend(path: Path) -> None:
    """A config without where the part lay on this machine. PRXPipeline adds whatever stands at shift_factor, and nothing
    at all is no number."""
    config = _placeless(json.loads(path.read_text(encoding="utf-8")))
    if config.get("shift_factor", 0.0) is None:
        config["shift_factor"] = 0.0
    write_atomic(path, _json(config))


def _placeless(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _placeless(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name not in PLACES
    }


def noise_of(run: RunSpec, seed: int) -> torch.Tensor:
    """(1, C, h, w): what the first picture of a seed begins from, at the run's own size."""
    side = run.data.size // run.encode.codec.stride
    return keyed_noise.normal(seed, "sample", np.arange(1), (run.encode.codec.channels, side, side)) * run.flow.noise_scale


def export_noises(run: RunSpec, path: Path, seeds: int) -> list[int]:
    bytes_each = noise_of(run, 0).nbytes
    chosen = list(range(min(seeds, max(1, MOST_NOISE // bytes_each))))
    with atomic_path(path) as aside:
        save_file({str(seed): noise_of(run, seed).contiguous() for seed in chosen}, aside)
    return chosen


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
