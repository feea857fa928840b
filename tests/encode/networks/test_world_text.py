"""The text encoder: padding never matters, the empty prompt is one token, unknown words are said,
quality holds."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fulcrum.data.world.scene import scenes
from fulcrum.data.world.words import WORDS, captions
from fulcrum.files.shipped import card
from fulcrum.networks.text import START, UNKNOWN, Tokenizer, WorldText, load_text, misread
from tools.assets.fit_text import measure_text


@pytest.fixture(scope="module")
def text() -> WorldText:
    return load_text()


PROMPTS = [
    "a red circle",
    "",
    "There is a small striped blue star in the top left corner. The background is plain grey.",
]


def test_shapes_and_mask(text: WorldText) -> None:
    emb, mask = text.encode(PROMPTS)
    assert emb.shape == (3, 20, 96) and emb.dtype == torch.float32 and mask.dtype == torch.bool
    assert mask.sum(1).tolist() == [4, 1, 20]
    assert (emb[~mask] == 0).all()
    assert text.encode(PROMPTS, length=49)[0].shape == (3, 49, 96)


def test_batch_mates_and_padding_change_nothing(text: WorldText) -> None:
    together, _ = text.encode(PROMPTS, length=64)
    for row, prompt in enumerate(PROMPTS):
        alone, _ = text.encode([prompt])
        assert (together[row, : alone.shape[1]] - alone[0]).abs().max() < 5e-6 * alone.abs().max()


def test_prompts_come_back_in_their_order_however_they_were_grouped(text: WorldText) -> None:
    prompts = ["a red circle " * (1 + (7 * number) % 13) for number in range(150)]
    emb, mask = text.encode(prompts)
    for number in (0, 63, 64, 149):
        alone, kept = text.encode([prompts[number]])
        assert mask[number].sum() == kept.sum()
        assert torch.allclose(emb[number][mask[number]], alone[0], rtol=0, atol=2e-5)
    assert (emb[~mask] == 0).all()


def test_the_vocabulary_is_the_worlds(text: WorldText) -> None:
    assert text.tokenizer.words == WORDS
    told = [
        line
        for style in ("long", "medium", "short")
        for line in captions(scenes("validation", np.arange(100)), style).texts
    ]
    assert (
        all(UNKNOWN not in text.tokenizer.ids(line) for line in told) and not text.tokenizer.unknown
    )


def test_the_empty_prompt_is_one_token() -> None:
    assert Tokenizer(WORDS).ids("") == Tokenizer(WORDS).ids("  ") == [START]


def test_unknown_words_are_reported() -> None:
    tokenizer = Tokenizer(WORDS)
    # warnings are errors here: people are told in words
    ids = tokenizer.ids("a red zebra, a zebra")
    assert ids.count(UNKNOWN) == 2 and tokenizer.unknown == {"zebra": 2}
    (told,) = misread(SimpleNamespace(tokenizer=tokenizer))
    assert (
        told == "words the text encoder does not know, read as 'unknown': zebra (its words:"
        " docs/pictures.md)"
    )
    (told,) = misread(SimpleNamespace(over={1, 2, 3}, lost="red", longest=8))
    assert told == "3 prompts are longer than 8 tokens: the rest was cut, of the first 'red'"
    (told,) = misread(SimpleNamespace(over={1}, lost="", longest=8))
    assert told == "1 prompt is longer than 8 tokens: the rest was cut"
    assert not misread(SimpleNamespace(tokenizer=Tokenizer(WORDS)))


def test_bad_prompts_are_refused(text: WorldText) -> None:
    with pytest.raises(ValueError, match="63 words, found 64"):
        text.encode(["red " * 64])
    with pytest.raises(ValueError, match="length >= 4"):
        text.encode(["a red circle"], length=3)
    with pytest.raises(ValueError, match="no word"):
        text.encode(["???"])
    with pytest.raises(TypeError, match="list of prompts"):
        text.encode("a red circle")


def test_a_token_knows_its_object(text: WorldText) -> None:
    """The same word means another object when its neighbours differ: 'circle' must not read the
    same."""
    swapped = text.encode(["a red circle and a blue star", "a blue circle and a red star"])[0]
    assert (swapped[0, 3] - swapped[1, 3]).norm() > 0.3 * swapped[0, 3].norm()


def test_attributes_can_be_read_from_single_tokens(text: WorldText) -> None:
    """Re-measured on few captions: a probe with less to learn from may be somewhat below the card,
    never far."""
    measured = measure_text(text, 300)
    found, promised = measured["long"], card("text")["quality"]["long"]
    for name, value in promised.items():
        assert found[name] > value - 0.05, name
    assert min(promised[name] for name in ("shape", "colour", "texture", "size", "place")) > 0.99
    assert (
        measured["explained"] > card("text")["quality"]["explained"] - 0.02 > 0.9
    )  # 0.85 before it was read through noise


def test_unknown_words_of_own_captions_raise_no_warning(text: WorldText) -> None:
    """They did while previews were drawn: a raw UserWarning in the middle of the progress."""
    text.encode(["a red zebra"])
    assert text.tokenizer.unknown.pop("zebra") == 1
