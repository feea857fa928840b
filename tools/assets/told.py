"""What a caption of the world tells: its objects and background read back from the words, to mark a
captioner by."""

from __future__ import annotations

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import Scenes, tokenize

SAME = {"little": "small", "big": "large", "solid": "plain", "spotted": "dotted"}
Told = dict[str, str]  # attribute -> word, of one object


def objects_told(text: str) -> list[Told]:
    """Every object that a caption speaks of, with whatever it says of it."""
    objects: list[Told] = []
    for sentence in text.split("."):
        words = _foreground([SAME.get(word, word) for word in tokenize(sentence)])
        places = [n for n, word in enumerate(words) if word in v.SHAPES]
        begins = [_begin(words, place) for place in places]
        if len(begins) < 2:
            begins = [0] * len(begins)  # "at the top is a red circle": its place comes first
        for begin, end in zip(begins, [*begins[1:], len(words)], strict=False):
            objects.append(_told(words[begin:end]))
    return objects


def background_told(text: str) -> tuple[str, ...]:
    """Kind and colours of the background, in the order of telling; nothing where it is not spoken
    of."""
    for sentence in text.split("."):
        words = tokenize(sentence)
        behind = words[len(_foreground(words)) :]
        if behind:
            kind = "gradient" if {"fades"} & set(behind) else "horizon" if "above" in behind else ""
            kind = kind or ("striped" if {"stripes", "striped"} & set(behind) else "plain")
            return kind, *(word for word in behind if word in v.BACKGROUND_COLOURS)
    return ()


def objects_of(scenes: Scenes, row: int) -> list[Told]:
    """The truth in the same words."""
    named = {
        "shape": v.SHAPES,
        "colour": v.COLOURS,
        "texture": v.TEXTURES,
        "size": v.SIZES,
        "place": v.PLACES,
    }
    return [
        {name: words[int(getattr(scenes, name)[row, slot])] for name, words in named.items()}
        for slot in range(int(scenes.count[row]))
    ]


def background_of(scenes: Scenes, row: int) -> tuple[str, ...]:
    colours = (v.BACKGROUND_COLOURS[c] for c in scenes.background_colour[row].tolist() if c >= 0)
    return v.BACKGROUNDS[int(scenes.background[row])], *colours


def marks(texts: list[str], scenes: Scenes) -> dict[str, float]:
    """Shares of pictures: objects counted right, all told and all right, background right where it
    is told, all words of an attribute right whichever object they stand at. And shares of objects:
    what is told of the one at a place is so."""
    right: dict[str, list[bool]] = {}

    def mark(what: str, fits: bool) -> None:
        right.setdefault(what, []).append(fits)

    for row, text in enumerate(texts):
        told, truth = objects_told(text), objects_of(scenes, row)
        kept = set(told[0]) if told else set()
        wanted = sorted(str(sorted((name, one[name]) for name in kept)) for one in truth)
        mark("objects_counted", len(told) == len(truth))
        mark("objects_right", wanted == sorted(str(sorted(one.items())) for one in told))
        if background_told(text):
            mark("background_right", background_told(text) == background_of(scenes, row))
        at = {one["place"]: one for one in truth}
        for one in (one for one in told if "place" in one):
            for name in sorted(one):
                mark(f"{name}_at_its_place", at.get(one["place"], {}).get(name) == one[name])
        if len(told) == len(truth):
            for name in sorted(kept):
                mark(
                    f"{name}_right",
                    sorted(one.get(name, "") for one in told) == sorted(one[name] for one in truth),
                )
    return {what: round(sum(fits) / len(fits), 4) for what, fits in sorted(right.items())}


def mentions_right(texts: list[str], scenes: Scenes) -> float:
    """Share of the objects spoken of that stand in the scene with all that is said of them: for
    captions that leave out."""
    fits: list[bool] = []
    for row, text in enumerate(texts):
        truth = objects_of(scenes, row)
        fits += [
            any(one.items() <= real.items() for real in truth) for one in objects_told(text)
        ] or [False]
    return round(sum(fits) / len(fits), 4)


def _begin(words: list[str], place: int) -> int:
    """Where the words about an object begin: at its article, or in tags after the comma before."""
    stops = [n for n in range(place) if words[n] in ("a", "an", "the", ",", *v.SHAPES)]
    return stops[-1] if stops else 0


def _foreground(words: list[str]) -> list[str]:
    """A sentence's words up to where it begins to speak of the background; all, where it does
    not."""
    if "background" not in words and "behind" not in words:
        return words
    if words[0] in ("behind", "the") and (words[0] == "behind" or words[1] == "background"):
        return []
    for n, word in enumerate(words):
        if (
            word in ("on", "against")
            and words[n + 1 : n + 2] == ["a"]
            and "background" in words[n : n + 5]
        ):
            return words[:n]
    # tags: the background comes last
    comma = max((n for n, word in enumerate(words) if word == ","), default=0)
    return words[:comma]


def _told(words: list[str]) -> Told:
    told = {}
    for name, known in (
        ("shape", v.SHAPES),
        ("colour", v.COLOURS),
        ("texture", v.TEXTURES),
        ("size", v.SIZES),
    ):
        if hits := [word for word in words if word in known]:
            told[name] = hits[0]
    row, column = (
        [word for word in words if word in pair] for pair in (("top", "bottom"), ("left", "right"))
    )
    if row or column or {"centre", "middle"} & set(words):
        told["place"] = " ".join([*row[:1], *column[:1]]) or "centre"
    return told
