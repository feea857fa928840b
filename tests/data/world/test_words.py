"""Captions: long ones say everything about the right object, short ones almost nothing, in a closed
vocabulary."""

from pathlib import Path

import numpy as np
import pytest

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import scenes
from fulcrum.data.world.words import BACKGROUND, MAX_TOKENS, STYLES, WORDS, captions, tokenize
from tests.data.world.scene_words import describe

MEANING = {
    "little": "small",
    "big": "large",
    "solid": "plain",
    "spotted": "dotted",
    "middle": "centre",
}
S = scenes("train", np.arange(4_000))
SPOKEN = {style: captions(S, style) for style in STYLES}


def words_of(style: str, i: int, owner: int) -> list[str]:
    tokens = tokenize(SPOKEN[style].texts[i])
    return [
        MEANING.get(t, t)
        for t, o in zip(tokens, SPOKEN[style].owners[i], strict=True)
        if o == owner
    ]


def place_in(words: list[str]) -> str:
    """The place that a phrase names: its vertical and horizontal words, in that order."""
    return " ".join(
        w
        for group in (("top", "bottom"), ("left", "right"), ("centre",))
        for w in group
        if w in words
    )


def test_tokenize():
    assert tokenize("A red-hot Disc; 3 parts, fine.") == [
        "a",
        "red",
        "hot",
        "disc",
        ";",
        "parts",
        ",",
        "fine",
        ".",
    ]


def test_the_docs_list_what_a_prompt_may_ask_for_in_words_that_are_known():
    section = (
        (Path(__file__).parents[3] / "docs/pictures.md")
        .read_text()
        .split("## What a prompt may ask for")[1]
    )
    rows = dict(
        line.strip("| ").split(" | ")
        for line in section.splitlines()
        if line.startswith("| ") and "words" not in line
    )
    listed = {name: set(tokenize(words)) for name, words in rows.items()}
    example = next(line for line in section.splitlines() if line.startswith("`a large")).split("`")[
        1
    ]
    for name, nouns in (
        ("size", v.SIZES),
        ("texture", v.TEXTURES),
        ("colour", v.COLOURS),
        ("shape", v.SHAPES),
    ):
        assert set(nouns) <= listed[name]
    assert {word for place in v.PLACES for word in place.split()} <= listed["place"]
    assert set(v.BACKGROUND_COLOURS) <= listed["background"]
    assert set.union(*listed.values(), tokenize(example)) - {"or", ";", "also"} <= set(WORDS)


def test_the_vocabulary_is_closed_tight_and_sorted():
    used = {t for style in STYLES for text in SPOKEN[style].texts for t in tokenize(text)}
    assert used == set(WORDS) and list(WORDS) == sorted(WORDS)


@pytest.mark.parametrize("style", STYLES)
def test_every_token_has_an_owner_that_is_there(style):
    for i, (text, owners) in enumerate(zip(*SPOKEN[style], strict=True)):
        assert len(tokenize(text)) == len(owners) < MAX_TOKENS
        assert set(owners.tolist()) <= {-2, -1, *range(S.count[i])}


def test_long_says_everything_of_each_object_and_of_nobody_else():
    for i in range(len(S)):
        d = describe(S, i)
        for k, thing in enumerate(d["objects"]):
            words = words_of("long", i, k)
            for name, known in (
                ("shape", v.SHAPES),
                ("colour", v.COLOURS),
                ("texture", v.TEXTURES),
                ("size", v.SIZES),
            ):
                assert [w for w in words if w in known] == [thing[name]], SPOKEN["long"].texts[i]
            assert place_in(words) == thing["place"], SPOKEN["long"].texts[i]
        ground = [w for w in words_of("long", i, BACKGROUND) if w in v.BACKGROUND_COLOURS]
        assert ground == d["background"]["colours"], SPOKEN["long"].texts[i]


def test_long_tells_the_kinds_of_background_apart():
    signs = {
        "plain": {"plain"},
        "gradient": {"fades"},
        "horizon": {"above"},
        "striped": {"stripes"},
    }
    for i in range(500):
        words = set(words_of("long", i, BACKGROUND))
        assert [kind for kind, sign in signs.items() if sign <= words] == [
            v.BACKGROUNDS[S.background[i]]
        ]


def test_medium_leaves_out_size_texture_and_background():
    silent = {*v.SIZES, *v.TEXTURES, *v.BACKGROUND_COLOURS, "background"}
    for i in range(500):
        for k, thing in enumerate(describe(S, i)["objects"]):
            words = words_of("medium", i, k)
            assert (
                thing["colour"] in words
                and thing["shape"] in words
                and place_in(words) == thing["place"]
            )
            assert not silent & set(words)


def test_short_names_one_colour_and_no_place():
    silent = {
        *v.SIZES,
        *v.TEXTURES,
        *v.BACKGROUND_COLOURS,
        "top",
        "bottom",
        "left",
        "right",
        "centre",
        ".",
    }
    for i, text in enumerate(SPOKEN["short"].texts):
        tokens = [MEANING.get(t, t) for t in tokenize(text)]
        assert sum(t in v.COLOURS for t in tokens) == 1 and not silent & set(tokens)
        for k in set(SPOKEN["short"].owners[i].tolist()) - {-1}:
            assert v.SHAPES[S.shape[i, k]] in words_of("short", i, k)


def test_wording_is_pure_and_varied():
    rows = np.array([9, 3, 3])
    for style in STYLES:
        again = captions(S.take(rows), style)
        assert again.texts == [SPOKEN[style].texts[r] for r in rows]
    one = S.take(np.full(200, 5))
    assert len(set(captions(one, "long", np.arange(200)).texts)) > 100
    assert len(set(captions(one, "long").texts)) == 1


def test_articles_and_marks():
    for style in STYLES:
        for text in SPOKEN[style].texts:
            words = text.lower().split()
            for a, b in zip(words, words[1:], strict=False):
                assert a not in ("a", "an") or (a == "an") == (b[0] in "aeiou"), text
            assert text[0].isupper() and " ," not in text and " ." not in text and "  " not in text


def test_bad_input():
    with pytest.raises(ValueError, match="long, medium, short"):
        captions(S, "huge")
    with pytest.raises(ValueError, match="one wording per scene"):
        captions(S, "long", np.arange(3))
    assert captions(scenes("train", np.arange(0)), "long").texts == []
