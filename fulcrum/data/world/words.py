"""Captions of scenes: long, medium and short, worded by the scene's key, each token knowing whom it
speaks of."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import Scenes, tokenize
from fulcrum.spec.keyed import key, uniform

__all__ = [
    "BACKGROUND",
    "MAX_TOKENS",
    "NOBODY",
    "STYLES",
    "WORDS",
    "Captions",
    "captions",
    "tokenize",
]

STYLES = ("long", "medium", "short")
MAX_TOKENS = 49  # no caption is longer: 48 words, and the start token of the text encoder
NOBODY, BACKGROUND = -1, -2  # owners of tokens that speak of no object

# Other words for the vocabulary's; colours and shapes have one name each, so that short captions
# differ from long ones only in what they leave out.
_SIZES = (("small", "little"), ("medium", "medium"), ("large", "big"))
_TEXTURES = (
    ("plain", "solid"),
    ("striped", "striped"),
    ("dotted", "spotted"),
    ("checkered", "checkered"),
)
_PLACES = tuple(
    {
        "top": ("at the top", "near the top"),
        "bottom": ("at the bottom", "near the bottom"),
        "left": ("on the left", "on the left side"),
        "right": ("on the right", "on the right side"),
        "centre": ("in the centre", "in the middle"),
    }.get(place, (f"in the {place}", f"at the {place}", f"in the {place} corner"))
    for place in v.PLACES
)
_OPENINGS = ("", "there is", "a picture of", "a scene with", "we see")

Spoken = list[tuple[str, int]]  # (words, owner) in reading order


class Captions(NamedTuple):
    texts: list[str]
    owners: list[NDArray[np.int64]]  # per token of a text: object slot, NOBODY or BACKGROUND


def captions(scenes: Scenes, style: str, index: NDArray[np.integer[Any]] | None = None) -> Captions:
    """One caption per scene; the wording is a pure function of (scene, style, index), index the
    scene's own if None."""
    if style not in STYLES:
        raise ValueError(f"caption style must be one of {', '.join(STYLES)}; found {style!r}")
    if index is None:
        index = scenes.index
    if len(index) != len(scenes):
        raise ValueError(
            f"index must name one wording per scene: expected {len(scenes)}, found {len(index)}"
        )
    texts, owners = [], []
    dice = uniform(key("words", v.WORLD_VERSION, style, scenes.key, index), 32).tolist()
    for i in range(len(scenes)):
        text, owner = _write(_SPEAK[style](_Speaker(scenes, i, dice[i])))
        texts.append(text)
        owners.append(owner)
    return Captions(texts, owners)


class _Speaker:
    """One scene and its dice: each method says one thing about it."""

    def __init__(self, scenes: Scenes, i: int, dice: list[float]) -> None:
        self.count = int(scenes.count[i])
        self.shape, self.colour, self.texture, self.size, self.place = (
            a[i].tolist()
            for a in (scenes.shape, scenes.colour, scenes.texture, scenes.size, scenes.place)
        )
        self.kind = v.BACKGROUNDS[scenes.background[i]]
        self.ground = [
            v.BACKGROUND_COLOURS[c] if c >= 0 else "" for c in scenes.background_colour[i].tolist()
        ]
        self._dice = dice
        self._next = 0

    def choose(self, options: tuple[Any, ...]) -> Any:
        self._next += 1
        return options[int(self._dice[self._next - 1] * len(options))]

    def order(self) -> list[int]:
        """The objects in the order of telling."""
        self._next += self.count
        rolls = self._dice[self._next - self.count : self._next]
        return sorted(range(self.count), key=rolls.__getitem__)

    def where(self, k: int, variants: int = 3) -> str:
        return str(self.choose(_PLACES[self.place[k]][:variants]))

    def size_word(self, k: int) -> str:
        return str(self.choose(_SIZES[self.size[k]]))

    def texture_word(self, k: int) -> str:
        return str(self.choose(_TEXTURES[self.texture[k]]))

    def named(self, k: int) -> str:
        """Colour and shape with the article: a red circle."""
        return _article(f"{v.COLOURS[self.colour[k]]} {v.SHAPES[self.shape[k]]}")

    def full(self, k: int) -> str:
        """All five but the place: a small striped red circle."""
        adjectives = [self.texture_word(k), v.COLOURS[self.colour[k]]]
        if self.choose((True, False)):
            adjectives.reverse()
        return _article(" ".join([self.size_word(k), *adjectives, v.SHAPES[self.shape[k]]]))

    def background_phrase(self) -> str:
        """... on a plain grey background"""
        first, second = self.ground
        joint = self.choose(("on", "against"))
        phrase: str = (
            joint
            + " "
            + {
                "plain": f"a plain {first} background",
                "gradient": f"a background that fades from {first} to {second}",
                "horizon": f"a background of {first} above {second}",
                "striped": f"a background with {first} and {second} stripes",
            }[self.kind]
        )
        return phrase

    def background_sentence(self) -> str:
        first, second = self.ground
        return str(
            self.choose(
                {
                    "plain": (
                        f"the background is plain {first}",
                        f"behind is a plain {first} background",
                    ),
                    "gradient": (
                        f"the background fades from {first} to {second}",
                        f"behind , {first} fades into {second}",
                    ),
                    "horizon": (
                        f"the background is {first} above {second}",
                        f"behind is {first} above and {second} below",
                    ),
                    "striped": (
                        f"the background has {first} and {second} stripes",
                        f"behind are {first} and {second} stripes",
                    ),
                }[self.kind]
            )
        )


