"""Any image-text-to-text model of transformers from a folder or hub id: pictures and a prompt in, text out, frozen.

No code of the folder is run, and only safetensors are read, as everywhere in this room.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fulcrum.encode.pretrained.folder import CONFIG, config_of, content_hash, licence_of, locate, weight_files
from fulcrum.encode.pretrained.load import _accounted, _quiet, class_of
from fulcrum.spec.errors import BadInput

AUTO = "AutoModelForImageTextToText"
PROCESSING = (
    *("processor_config.json", "preprocessor_config.json", "chat_template.json", "chat_template.jinja"),
    *("tokenizer.json", "tokenizer_config.json", "generation_config.json"),
)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class ImageText:
    """`write` answers one prompt about each of a batch of pictures."""

    def __init__(self, path: str, device: str = "cpu", dtype: str = "float32") -> None:
        if dtype not in DTYPES:
            raise BadInput(f"no type is called '{dtype}'", f"known: {', '.join(DTYPES)}")
        self.folder = locate(path, ())
        config = config_of(self.folder)
        if "auto_map" in config:
            raise BadInput(
                f"{self.folder / CONFIG} asks for code of its own (auto_map)", "only classes of transformers run"
            )
        others = tuple(self.folder / name for name in PROCESSING if (self.folder / name).is_file())
        self.content, self.licence = content_hash(self.folder, others), licence_of(self.folder)
        self.network = self._network(DTYPES[dtype]).to(device)
        self.kind, self.device = type(self.network).__name__, device
        self.processor = self._processor()
        self.tokenizer = getattr(self.processor, "tokenizer", self.processor)
        self.tokenizer.padding_side = "left"  # what is generated goes on from the right
        if self.tokenizer.pad_token_id is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if self.network.generation_config.pad_token_id is None:
            self.network.generation_config.pad_token_id = self.tokenizer.pad_token_id
        self.image_token = str(getattr(self.processor, "image_token", "") or "")

    @property
    def takes_prompts(self) -> bool:
        """Else it was trained to caption and nothing else (BLIP, GIT): a prompt would be read as a caption's beginning."""
        return bool(getattr(self.processor, "chat_template", None) or self.image_token)

    def _network(self, dtype: torch.dtype) -> Any:
        weight_files(self.folder)
        with _quiet("transformers"):
            try:
                network, info = class_of("transformers", AUTO).from_pretrained(
                    str(self.folder), local_files_only=True, use_safetensors=True, output_loading_info=True, dtype=dtype
                )
            except Exception as error:  # their loaders raise many kinds; the folder is what is wrong
                raise BadInput(
                    f"{self.folder} cannot be read as {AUTO}: {type(error).__name__}: {str(error)[:400]}",
                    "expected a vision-language model as save_pretrained writes it: config.json and safetensors",
                ) from error
        _accounted(type(network).__name__, self.folder, info, half=False)
        return network.eval().requires_grad_(False)

    def _processor(self) -> Any:
        with _quiet("transformers"):
            try:
                return class_of("transformers", "AutoProcessor").from_pretrained(str(self.folder), local_files_only=True)
            except Exception as error:
                raise BadInput(
                    f"{self.folder} has no processor that can be used here: {type(error).__name__}: {str(error)[:300]}",
                    "save it beside the weights: AutoProcessor.from_pretrained(...).save_pretrained(folder); some need the "
                    "package torchvision",
                ) from error

    def _asked(self, prompt: str) -> str | None:
        if getattr(self.processor, "chat_template", None):
            content = [{"type": "image"}, {"type": "text", "text": prompt}]
            messages = [{"role": "user", "content": content}]
            return str(self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
        return f"{self.image_token}\n{prompt}" if self.image_token else None

    @torch.no_grad()
    def write(
        self, pictures: Sequence[NDArray[np.uint8]], prompt: str, most: int, temperature: float = 0.0, seed: int = 0
    ) -> list[tuple[str, bool]]:
        """Pictures (3, H, W) -> each one's answer, and whether it came to its end within `most` tokens."""
        images = [Image.fromarray(np.ascontiguousarray(picture.transpose(1, 2, 0))) for picture in pictures]
        asked = self._asked(prompt)
        words = {} if asked is None else {"text": [asked] * len(images), "padding": True}
        inputs = self.processor(images=images, return_tensors="pt", **words).to(self.device, self.network.dtype)
        drawn = {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
        with torch.random.fork_rng(devices=[] if self.device == "cpu" else None), _quiet("transformers"):
            torch.manual_seed(seed)
            ids = self.network.generate(**inputs, max_new_tokens=most, num_beams=1, **drawn)
        if "input_ids" in inputs and not self.network.config.is_encoder_decoder:
            ids = ids[:, inputs["input_ids"].shape[1] :]
        texts = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
        ends = self._ends()
        return [
            (text, len(row) < most or any(one in ends for one in row))
            for text, row in zip(texts, ids.tolist(), strict=True)
        ]

    def _ends(self) -> set[int]:
        """Tokens that end an answer."""
        named = [self.network.generation_config.eos_token_id, self.tokenizer.eos_token_id]
        text = getattr(self.network.config, "text_config", None)
        named.append(getattr(text, "eos_token_id", None))
        named.append(getattr(text, "sep_token_id", None))  # BLIP's
        return {int(one) for many in named for one in (many if isinstance(many, list) else [many]) if one is not None}
