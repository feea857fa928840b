"""A filtered source: the worst go, the rest keep their pictures and captions under new numbers."""

import numpy as np
import pytest

from fulcrum.data.captions import Chooser
from fulcrum.data.fillers import Filtered, World
from fulcrum.data.mix import FilteredSource, keep_best
from fulcrum.data.source import WorldSource
from fulcrum.spec.errors import BadInput
from fulcrum.spec.slots import DataContext

INNER = WorldSource("train", "real", 16, 50, mislabelled=0.3)
MIXED = Chooser(("long", "short"), (1.0, 1.0))


def test_the_worst_go_and_the_order_stays():
    assert keep_best(np.array([0.5, -3.0, 2.0, 0.1, 9.0]), 0.4).tolist() == [0, 2, 4]
    assert keep_best(np.zeros(4), 0.5).tolist() == [2, 3], "equal scores: by number"
    assert keep_best(np.arange(3.0), 0.0).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "scores, drop, words",
    [
        (np.zeros((2, 2)), 0.1, "one finite score"),
        (np.array([0.0, np.nan]), 0.1, "one finite score"),
        (np.zeros(4), 1.0, "below 1"),
        (np.zeros(2), 0.9, "leaves none"),
    ],
)
def test_bad_scores(scores, drop, words):
    with pytest.raises(ValueError, match=words):
        keep_best(scores, drop)


def test_kept_samples_keep_picture_and_caption():
    kept = np.array([3, 7, 8, 40])
    source = FilteredSource(INNER, kept)
    rows = np.array([3, 0])
    samples = source.read(rows)
    assert len(source) == 4 and samples.ids.tolist() == [3, 0]
    assert np.array_equal(samples.images, INNER.read(kept[rows]).images)
    assert source.prompts(MIXED, rows) == INNER.prompts(MIXED, kept[rows])
    assert np.array_equal(source.planted(rows), INNER.planted(kept[rows]))
    assert source.scenes(rows).index.tolist() == [40, 3]


def test_the_fingerprint_follows_what_is_kept():
    marks = {
        FilteredSource(INNER, np.array(kept)).fingerprint() for kept in ([1, 2], [1, 3], [1, 2, 3])
    }
    assert len(marks | {INNER.fingerprint()}) == 4


def test_without_a_cache_it_says_what_is_missing():
    class Bare:
        class run:
            class data:
                size = 32

    with pytest.raises(BadInput, match="nothing keeps the scores(.|\n)*Feed"):
        Filtered().build(DataContext(Bare.run))


def test_pictures_to_judge_by_are_true_and_whole():
    for source in (
        World(domain="synthetic", mislabelled=0.5, max_objects=2),
        Filtered(mislabelled=0.5, max_objects=2),
    ):
        assert source.held_out("reference", 9) == World(split="reference", count=9, max_objects=2)
    assert "asset:score" in Filtered().hashes() and "asset:score" not in World().hashes()
