"""Who writes captions: the world's own captioner, or any image-text-to-text model of transformers; pictures in, words."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fulcrum.caption.prompts import TOKENS, CaptionPrompt
from fulcrum.spec.errors import BadInput
from fulcrum.spec.keyed import key

WORLD = "world"
Picture = NDArray[np.uint8]  # (3, H, W)


class CaptionAnswer(NamedTuple):
    text: str
    ended: bool = True  # else it was cut off at the most tokens


class Captioner(Protocol):
    """Batches of pictures, each with its number in the store: whatever is drawn is keyed by it."""

    facts: dict[str, Any]  # what the captions' provenance says of it

    def answers(self, pictures: Sequence[Picture], rows: Sequence[int], prompt: CaptionPrompt) -> list[CaptionAnswer]: ...


class WorldWriter:
    """The shipped captioner; it knows the embedded world and takes styles, not prompts."""

    def __init__(self, device: str = "cpu", drawn: bool = False) -> None:
        from fulcrum.encode.networks.world_captioner import load_captioner
        from fulcrum.files.shipped import asset_hash

        self.network, self.drawn = load_captioner().to(device), drawn
        self.facts = {"model": WORLD, "model_hash": asset_hash("captioner"), "words": "drawn" if drawn else "likeliest"}

    def answers(self, pictures: Sequence[Picture], rows: Sequence[int], prompt: CaptionPrompt) -> list[CaptionAnswer]:
        from fulcrum.encode.networks.world_captioner import word_dice

        sides = {picture.shape for picture in pictures}
        if len(sides) > 1 or next(iter(sides))[1] != next(iter(sides))[2]:
            raise BadInput("the world's captioner reads square pictures", "import them without --buckets, or use a VLM")
        dice = word_dice(np.asarray(rows), prompt.style) if self.drawn else None
        texts = self.network.write(torch.from_numpy(np.stack(pictures)), prompt.style, dice)
        return [CaptionAnswer(text) for text in texts]


class ChatWriter:
    """A vision-language model that answers a prompt about a picture."""

    def __init__(self, path: str, device: str, settings: "Settings", styles: Sequence[str]) -> None:
        from fulcrum.encode.pretrained.image_text import ImageText

        self.network, self.settings = ImageText(path, device, settings.dtype), settings
        if not self.network.takes_prompts and len(styles) > 1:
            raise BadInput(
                f"{path} is a {self.network.kind} that takes no prompt: it has one way to tell a picture, "
                f"and {len(styles)} styles are asked for",
                f"ask for one: --styles {styles[0]}",
            )
        self.facts = {"model": path, "model_hash": self.network.content, "class": self.network.kind, **settings._asdict()}
        self.facts["takes_prompts"] = self.network.takes_prompts

    def answers(self, pictures: Sequence[Picture], rows: Sequence[int], prompt: CaptionPrompt) -> list[CaptionAnswer]:
        most = self.settings.max_tokens or TOKENS[prompt.style]
        seed = int(key("caption", self.settings.seed, prompt.style, int(rows[0]))[0]) % 2**63
        written = self.network.write(pictures, prompt.text, most, self.settings.temperature, seed)
        return [CaptionAnswer(text, ended) for text, ended in written]


class Settings(NamedTuple):
    """How answers are generated; part of their provenance."""

    max_tokens: int = 0  # 0: by style
    temperature: float = 0.0  # 0: the likeliest words
    seed: int = 0
    dtype: str = "float32"


def open_captioner(model: str, device: str, settings: Settings, styles: Sequence[str]) -> Captioner:
    if model != WORLD:
        return ChatWriter(model, device, settings, styles)
    if settings.max_tokens or settings.dtype != Settings().dtype:
        raise BadInput("the world's captioner has its own lengths and type", "leave --max-tokens and --dtype out")
    return WorldWriter(device, drawn=settings.temperature > 0)


def provenance(captioner: Mapping[str, Any], prompt: CaptionPrompt) -> dict[str, Any]:
    """What stands beside a column of captions; of a prompt, what was really asked."""
    asked = {"version": prompt.version, "text": prompt.text} if captioner.get("takes_prompts") else {"version": "none"}
    return {**captioner, "style": prompt.style, "prompt": asked}
