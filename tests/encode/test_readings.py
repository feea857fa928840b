"""Captions are drawn at each reading: another epoch may tell a picture in another way, and nothing
else decides it."""

import numpy as np
import pytest
import torch

from fulcrum.data.captions import Chooser, drawn_prompts
from fulcrum.data.mix import MixSource
from fulcrum.data.source import WorldSource, order_of, readings
from fulcrum.files.array_store import ArrayStore
from fulcrum.networks.codec import IdentityCodec
from fulcrum.networks.rows import Cache, Encoder, TextCache
from fulcrum.networks.text import load_text

SOURCE = WorldSource("validation", "real", 32, 40)
MIXED = Chooser(("long", "medium", "short"), (2.0, 0.0, 1.0))


class ManyWords:
    """The world, worded in several ways: sample n has n % 3 + 1 texts of every style."""

    has_scenes = True

    def __init__(self, count=30):
        self.inner = WorldSource("validation", "real", 32, count)
        self.read, self.fingerprint = self.inner.read, lambda: f"many words {count}"

    def __len__(self):
        return len(self.inner)

    def prompts(self, chooser, index):
        return drawn_prompts(self, chooser, np.asarray(index), np.asarray(index))

    def wordings(self, chooser, index):
        plain = self.inner.prompts(chooser, index)
        return [
            [text, f"there is {text}", f"here is {text}"][: int(number) % 3 + 1]
            for number, text in zip(index, plain, strict=True)
        ]


@pytest.fixture
def encoder(tmp_path):
    return Encoder(SOURCE, MIXED, 7, IdentityCodec(), load_text(), Cache(tmp_path))


def styles(source, prompts, ids):
    told = {style: source.prompts(Chooser((style,)), ids) for style in ("long", "medium", "short")}
    return [
        next(style for style in told if told[style][row] == text)
        for row, text in enumerate(prompts)
    ]


def test_another_epoch_draws_again_and_by_weight(encoder):
    epochs = []
    for epoch in range(30):
        ids, prompts = encoder.ids(40 * epoch, 40), encoder.prompts_at(40 * epoch, 40)
        epochs.append(dict(zip(ids.tolist(), styles(SOURCE, prompts, ids), strict=True)))
    of_one = [[told[sample] for told in epochs] for sample in range(40)]
    assert all({"long", "short"} == set(each) for each in of_one), (
        "no picture is told in one way only"
    )
    share = np.mean([each.count("long") / 30 for each in of_one])
    assert share == pytest.approx(2 / 3, abs=0.05)


def test_a_reading_is_keyed_by_seed_and_image_index_alone(encoder):
    whole = encoder.at(36, 16)
    halves = [encoder.at(36, 8), encoder.at(44, 8)]  # two processes, or a batch in parts
    assert torch.equal(whole.text.emb, torch.cat([half.text.emb for half in halves]))
    assert encoder.prompts_at(36, 16) == encoder.prompts_at(36, 8) + encoder.prompts_at(44, 8)
    encoder.at(0, 40)
    assert torch.equal(encoder.at(36, 16).text.emb, whole.text.emb), (
        "what was read before does not matter"
    )
    assert not np.array_equal(readings(7, 0, 8), readings(8, 0, 8)), "another seed draws otherwise"


def test_the_embeddings_are_those_of_the_drawn_captions(encoder):
    for position in (0, 40, 80):
        emb, mask = load_text().encode(encoder.prompts_at(position, 16), encoder.texts.longest)
        batch = encoder.at(position, 16)
        assert torch.equal(mask, batch.text.mask)
        torch.testing.assert_close(emb, batch.text.emb, atol=4e-3, rtol=0)


def test_pictures_are_judged_by_the_captions_that_they_always_had(encoder):
    """Fixed by the sample: an evaluation must not depend on when it takes place."""
    ids = np.array([5, 17, 3, 39])
    emb, mask = load_text().encode(SOURCE.prompts(MIXED, ids), encoder.texts.longest)
    assert torch.equal(mask, encoder.rows(ids).text.mask)
    torch.testing.assert_close(emb, encoder.rows(ids).text.emb, atol=4e-3, rtol=0)
    assert MIXED.pick(ids).tolist() == [0, 0, 2, 0] or MIXED.pick(ids[:1]) == MIXED.pick(ids)[:1]


def test_only_styles_that_can_occur_are_encoded_and_each_once(tmp_path):
    cache, text = Cache(tmp_path), load_text()
    cache.texts(SOURCE, MIXED, text)
    assert len([path for path in tmp_path.glob("texts*") if path.is_dir()]) == 2, (
        "medium has no weight"
    )
    lines: list[str] = []
    cache.texts(SOURCE, Chooser(("short",)), text, lines.append)
    assert not lines, "a run of one style reads what the mix has encoded"


@pytest.mark.parametrize(
    "source", [ManyWords(), MixSource([ManyWords(), ManyWords(12)], [1.0, 1.0])], ids=["one", "mix"]
)
def test_several_wordings_are_encoded_once_each_and_all_are_read(source, tmp_path):
    encoder = Encoder(source, MIXED, 3, IdentityCodec(), load_text(), Cache(tmp_path))
    heard: dict[int, set[str]] = {}
    for position in range(0, 16 * len(source), 16):
        ids, prompts = order_of(source, 3, position, 16), encoder.prompts_at(position, 16)
        batch = encoder.at(position, 16)
        _, mask = load_text().encode(prompts, encoder.texts.longest)
        assert torch.equal(mask, batch.text.mask)
        for sample, text in zip(ids.tolist(), prompts, strict=True):
            heard.setdefault(sample, set()).add(text)
    number = lambda sample: sample if sample < 30 else sample - 30  # noqa: E731
    full = [len(texts) == 2 * (number(sample) % 3 + 1) for sample, texts in heard.items()]
    # by chance 0.81 +- 0.06 of the samples: two thirds of 16 readings are long, and one in three
    # has six texts
    assert np.mean(full) > 0.6 and all(
        len(texts) <= 2 * (number(sample) % 3 + 1) for sample, texts in heard.items()
    )


def test_samples_with_one_wording_each_need_no_index_of_wordings(tmp_path):
    """16 bytes of every sample in every process; what is read is the same, also where samples were
    chosen."""
    rows = np.arange(12, dtype=np.float16).reshape(6, 2)
    tokens = ArrayStore(tmp_path).get("t", {}, [0], lambda number: {"tokens": rows})["tokens"]
    ends, empty = np.array([2, 3, 6]), np.zeros((1, 2), np.float16)
    plain, counted = (
        TextCache(tokens, ends, empty, counts) for counts in (None, np.ones(3, np.int32))
    )
    assert counted._counts is None and counted._first is None and len(counted) == 3
    ids = np.array([2, 0, 1])
    for one, other in ((plain, counted), (plain.taken(ids), counted.taken(ids))):
        (emb, mask), (same, kept) = one.stored(ids), other.stored(ids, numbers=np.array([7, 8, 9]))
        assert torch.equal(emb, same) and torch.equal(mask, kept)
    several = TextCache(tokens, ends, empty, np.array([1, 2], np.int32))
    assert len(several) == 2 and several.stored(np.array([1]), 3, np.array([5]))[0].shape == (
        1,
        3,
        2,
    )
