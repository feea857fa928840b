"""Captions as text: languages are noticed, faults named, numbers right."""

import pytest

from fulcrum.data.caption_quality import (
    CaptionCounter,
    CaptionRules,
    cleaned,
    language,
    languages,
    statistics_lines,
)
from fulcrum.data.world.scene import scenes
from fulcrum.data.world.words import STYLES, captions
from fulcrum.spec.errors import BadInput


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("A red circle is on the left of the picture", "en"),
        ("Ein roter Kreis auf dem grauen Grund und ein Stern", "de"),
        ("Un cercle rouge est sur la gauche du tableau dans le coin", "fr"),
        ("Un círculo rojo en el centro y las estrellas con los cuadrados", "es"),
        ("красный круг слева", "ru"),
        ("赤い円が左にあります", "ja"),
        ("左边有一个红色的圆", "zh"),
        ("red circle", ""),
        ("", ""),
    ],
)
def test_languages_are_told_or_left_open(text, code):
    assert language(text) == code


def test_no_caption_of_the_world_is_taken_for_another_language():
    import numpy as np

    drawn = scenes("train", np.arange(500))
    for style in STYLES:
        assert {one for text in captions(drawn, style).texts for one in languages(text)} <= {"en"}


def test_two_languages_in_one_text():
    both = (
        "A red circle is on the left of a plain background. Ein roter Kreis ist auf der linken"
        " Seite und der Grund ist grau"
    )
    assert languages(both) == {"en", "de"} and languages("a picture of the sea") <= {"en"}


def test_a_comparison_in_english_is_not_portuguese():
    """Half of the emoji captions were called Portuguese for their two "as"."""
    assert languages(
        "sloth, one of animals (slow). It is mostly brown, of middle size, as wide as tall, not"
        " symmetric."
    ) == {"en"}


@pytest.mark.parametrize(
    ("text", "style", "fault"),
    [
        ("", "long", "empty"),
        (" \n. .", "long", "empty"),
        ("a small red circle", "long", "too short: 4 words, at least 8"),
        ("a small red circle", "medium", ""),
        ("word " * 30, "short", "too long: 30 words"),
        ("a dog and a dog and a dog and a dog and a dog", "long", "repetition: "),
        ("misty", "", ""),
        ("green dog", "short", ""),
        ("no no no no way this is a dog", "long", "repetition: 'no' more than 3"),
        ("red, red, red, blue", "tags", "repetition: 50%"),
        ("red, blue, a small dog", "tags", ""),
        (
            "As an AI language model I cannot see the picture that you gave me",
            "long",
            "refusal: 'As an AI'",
        ),
        ("I’m sorry, but there is nothing that can be described here at all", "long", "refusal: "),
        ("a sign that says sorry hangs above the small red door of a house", "long", ""),
        (
            "a red circle\x00 at the top of a large and plain picture",
            "long",
            "control characters: U+0000",
        ),
        ("ein Hund und eine Katze auf dem Dach mit einem Ball", "long", "language: de, wanted en"),
    ],
)
def test_faults_are_named(text, style, fault):
    found = CaptionRules(language="en").fault(text, style)
    assert found.startswith(fault) and bool(found) == bool(fault)


def test_the_worlds_own_captions_pass():
    import numpy as np

    drawn, rules = scenes("train", np.arange(300)), CaptionRules(language="en")
    assert [
        text
        for style in STYLES
        for text in captions(drawn, style).texts
        if rules.fault(text, style)
    ] == []


def test_rules_that_let_nothing_through_are_refused():
    with pytest.raises(BadInput, match="lets none through"):
        CaptionRules(least_words=5, most_words=4)
    assert cleaned('  "a red\n dog" ') == "a red dog" and cleaned('"a" and "b"') == '"a" and "b"'


def test_statistics():
    counter = CaptionCounter()
    for text in ("a red dog on the mat", "a red dog on the mat", "a red cat"):
        counter.add(text, 1.0)
    facts = counter.numbers()
    assert facts["captions"] == 3 and facts["words_mean"] == 5.0 and facts["distinct_words"] == 7
    assert facts["repeated"] == pytest.approx(1 / 3, abs=1e-4) and facts["score_mean"] == 1.0
    assert facts["commonest_opening"][0] == "a red dog" and CaptionCounter().numbers() == {
        "captions": 0
    }
    assert any(
        line.endswith("new") for line in statistics_lines({"a": facts, "b": {"captions": 0}}, ["a"])
    )
