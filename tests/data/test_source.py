"""Source and chooser: a batch is a pure function of its position."""

from dataclasses import replace

import numpy as np
import pytest

from fulcrum.data import source as source_module
from fulcrum.data.captions import Chooser
from fulcrum.data.source import WorldSource, order_of
from fulcrum.data.world.words import captions

SOURCE = WorldSource("train", "real", 16, 50)


def test_reading_gives_pictures_scenes_and_ids():
    samples = SOURCE.read(np.array([4, 2]))
    assert (
        samples.images.shape == (2, 3, 16, 16)
        and samples.ids.tolist() == [4, 2]
        and len(SOURCE) == 50
    )
    assert np.array_equal(samples.images[1], SOURCE.read(np.array([2])).images[0])
    with pytest.raises(IndexError, match="0 to 49"):
        SOURCE.read(np.array([50]))


def test_the_fingerprint_follows_settings_and_generator_but_not_threads(monkeypatch):
    mark = SOURCE.fingerprint()
    assert mark == replace(SOURCE, threads=2).fingerprint()
    others = [
        replace(SOURCE, **change)
        for change in (
            {"split": "curated"},
            {"domain": "synthetic"},
            {"size": 32},
            {"count": 51},
            {"max_objects": 2},
        )
    ]
    assert len({mark, *(s.fingerprint() for s in others)}) == 6
    true_render = source_module.render
    monkeypatch.setattr(source_module, "render", lambda *a: true_render(*a) ^ np.uint8(1))
    assert SOURCE.fingerprint() != mark, "a changed renderer must not pass for the old one"


@pytest.mark.parametrize(
    "change, words",
    [
        ({"split": "test"}, "train, validation"),
        ({"domain": "photo"}, "synthetic, real"),
        ({"size": 2}, "at least 8"),
        ({"count": 0}, "at least 1"),
        ({"max_objects": 9}, "1 to 3"),
    ],
)
def test_bad_settings(change, words):
    with pytest.raises(ValueError, match=words):
        replace(SOURCE, **change)


def test_the_chooser_mixes_by_weight_and_by_sample_only():
    ids = np.arange(20_000)
    picked = Chooser(("long", "medium", "short"), (2, 0, 1)).pick(ids)
    share = np.bincount(picked, minlength=3) / len(ids)
    assert share[1] == 0 and share[0] == pytest.approx(2 / 3, abs=0.015)
    rows = np.array([70, 7, 19_999])
    assert np.array_equal(picked[rows], Chooser(("long", "medium", "short"), (2, 0, 1)).pick(rows))


def test_the_chooser_tells_each_sample_in_its_style():
    s, ids, styles = SOURCE.scenes(np.arange(50)), np.arange(50), ("long", "short")
    mixed, picked = Chooser(styles, (1, 1)).prompts(s, ids), Chooser(styles, (1, 1)).pick(ids)
    told = {style: captions(s, style).texts for style in styles}
    assert 10 < picked.sum() < 40
    assert mixed == [told[styles[n]][i] for i, n in enumerate(picked)]
    assert Chooser().prompts(s, ids) == told["long"]


@pytest.mark.parametrize(
    "styles, weights, words",
    [
        (("loud",), (1.0,), "found loud"),
        ((), (), "found none"),
        (("long",), (1.0, 2.0), "one weight per style"),
        (("long",), (-1.0,), ">= 0"),
        (("long",), (0.0,), "not all zero"),
        (("long",), (float("nan"),), "finite"),
    ],
)
def test_bad_choosers(styles, weights, words):
    with pytest.raises(ValueError, match=words):
        Chooser(styles, weights)


def test_two_halves_of_a_batch_are_the_batch():
    """The position alone decides: exact resume, any number of processes, any accumulation."""
    chooser = Chooser(("long", "short"), (1, 1))
    whole, halves = (
        order_of(SOURCE, 3, 40, 20),
        [order_of(SOURCE, 3, position, 10) for position in (40, 50)],
    )
    images = [SOURCE.read(ids).images for ids in (whole, *halves)]
    assert np.array_equal(images[0], np.concatenate(images[1:]))
    assert SOURCE.prompts(chooser, whole) == [
        text for ids in halves for text in SOURCE.prompts(chooser, ids)
    ]
    assert not np.array_equal(whole, order_of(SOURCE, 4, 40, 20))
