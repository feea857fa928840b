"""Mixes: shares that hold exactly, as a function of the position alone."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from fulcrum.data.captions import Chooser
from fulcrum.data.fillers import Mix
from fulcrum.data.mix import BLOCK, MixSource, dealt, shares
from fulcrum.data.source import order_of
from fulcrum.spec.slots import DataContext


class Numbers:
    """A source that is only long."""

    def __init__(self, count, name):
        self.count, self.name = count, name

    def __len__(self):
        return self.count

    def fingerprint(self):
        return f"{self.name} {self.count}"

    def prompts(self, chooser, index):
        return [f"{self.name}{n}" for n in index]

    def styles(self):
        return ("long",)


@pytest.mark.parametrize(
    "weights", [(1.0,), (0.7, 0.3), (0.1, 0.2, 0.7), (5.0, 1.0, 0.25, 1e-3), (1 / 3, 2 / 3)]
)
def test_shares_hold_to_within_one_slot(weights):
    exact = shares(weights)
    counts = [0] * len(weights)
    for slot in range(3000):
        source, before = dealt(slot, exact)
        assert before == counts[source], "each source is walked through without gap or repeat"
        counts[source] += 1
        for share, count in zip(exact, counts, strict=True):
            assert abs(share * (slot + 1) - count) <= len(weights) - 1 or len(weights) == 1
    assert sum(exact) == 1 and shares((0.1, 0.9)) == (Fraction(1, 10), Fraction(9, 10))


def test_the_order_is_a_function_of_the_position():
    mix = MixSource([Numbers(50, "a"), Numbers(1000, "b")], (0.25, 0.75))
    whole = mix.order(7, 0, 3 * BLOCK)
    assert np.array_equal(
        np.concatenate([mix.order(7, at, 96) for at in range(0, 3 * BLOCK, 96)]), whole
    )
    assert np.array_equal(mix.order(7, 1000, 77), whole[1000:1077]) and np.array_equal(
        order_of(mix, 7, 5, 3), whole[5:8]
    )
    assert not np.array_equal(mix.order(8, 0, BLOCK), whole[:BLOCK])
    small = whole[whole < 50]
    assert len(small) == 3 * BLOCK // 4, "a quarter, exactly, after whole blocks"
    large = whole[whole >= 50]
    assert len(np.unique(large[:1000])) == 1000 and np.bincount(small, minlength=50).min() >= 15
    runs = np.diff(np.flatnonzero(whole < 50))
    assert runs.min() == 1 and runs.max() > 8, "mixed at random, not dealt in turns"


def test_an_epoch_of_each_source_visits_all_of_it():
    mix = MixSource([Numbers(BLOCK // 2, "a"), Numbers(BLOCK // 2, "b")], (1.0, 1.0))
    assert np.array_equal(np.sort(mix.order(0, 0, BLOCK)), np.arange(BLOCK))


def test_samples_come_from_their_own_source(store, make, tmp_path):
    other = make.imported(make.folder(tmp_path / "given", 20, first=100), tmp_path / "other")
    mix = Mix(paths=(str(store), str(other)), weights=(3.0, 1.0))

    run = SimpleNamespace(
        data=SimpleNamespace(size=16),
        budget=SimpleNamespace(batch=4),
        model=SimpleNamespace(patch=2),
        encode=SimpleNamespace(codec=SimpleNamespace(stride=4), teachers=()),
    )
    built = mix.build(DataContext(run))
    first, second = built.sources
    ids = np.array([0, len(first) + 2, 5])
    samples = built.read(ids)
    assert np.array_equal(samples.images[1], second.read(np.array([2])).images[0])
    assert len(built) == len(first) + len(second)
    assert built.prompts(Chooser(), ids)[1] == second.prompts(Chooser(), np.array([2]))[
        0
    ] and built.styles() == ("long",)
    assert mix.held_out("reference", 9).path == str(store) and "paths" not in mix.identity()
    assert set(mix.hashes()) == set(
        Mix(paths=(str(other), str(store)), weights=(1.0, 3.0)).hashes()
    )
    with pytest.raises(IndexError, match="this mix holds"):
        built.read(np.array([len(built)]))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"weights": (1.0,)}, "one weight per path"),
        ({"weights": (1.0, 0.0)}, "great"),
        ({"paths": (), "weights": ()}, "at least 1"),
    ],
)
def test_bad_mixes(change, words):
    with pytest.raises(ValueError, match=words):
        Mix(**{"paths": ("a", "b"), "weights": (1.0, 1.0), **change})
