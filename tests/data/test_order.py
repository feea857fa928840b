"""The global order: every epoch a permutation, every batch a window on one endless sequence."""

import numpy as np
import pytest

from fulcrum.data.order import order


def test_each_epoch_visits_everything_once_in_its_own_order():
    first, second = order(1000, 7, 0, 1000), order(1000, 7, 1000, 1000)
    assert np.array_equal(np.sort(first), np.arange(1000)) and np.array_equal(np.sort(second), np.arange(1000))
    assert not np.array_equal(first, second) and not np.array_equal(first, order(1000, 8, 0, 1000))
    assert np.abs(np.corrcoef(first, second)[0, 1]) < 0.1 and np.abs(np.corrcoef(first, np.arange(1000))[0, 1]) < 0.1


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


def test_edges():
    assert order(5, 0, 3, 0).shape == (0,) and order(1, 0, 3, 2).tolist() == [0, 0]
    for bad in ((0, 0, 0, 1), (5, 0, -1, 1), (5, 0, 0, -1)):
        with pytest.raises(ValueError, match="expected count"):
            order(*bad)
