"""Planted wrong captions: the share that was asked for, known to the sample, and nothing at all at
zero."""

from dataclasses import replace

import numpy as np
import pytest

from fulcrum.data.captions import Chooser
from fulcrum.data.source import WorldSource

TRUE = WorldSource("train", "real", 16, 4_000, 1)
WRONG = replace(TRUE, mislabelled=0.2)
ALL, LONG = np.arange(4_000), Chooser(("long",))


def test_the_share_is_planted_and_belongs_to_the_sample():
    planted = WRONG.planted(ALL)
    assert planted.mean() == pytest.approx(0.2, abs=0.02)
    rows = np.array([3_999, 5, 5, 1_234])
    assert np.array_equal(WRONG.planted(rows), planted[rows])
    more = replace(WRONG, mislabelled=0.5).planted(ALL)
    assert (more | ~planted).all() and more.sum() > planted.sum(), (
        "a larger share adds to a smaller one"
    )
    assert np.array_equal(
        replace(WRONG, domain="synthetic", count=5_000, size=32).planted(ALL), planted
    )


def test_a_wrong_caption_describes_another_scene_and_the_picture_stays():
    drawn, described, planted = WRONG.scenes(ALL), WRONG.described(ALL), WRONG.planted(ALL)
    assert np.array_equal(drawn.signature() != described.signature(), planted)
    assert described.split == "train" and not (described.index[planted] < 4_000).any()
    right, wrong = TRUE.prompts(LONG, ALL), WRONG.prompts(LONG, ALL)
    assert [one != other for one, other in zip(right, wrong, strict=True)] == planted.tolist()
    some = np.flatnonzero(planted)[:3]
    assert np.array_equal(WRONG.read(some).images, TRUE.read(some).images)
    assert wrong[some[1]] == WRONG.prompts(LONG, some[1:2])[0] == WRONG.prompts(LONG, some)[1]


def test_at_zero_nothing_changes():
    """The fingerprint is written down: caches of honest sources must survive."""
    old = WorldSource("train", "real", 32, 500, 1)
    assert old.fingerprint().startswith("728b1042913e93ce")
    assert replace(old, mislabelled=0.0).fingerprint() == old.fingerprint()
    marks = {replace(old, mislabelled=share).fingerprint() for share in (0.0, 0.001, 0.1, 0.2)}
    assert len(marks) == 4
    assert not old.planted(ALL).any()


def test_all_can_be_wrong_and_more_cannot():
    every = replace(TRUE, mislabelled=1.0)
    assert (
        every.planted(ALL).all()
        and (every.described(ALL).signature() != every.scenes(ALL).signature()).all()
    )
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match="a share, 0 to 1"):
            replace(TRUE, mislabelled=share)
