"""Captioners and caption scorers: the embedded ones or pretrained ones, with versioned prompts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fulcrum.files.paths import read_regular, refusal
from fulcrum.files.sealed import sha256_text
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.keyed import key

# --------------------------------------------------------------------------------------------------
# What a vision-language model is asked, style by style. A changed wording is another version, never
# an edit of an old one: captions that are kept say which prompt they answer.


STYLES = ("long", "medium", "short", "tags")
TOKENS = {"long": 256, "medium": 96, "short": 32, "tags": 96}  # most of an answer


class CaptionPrompt(NamedTuple):
    style: str
    version: str
    text: str


SHIPPED = {
    "long": CaptionPrompt(
        "long",
        "long-1",
        "Describe this picture completely for someone who cannot see it: every object with its"
        " colour, material, size and place, how they relate, the background, the light and the"
        " style. State only what can be seen. Write plain sentences and no introduction.",
    ),
    "medium": CaptionPrompt(
        "medium",
        "medium-1",
        "Describe this picture in one or two plain sentences: the main objects, what they look like"
        " and where they are. State only what can be seen, without an introduction.",
    ),
    "short": CaptionPrompt(
        "short",
        "short-1",
        "Name what this picture shows in one short phrase of at most twelve words, without an"
        " introduction.",
    ),
    "tags": CaptionPrompt(
        "tags",
        "tags-1",
        "List what this picture shows as tags, separated by commas: objects, colours, style. Only"
        " the tags.",
    ),
}


def chosen_prompts(styles: str, own: Iterable[str] = ()) -> dict[str, CaptionPrompt]:
    """Style -> prompt, of styles written `long,short`; `own` replaces texts: `long=FILE`, versioned
    by the file's hash."""
    names = [name.strip() for name in styles.split(",") if name.strip()]
    if not names or len(set(names)) < len(names):
        raise BadInput(
            f"--styles is a list of different styles, found '{styles}'",
            f"such as --styles {','.join(STYLES)}",
        )
    for name in names:
        if name not in STYLES:
            raise BadInput(f"no style is called '{name}'", nearest(name, STYLES))
    prompts = {name: SHIPPED[name] for name in names}
    for pair in own:
        style, equals, file = pair.partition("=")
        if not equals or style not in prompts:
            raise BadInput(
                f"a prompt is written STYLE=FILE with a style that is asked for, found '{pair}'",
                f"styles: {', '.join(names)}",
            )
        prompts[style] = _own(style, Path(file))
    return prompts


def _own(style: str, file: Path) -> CaptionPrompt:
    try:
        text = read_regular(file).decode("utf-8-sig").strip()
    except OSError as error:
        raise refusal(
            error, f"the prompt {file} cannot be read", hint="a file of plain text", kind=BadInput
        ) from None
    except UnicodeDecodeError:
        raise BadInput(f"the prompt {file} is not UTF-8", "save it as plain text") from None
    if not text:
        raise BadInput(f"the prompt {file} is empty", "write what the model is to be asked")
    return CaptionPrompt(style, f"own-{sha256_text(text, 12)}", text)


# --------------------------------------------------------------------------------------------------
# Who writes captions: the world's own captioner, or any image-text-to-text model of transformers;
# pictures in, words.


WORLD = "world"
Picture = NDArray[np.uint8]  # (3, H, W)


class CaptionAnswer(NamedTuple):
    text: str
    ended: bool = True  # else it was cut off at the most tokens


class Captioner(Protocol):
    """Batches of pictures, each with its number in the store: whatever is drawn is keyed by it."""

    facts: dict[str, Any]  # what the captions' provenance says of it

    def answers(
        self, pictures: Sequence[Picture], rows: Sequence[int], prompt: CaptionPrompt
    ) -> list[CaptionAnswer]: ...


