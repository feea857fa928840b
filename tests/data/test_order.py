"""The global order: every epoch a permutation, every batch a window on one endless sequence."""

import tracemalloc
from collections import Counter
from itertools import permutations
from math import sqrt

import numpy as np
import pytest

from fulcrum.data.source import BLOCK, _block, order, permuted
from fulcrum.spec.keyed import bits, key


def test_each_epoch_visits_everything_once_in_its_own_order():
    first, second = order(1000, 7, 0, 1000), order(1000, 7, 1000, 1000)
    assert np.array_equal(np.sort(first), np.arange(1000)) and np.array_equal(
        np.sort(second), np.arange(1000)
    )
    assert not np.array_equal(first, second) and not np.array_equal(first, order(1000, 8, 0, 1000))
    assert (
        np.abs(np.corrcoef(first, second)[0, 1]) < 0.1
        and np.abs(np.corrcoef(first, np.arange(1000))[0, 1]) < 0.1
    )


def test_any_cut_of_the_sequence_gives_the_same_sequence():
    whole = order(10, 3, 0, 47)
    cuts = [0, 1, 9, 10, 11, 32, 47]
    pieces = [order(10, 3, a, b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert np.array_equal(order(10, 3, 5, 30), whole[5:35])  # one batch over four epochs


def test_the_answer_is_the_callers_own():
    a = order(10, 1, 0, 10)
    expected = a.copy()
    a[:] = 0
    assert np.array_equal(order(10, 1, 0, 10), expected)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 31, 97, 1000, 1023, 1024, 1025, 65_537])
def test_every_epoch_of_every_count_is_a_permutation(count):
    for epoch in range(3):
        assert np.array_equal(np.sort(order(count, 5, epoch * count, count)), np.arange(count))


def test_places_far_apart_of_a_thousand_million_samples_differ():
    count, keys = 10**9, bits(key("order", 0, 0), 14)[0]
    places = np.concatenate(
        [np.arange(100_000), count - 1 - np.arange(100_000), np.arange(0, count, 10_007)]
    )
    places = np.unique(places)
    numbers = permuted(count, keys, places)
    assert numbers.min() >= 0 and numbers.max() < count and len(np.unique(numbers)) == len(places)
    assert np.array_equal(
        order(count, 0, count - 3, 3), permuted(count, keys, np.arange(count - 3, count))
    )


def _surprise(observed, expected, freedom):
    """Chi-square in standard deviations from what chance gives."""
    return (((observed - expected) ** 2 / expected).sum() - freedom) / sqrt(2 * freedom)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_all_orders_of_a_few_samples_are_equally_likely(count):
    seeds = 6000
    seen = Counter(tuple(order(count, seed, 0, count).tolist()) for seed in range(seeds))
    every = np.array([seen[one] for one in permutations(range(count))])
    assert abs(_surprise(every, seeds / len(every), len(every) - 1)) < 4


@pytest.mark.parametrize("count", [16, 50, 97, 1000])
def test_every_sample_comes_everywhere_and_neighbours_are_strangers(count):
    orders = np.stack([order(count, seed, 0, count) for seed in range(1000)])
    places = np.stack([np.bincount(orders[:, place], minlength=count) for place in range(count)])
    assert abs(_surprise(places, 1000 / count, (count - 1) ** 2)) < 4
    for lag in (1, 2, 7):
        steps = np.bincount(
            ((orders[:, lag:] - orders[:, :-lag]) % count).ravel(), minlength=count
        )[1:]
        assert abs(_surprise(steps, steps.mean(), count - 2)) < 4, lag


def test_one_long_order_has_no_serial_correlation_and_no_memory_of_other_epochs_and_seeds():
    count = 100_000
    one = order(count, 0, 0, count).astype(np.float64)
    for other in (
        np.arange(count),
        order(count, 0, count, count),
        order(count, 1, 0, count),
        np.roll(one, 1),
        np.roll(one, 316),
    ):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / sqrt(count)


def test_memory_does_not_grow_with_the_number_of_samples_or_of_epochs():
    _block.cache_clear()
    tracemalloc.start()
    for position in range(0, 4 * 10**8, 10**6):
        order(10**8, 0, position, 64)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2**21 and peak < 2**21 and _block.cache_info().currsize * BLOCK * 8 <= 2**20


def test_edges():
    assert order(5, 0, 3, 0).shape == (0,) and order(1, 0, 3, 2).tolist() == [0, 0]
    for bad in ((0, 0, 0, 1), (5, 0, -1, 1), (5, 0, 0, -1)):
        with pytest.raises(ValueError, match="expected count"):
            order(*bad)
