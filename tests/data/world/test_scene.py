"""Scenes: pure functions of their number, and splits that cannot meet."""

from dataclasses import fields, replace
from itertools import combinations

import numpy as np
import pytest

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import SPLITS, Scenes, apart, scenes
from tests.data.world.scene_words import describe

COUNT = 3_000
ATTRIBUTES = ("shape", "colour", "texture", "size", "place")


def said(s: Scenes, i: int) -> tuple:
    """All that words can say of a scene, from its plain description and without hashes."""
    d = describe(s, i)
    objects = frozenset(tuple(o[name] for name in ATTRIBUTES) for o in d["objects"])
    return objects, d["background"]["kind"], tuple(d["background"]["colours"])


def same(a: Scenes, b: Scenes) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(Scenes))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("most", (1, 2, 3))
def test_a_scene_does_not_depend_on_its_batch(split, most):
    whole, rows = scenes(split, np.arange(400), most), np.array([399, 0, 17, 17])
    assert same(whole.take(rows), scenes(split, rows, most))
    assert same(whole.take(rows[:1]), scenes(split, rows[:1], most))


def test_no_two_splits_share_a_description():
    """One-object worlds are small enough that splits without a rule would meet thousands of
    times."""
    seen = {}
    for split in SPLITS:
        drawn = [scenes(split, np.arange(COUNT), most) for most in (1, 3)]
        seen[split] = {said(s, i) for s in drawn for i in range(len(s))}
    shared = {pair: len(seen[pair[0]] & seen[pair[1]]) for pair in combinations(SPLITS, 2)}
    assert not any(shared.values()), shared
    train = {
        said(s, i) for s in [scenes("train", np.arange(COUNT, 5 * COUNT), 1)] for i in range(len(s))
    }
    assert train & seen["train"], (
        "descriptions recur within a split: the test above could have failed"
    )


def test_the_signature_does_not_depend_on_the_order_of_objects():
    s = scenes("train", np.arange(200))
    s = s.take(s.count == 3)
    turned = replace(s, **{name: getattr(s, name)[:, [2, 0, 1]] for name in ATTRIBUTES})
    assert np.array_equal(s.signature(), turned.signature())
    changed = replace(s, colour=(s.colour + 1) % len(v.COLOURS))
    assert not np.any(s.signature() == changed.signature())


def test_objects_stand_in_distinct_places_and_absent_slots_are_empty():
    s = scenes("train", np.arange(COUNT))
    assert set(np.unique(s.count)) == {1, 2, 3}
    for i in range(len(s)):
        n = s.count[i]
        assert len(set(s.place[i, :n])) == n
        for values in (getattr(s, name)[i] for name in ATTRIBUTES):
            assert (values[:n] >= 0).all() and (values[n:] == -1).all()
    assert scenes("train", np.arange(500), 1).count.max() == 1


def test_every_word_is_drawn_about_equally_often():
    s = scenes("train", np.arange(20_000))
    for name, words in (
        ("shape", v.SHAPES),
        ("colour", v.COLOURS),
        ("texture", v.TEXTURES),
        ("size", v.SIZES),
        ("place", v.PLACES),
        ("background", v.BACKGROUNDS),
    ):
        values = getattr(s, name)
        share = np.bincount(values[values >= 0], minlength=len(words)) / (values >= 0).sum()
        # Neighbours that would touch are drawn again: large ones are a little rarer, as are places
        # with many neighbours.
        assert np.abs(share * len(words) - 1).max() < (
            0.2 if name in ("size", "place") else 0.06
        ), name


def test_the_grid_says_what_the_description_says():
    s = scenes("validation", np.arange(100))
    grid = s.grid()
    for i in range(len(s)):
        found = {
            v.PLACES[p]: (
                v.SHAPES[grid["shape"][i, p]],
                v.COLOURS[grid["colour"][i, p]],
                v.TEXTURES[grid["texture"][i, p]],
                v.SIZES[grid["size"][i, p]],
            )
            for p in range(9)
            if grid["present"][i, p]
        }
        told = {
            o["place"]: (o["shape"], o["colour"], o["texture"], o["size"])
            for o in describe(s, i)["objects"]
        }
        assert found == told
    assert all(
        (grid[name][grid["present"] == 0] == -1).all()
        for name in ("shape", "colour", "texture", "size")
    )


def test_jitter_leaves_sizes_and_places_readable():
    s = scenes("train", np.arange(COUNT))
    here = s.size >= 0
    for a, b in ((0, 1), (1, 2)):
        assert s.radius[here & (s.size == a)].max() < 0.85 * s.radius[here & (s.size == b)].min()
    nearest = np.abs(s.x[here][:, None] - np.array(v.CENTRES)).argmin(1)
    assert np.array_equal(nearest, s.place[here] % 3)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("test", np.arange(2)), "one of train, validation"),
        (("train", np.arange(2), 4), "1 to 3"),
        (("train", np.array([-1])), ">= 0"),
        (("train", np.array([0.5])), "integers"),
        (("train", np.zeros((2, 2), int)), "1-d"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises(ValueError, match=words):
        scenes(*arguments)


def test_no_scenes_is_an_answer():
    assert len(scenes("reference", np.arange(0))) == 0


def test_no_two_objects_touch():
    s = scenes("train", np.arange(5_000))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        both = (s.place[:, i] >= 0) & (s.place[:, j] >= 0)
        gap = np.hypot(s.x[:, i] - s.x[:, j], s.y[:, i] - s.y[:, j])[both]
        assert (gap > 0.85 * (s.radius[:, i] + s.radius[:, j])[both]).all()
    assert apart(np.array([[0, 1, -1]]), np.array([[0, 0, -1]])).all()
    assert not apart(np.array([[0, 1, -1], [0, 4, -1]]), np.array([[0, 1, -1], [2, 2, -1]])).any()
    assert apart(np.array([[0, 8, -1]]), np.array([[2, 2, -1]])).all()


def test_tokens_lie_to_an_object_alike_at_every_place():
    """Centres are whole tokens (8 px of a 32 px picture) apart: fault of the first world, whose
    places were not."""
    assert {(centre * 32) % 8 for centre in v.CENTRES} == {0.0}