class WorldWriter:
    """The shipped captioner; it knows the embedded world and takes styles, not prompts."""

    def __init__(self, device: str = "cpu", drawn: bool = False) -> None:
        from fulcrum.files.shipped import asset_hash
        from fulcrum.networks.captioner import load_captioner

        self.network, self.drawn = load_captioner().to(device), drawn
        self.facts = {
            "model": WORLD,
            "model_hash": asset_hash("captioner"),
            "words": "drawn" if drawn else "likeliest",
        }

    def answers(
        self, pictures: Sequence[Picture], rows: Sequence[int], prompt: CaptionPrompt
    ) -> list[CaptionAnswer]:
        from fulcrum.networks.captioner import word_dice

        sides = {picture.shape for picture in pictures}
        if len(sides) > 1 or next(iter(sides))[1] != next(iter(sides))[2]:
            raise BadInput(
                "the world's captioner reads square pictures",
                "import them without --buckets, or use a VLM",
            )
        dice = word_dice(np.asarray(rows), prompt.style) if self.drawn else None
        texts = self.network.write(torch.from_numpy(np.stack(pictures)), prompt.style, dice)
        return [CaptionAnswer(text) for text in texts]


class ChatWriter:
    """A vision-language model that answers a prompt about a picture."""

    def __init__(self, path: str, device: str, settings: "Settings", styles: Sequence[str]) -> None:
        from fulcrum.networks.pretrained.text import ImageText

        self.network, self.settings = ImageText(path, device, settings.dtype), settings
        if not self.network.takes_prompts and len(styles) > 1:
            raise BadInput(
                f"{path} is a {self.network.kind} that takes no prompt: it has one way to tell a"
                f" picture, and {len(styles)} styles are asked for",
                f"ask for one: --styles {styles[0]}",
            )
        self.facts = {
            "model": path,
            "model_hash": self.network.content,
            "class": self.network.kind,
            **settings._asdict(),
        }
        self.facts["takes_prompts"] = self.network.takes_prompts

    def answers(
        self, pictures: Sequence[Picture], rows: Sequence[int], prompt: CaptionPrompt
    ) -> list[CaptionAnswer]:
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
        raise BadInput(
            "the world's captioner has its own lengths and type",
            "leave --max-tokens and --dtype out",
        )
    return WorldWriter(device, drawn=settings.temperature > 0)


def provenance(captioner: Mapping[str, Any], prompt: CaptionPrompt) -> dict[str, Any]:
    """What stands beside a column of captions; of a prompt, what was really asked."""
    asked = (
        {"version": prompt.version, "text": prompt.text}
        if captioner.get("takes_prompts")
        else {"version": "none"}
    )
    return {**captioner, "style": prompt.style, "prompt": asked}


# --------------------------------------------------------------------------------------------------
# How well a picture and a caption fit, by a network that knows both: the world's own scorer, or
# CLIP from a folder.


BATCH = 64  # pictures that are scored at a time

WORST = -99.0  # of a text that the world's scorer cannot read

Score = Callable[[Sequence[Picture], Sequence[str]], list[float]]


def open_world_scorer(name: str) -> Score | None:
    """Open the scorer of the embedded world; an empty name asks for none. Others are opened by
    `fulcrum.measure.store_scores.open_scorer`."""
    if not name:
        return None
    if name != WORLD:
        raise BadInput(f"no scorer '{name}' is known here", "pass measure.store_scores.open_scorer")
    from fulcrum.networks.captioner import load_scorer

    scorer = load_scorer()

    def world(pictures: Sequence[Picture], texts: Sequence[str]) -> list[float]:
        """A text that it cannot read fits worst."""
        readable = [n for n, text in enumerate(texts) if _readable(text)]
        scores = np.full(len(texts), WORST)
        if readable:
            images = torch.from_numpy(np.stack([pictures[n] for n in readable]))
            scores[readable] = scorer.score(images, [texts[n] for n in readable]).numpy()
        return [float(one) for one in scores]

    return world


def _readable(text: str) -> bool:
    from fulcrum.data.world.scene import tokenize
    from fulcrum.networks.text import LONGEST

    return 0 < len(tokenize(text)) < LONGEST
