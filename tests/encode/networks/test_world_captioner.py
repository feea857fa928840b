"""The shipped captioner: pixels in, true words out."""

import numpy as np
import pytest
import torch

from fulcrum.data.world.scene import render, scenes
from fulcrum.data.world.words import captions
from fulcrum.files.shipped import card
from fulcrum.networks.captioner import WorldCaptioner, load_captioner, spelled, word_dice
from tools.assets.fit_captioner import STYLES, tags
from tools.assets.told import (
    background_of,
    background_told,
    marks,
    mentions_right,
    objects_of,
    objects_told,
)

DRAWN = scenes("reference", np.arange(192))  # of no split that it was trained or measured on
IMAGES = torch.from_numpy(render(DRAWN, 32, "real"))


@pytest.fixture(scope="module")
def captioner():
    return load_captioner()


def test_a_caption_is_read_back_as_it_was_meant():
    """What marks the captioner must be right about captions that are."""
    for style in ("long", "medium"):
        marked = marks(captions(DRAWN, style).texts, DRAWN)
        assert set(marked.values()) == {1.0}, (style, marked)
    assert (
        set(marks(tags(DRAWN), DRAWN).values()) == {1.0}
        and mentions_right(captions(DRAWN, "short").texts, DRAWN) == 1.0
    )
    other = captions(scenes("reference", np.arange(192, 384)), "long").texts
    assert (
        marks(other, DRAWN)["objects_right"] < 0.05
        and marks(other, DRAWN)["background_right"] < 0.2
    )
    text = captions(DRAWN, "long").texts[0]
    assert len(objects_told(text)) == len(objects_of(DRAWN, 0)) and background_told(
        text
    ) == background_of(DRAWN, 0)


def test_its_captions_are_true(captioner):
    told = marks(captioner.write(IMAGES, "long"), DRAWN)
    quality = card("captioner")["quality"]["real"]
    assert told["objects_right"] > quality["long"]["objects_right"] - 0.1, told
    assert told["background_right"] > quality["long"]["background_right"] - 0.1, told
    assert (
        mentions_right(captioner.write(IMAGES, "short"), DRAWN)
        > quality["short"]["mentions_right"] - 0.1
    )


def test_it_sees_pixels_and_no_scene(captioner):
    """Another picture under the same number is told differently, the same picture under another
    number alike."""
    turned = captioner.write(IMAGES.flip(-1)[:32], "long")
    told = captioner.write(IMAGES[:32], "long")
    assert sum(one != two for one, two in zip(turned, told, strict=True)) > 20
    assert captioner.write(IMAGES[:32].flip(0), "long")[::-1] == told


def test_styles_and_dice(captioner):
    assert set(captioner.styles) == set(STYLES)
    words = {
        style: np.mean([len(text.split()) for text in captioner.write(IMAGES[:32], style)])
        for style in STYLES
    }
    assert words["long"] > words["medium"] > words["short"]
    dice = word_dice(np.arange(32), "long")
    drawn = captioner.write(IMAGES[:32], "long", dice)
    assert (
        drawn == captioner.write(IMAGES[:32], "long", dice) != captioner.write(IMAGES[:32], "long")
    )
    alone = [
        captioner.write(IMAGES[row : row + 1], "long", dice[row : row + 1])[0] for row in range(4)
    ]
    assert alone == drawn[:4], "what is drawn does not depend on the batch"
    with pytest.raises(ValueError, match="asked for 'haiku'"):
        captioner.write(IMAGES[:1], "haiku")


def test_it_is_small_and_says_what_it_is(captioner):
    facts = card("captioner")
    assert (
        facts["bytes"] < 2_000_000
        and facts["built"]["command"] == "python -m tools.assets --only captioner"
    )
    assert (
        spelled(["a", "red", "circle", ".", "behind", ",", "grey", "."])
        == "A red circle. Behind, grey."
        and spelled(["red"]) == "red"
    )


def test_words_one_by_one_are_those_of_the_whole(captioner):
    """What is written word by word, with the past kept, is what one pass over the caption finds
    likeliest."""
    ids = captioner.ids(IMAGES[:8], "medium").long()
    seen = captioner.eye(IMAGES[:8].float() / 127.5 - 1)
    begun = torch.cat([torch.full((8, 1), captioner.start("medium")), ids[:, :-1]], dim=1)
    likeliest = captioner(seen, begun).argmax(-1)
    until = (ids == 1).int().argmax(1)
    assert all(
        (likeliest[row, : until[row] + 1] == ids[row, : until[row] + 1]).all() for row in range(8)
    )


def test_an_untrained_one_never_ends_up_in_a_loop():
    torch.manual_seed(0)
    fresh = WorldCaptioner(["a", "."], {"long": 5}).eval()
    assert all(len(text.split()) <= 5 for text in fresh.write(IMAGES[:3], "long"))
