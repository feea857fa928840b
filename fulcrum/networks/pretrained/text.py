"""Pretrained text encoders and image-text-to-text models of transformers."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from fulcrum.networks.pretrained.config_facts import TEXT_PARTS, fitting_text, shortest, text_facts
from fulcrum.networks.pretrained.folder import (
    CONFIG,
    _accounted,
    _quiet,
    class_of,
    config_of,
    content_hash,
    licence_of,
    locate,
    read,
    tokenizer_files,
    tokenizer_of,
    weight_files,
)
from fulcrum.networks.text import forget_prompts
from fulcrum.spec.errors import BadInput, install_extra

# --------------------------------------------------------------------------------------------------
# A pretrained text encoder with its own tokenizer: prompts to the last hidden states, padding
# masked.
#
# B prompts, L tokens of the longest, E width


ROWS = 32  # prompts of a pass
MOST_COUNTED = 100_000  # prompts that are told apart


class PretrainedText(nn.Module):
    """`encode` of one of transformers' text encoders, frozen, in fp32. Longer prompts are cut,
    counted in `cut`."""

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Any,
        name: str,
        width: int,
        longest: int,
        facts: dict[str, Any],
    ) -> None:
        super().__init__()
        self.network, self.tokenizer, self.name = network, tokenizer, name
        self.width, self.longest = width, longest
        self.config = {"network": name, "width": width, "longest": longest, **facts}
        self.cut = 0  # prompts that were longer than `longest`
        self.lost = ""  # what the first of them lost
        # hashes of those prompts, the first many: one that is drawn again counts once
        self.over: set[int] = set()
        self.card: dict[str, Any] = {}
        self.notes: list[str] = []

    @torch.no_grad()
    def encode(self, prompts: Sequence[str], length: int | None = None) -> tuple[Tensor, Tensor]:
        """emb (B, L, E) float32, zero where padded, and mask (B, L) bool, true = keep; padding
        stands on the right.

        An empty prompt may have no token at all (Qwen): then its row is masked throughout.
        """
        if isinstance(prompts, str):
            raise TypeError("expected a list of prompts, found one string; pass [prompt]")
        rows = self._ids(list(prompts))
        wanted = max([1, *map(len, rows)])
        if length is not None and wanted > length:
            raise ValueError(
                f"asked to pad to {length} tokens, but a prompt has {wanted}; pass length >="
                f" {wanted}"
            )
        wanted = length or wanted
        emb = torch.zeros(len(rows), wanted, self.width)
        mask = torch.zeros(len(rows), wanted, dtype=torch.bool)
        for first in range(0, len(rows), ROWS):
            with_tokens = [first + i for i, row in enumerate(rows[first : first + ROWS]) if row]
            if with_tokens:
                self._pass([rows[i] for i in with_tokens], with_tokens, emb, mask)
        return emb, mask

    def _pass(self, ids: list[list[int]], places: list[int], emb: Tensor, mask: Tensor) -> None:
        device = next(self.network.parameters()).device
        longest = max(map(len, ids))
        keep = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])  # (b, l)
        padded = torch.tensor(
            [row + [self.tokenizer.pad_token_id] * (longest - len(row)) for row in ids]
        )
        states = self.network(
            input_ids=padded.to(device), attention_mask=keep.to(device)
        ).last_hidden_state
        kept = keep.bool()
        emb[places, :longest] = states.float().to(emb.device) * kept[..., None]
        mask[places, :longest] = kept

    def _ids(self, prompts: list[str]) -> list[list[int]]:
        """Token ids with the tokenizer's own special tokens; what is too long is cut and counted
        (told by `misread`)."""
        whole = (
            self.tokenizer(prompts, truncation=False, padding=False, verbose=False)["input_ids"]
            if prompts
            else []
        )
        over = [i for i, row in enumerate(whole) if len(row) > self.longest]
        if over:
            self.cut += len(over)
            if len(self.over) < MOST_COUNTED:
                self.over.update(hash(prompts[i]) for i in over)
            short = self.tokenizer(
                [prompts[i] for i in over],
                truncation=True,
                max_length=self.longest,
                padding=False,
                verbose=False,
            )["input_ids"]
            if not self.lost:
                same = sum(
                    1
                    for _ in takewhile(
                        lambda pair: pair[0] == pair[1], zip(whole[over[0]], short[0], strict=False)
                    )
                )
                self.lost = self.tokenizer.decode(
                    whole[over[0]][same:], skip_special_tokens=True
                ).strip()
            for i, row in zip(over, short, strict=True):
                whole[i] = row
        return whole


def load_text(path: str, width: int, max_tokens: int) -> PretrainedText:
    """The text encoder in a folder with the tokenizer beside it, checked against what the run says
    of it."""
    folder = locate(path, TEXT_PARTS)
    facts = text_facts(folder)
    fitting_text(folder, width)
    tokenizer = _tokenizer(tokenizer_of(folder))
    longest = shortest(max_tokens, facts.longest, tokenizer.model_max_length)
    named = (config_of(folder).get("architectures") or [facts.network])[0]
    more: dict[str, Any] = {}
    if facts.network == "T5GemmaEncoderModel":
        more = {"is_encoder_decoder": False}
    elif facts.network == "T5GemmaEncoder":
        more = {"config": _encoder_config(folder)}
    network = read("transformers", facts.network, folder, half=named != facts.network, **more)
    # Qwen3-VL's text half; what it sees is not asked for
    network = getattr(network, "language_model", network)
    text = PretrainedText(
        network,
        tokenizer,
        facts.network,
        width,
        longest,
        {"files": content_hash(folder, tokenizer_files(folder))},
    ).eval()
    text.card = _card(text, folder)
    forget_prompts(text)  # a small limit cuts the self-check's prompts too
    text.notes = [
        f"text encoder {text.name}: width {width}, at most {longest} tokens, deviation"
        f" {text.card['deviation']:.2f}"
    ]
    return text


def _encoder_config(folder: Path) -> Any:
    """The encoder's own configuration: pipelines keep that of the whole T5Gemma beside the encoder
    half."""
    from transformers import T5GemmaConfig
    from transformers.models.t5gemma.configuration_t5gemma import T5GemmaModuleConfig

    if "encoder" in config_of(folder):
        return T5GemmaConfig.from_pretrained(str(folder), local_files_only=True).encoder
    return T5GemmaModuleConfig.from_pretrained(str(folder), local_files_only=True)


def _tokenizer(place: Path) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise BadInput(
            "a pretrained text encoder needs transformers", install_extra("diffusers")
        ) from None
    with _quiet("transformers"):
        try:
            made = AutoTokenizer.from_pretrained(
                str(place), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # many kinds, down to a missing sentencepiece
            raise BadInput(
                f"the tokenizer in {place} cannot be read: {type(error).__name__}:"
                f" {str(error)[:300]}",
                "expected what a tokenizer's save_pretrained writes",
            ) from error
    if made.pad_token_id is None:
        # masked everywhere: any known token will do
        made.pad_token = made.eos_token or made.unk_token
    if made.pad_token_id is None:
        raise BadInput(
            f"the tokenizer in {place} has neither padding nor an end token",
            "add a pad_token to it",
        )
    return made


def _card(text: PretrainedText, folder: Path) -> dict[str, Any]:
    """The facts that travel with it, and the self-check: shape, finite, other words give other
    states."""
    emb, mask = text.encode(["a red circle", "a blue square and a green ring"])
    vocabulary = int(text.network.get_input_embeddings().weight.shape[0])  # type: ignore[operator]
    if len(text.tokenizer) > vocabulary:
        raise BadInput(
            f"the tokenizer beside {folder} has {len(text.tokenizer)} words, the encoder"
            f" {vocabulary}",
            "they belong to two models",
        )
    real, ends = emb[mask], emb[[0, 1], mask.sum(1) - 1]
    if (
        emb.shape[-1] != text.width
        or not bool(real.isfinite().all())
        or torch.equal(ends[0], ends[1])
    ):
        raise BadInput(
            f"{folder}: two prompts gave embeddings {tuple(emb.shape)}, expected finite and"
            f" different ones of width {text.width}",
            "the folder is not what its config says",
        )
    return {
        "network": text.name,
        "width": text.width,
        "longest": text.longest,
        "licence": licence_of(folder),
        "preprocessing": "the folder's tokenizer; no cleaning of the text",
        "states": "last hidden states",
        "deviation": round(float(real.std()), 4),
        "empty_tokens": int(text.encode([""])[1].sum()),
    }


# --------------------------------------------------------------------------------------------------
# Any image-text-to-text model of transformers from a folder or hub id: pictures and a prompt in,
# text out, frozen.
#
# No code of the folder is run, and only safetensors are read, as everywhere in this room.


AUTO = "AutoModelForImageTextToText"
PROCESSING = (
    *(
        "processor_config.json",
        "preprocessor_config.json",
        "chat_template.json",
        "chat_template.jinja",
    ),
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
                f"{self.folder / CONFIG} asks for code of its own (auto_map)",
                "only classes of transformers run",
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
        """Else it was trained to caption and nothing else (BLIP, GIT): a prompt would be read as a
        caption's beginning."""
        return bool(getattr(self.processor, "chat_template", None) or self.image_token)

    def _network(self, dtype: torch.dtype) -> Any:
        weight_files(self.folder)
        with _quiet("transformers"):
            try:
                network, info = class_of("transformers", AUTO).from_pretrained(
                    str(self.folder),
                    local_files_only=True,
                    use_safetensors=True,
                    output_loading_info=True,
                    dtype=dtype,
                )
            # their loaders raise many kinds; the folder is what is wrong
            except Exception as error:
                raise BadInput(
                    f"{self.folder} cannot be read as {AUTO}: {type(error).__name__}:"
                    f" {str(error)[:400]}",
                    "expected a vision-language model as save_pretrained writes it: config.json and"
                    " safetensors",
                ) from error
        _accounted(type(network).__name__, self.folder, info, half=False)
        return network.eval().requires_grad_(False)

    def _processor(self) -> Any:
        with _quiet("transformers"):
            try:
                return class_of("transformers", "AutoProcessor").from_pretrained(
                    str(self.folder), local_files_only=True
                )
            except Exception as error:
                raise BadInput(
                    f"{self.folder} has no processor that can be used here: {type(error).__name__}:"
                    f" {str(error)[:300]}",
                    "save it beside the weights:"
                    " AutoProcessor.from_pretrained(...).save_pretrained(folder); some need the"
                    " package torchvision",
                ) from error

    def _asked(self, prompt: str) -> str | None:
        if getattr(self.processor, "chat_template", None):
            content = [{"type": "image"}, {"type": "text", "text": prompt}]
            messages = [{"role": "user", "content": content}]
            return str(
                self.processor.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=False
                )
            )
        return f"{self.image_token}\n{prompt}" if self.image_token else None

    @torch.no_grad()
    def write(
        self,
        pictures: Sequence[NDArray[np.uint8]],
        prompt: str,
        most: int,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> list[tuple[str, bool]]:
        """Pictures (3, H, W) -> each one's answer, and whether it came to its end within `most`
        tokens."""
        images = [
            Image.fromarray(np.ascontiguousarray(picture.transpose(1, 2, 0)))
            for picture in pictures
        ]
        asked = self._asked(prompt)
        words = {} if asked is None else {"text": [asked] * len(images), "padding": True}
        inputs = self.processor(images=images, return_tensors="pt", **words).to(
            self.device, self.network.dtype
        )
        drawn = (
            {"do_sample": True, "temperature": temperature}
            if temperature > 0
            else {"do_sample": False}
        )
        with (
            torch.random.fork_rng(devices=[] if self.device == "cpu" else None),
            _quiet("transformers"),
        ):
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
        return {
            int(one)
            for many in named
            for one in (many if isinstance(many, list) else [many])
            if one is not None
        }