def _article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _listed(parts: Spoken, joint: str) -> Spoken:
    """a, b and c"""
    out: Spoken = []
    for n, part in enumerate(parts):
        if n:
            out.append((joint if n == len(parts) - 1 else ",", NOBODY))
        out.append(part)
    return out


def _long(say: _Speaker) -> Spoken:
    layout = say.choose(("joined", "after", "before", "sentences", "sentences"))
    joint = say.choose(("and", "and", ", and"))
    order = say.order()
    if layout == "sentences":
        spoken: Spoken = []
        for k in order:
            spoken += [_sentence(say, k), (".", NOBODY)]
        ground: Spoken = [(say.background_sentence(), BACKGROUND), (".", NOBODY)]
        return ground + spoken if say.choose((True, False)) else spoken + ground
    spoken = [(say.choose(_OPENINGS), NOBODY)]
    spoken += _listed([(f"{say.full(k)} {say.where(k)}", k) for k in order], joint)
    if layout == "joined":
        return [*spoken, (say.background_phrase(), BACKGROUND), (".", NOBODY)]
    ground = [(say.background_sentence(), BACKGROUND), (".", NOBODY)]
    return (
        ground + spoken + [(".", NOBODY)]
        if layout == "before"
        else spoken + [(".", NOBODY)] + ground
    )


def _sentence(say: _Speaker, k: int) -> tuple[str, int]:
    """One object in a sentence of its own, at most 12 tokens."""
    form = say.choose(("there", "where", "the"))
    if form == "the":
        size, colour, texture = v.SIZES[say.size[k]], v.COLOURS[say.colour[k]], say.texture_word(k)
        return (
            f"the {v.SHAPES[say.shape[k]]} {say.where(k, 2)} is {size} , {colour} and {texture}",
            k,
        )
    if form == "where":
        return f"{say.where(k)} is {say.full(k)}", k
    return f"there is {say.full(k)} {say.where(k, 2)}", k


def _medium(say: _Speaker) -> Spoken:
    opening = (say.choose(_OPENINGS), NOBODY)
    return [
        opening,
        *_listed([(f"{say.named(k)} {say.where(k)}", k) for k in say.order()], "and"),
        (".", NOBODY),
    ]


def _short(say: _Speaker) -> Spoken:
    """One clause: colour and shape of one object; now and then the bare shape of another."""
    order = say.order()
    spoken: Spoken = [
        (say.choose(("", "a picture of", "a picture with")), NOBODY),
        (say.named(order[0]), order[0]),
    ]
    if len(order) > 1 and say.choose((True, False)):
        spoken += [("and", NOBODY), (_article(v.SHAPES[say.shape[order[1]]]), order[1])]
    return spoken


_SPEAK = {"long": _long, "medium": _medium, "short": _short}


def _write(spoken: Spoken) -> tuple[str, NDArray[np.int64]]:
    """Join what was said into text: marks close up to the word before, sentences begin with a
    capital."""
    tokens: list[str] = []
    owners: list[int] = []
    for words, owner in spoken:
        split = words.split()
        tokens += split
        owners += [owner] * len(split)
    text = " ".join(tokens).replace(" ,", ",").replace(" .", ".")
    text = ". ".join(part[:1].upper() + part[1:] for part in text.split(". "))
    return text, np.array(owners, np.int64)


def _all_words() -> tuple[str, ...]:
    """Every token a caption can contain: the vocabulary, its synonyms and the words of the sentence
    frames."""
    frames = (
        "a an and is are has of with on in at near the there picture scene we see side corner"
        " centre middle background against that fades from to into above below stripes behind"
        " plain . ,"
    )
    spoken = [*v.SHAPES, *v.COLOURS, *v.BACKGROUND_COLOURS, *v.PLACES, frames, *_OPENINGS]
    spoken += [word for group in (*_SIZES, *_TEXTURES, *_PLACES) for word in group]
    return tuple(sorted({token for text in spoken for token in tokenize(text)}))


WORDS = _all_words()
