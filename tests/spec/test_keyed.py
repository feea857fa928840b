"""Counter-based randomness: known answers, and independence of what is asked for beside it."""

import numpy as np

from fulcrum.spec.keyed import bits, key, uniform


def test_known_answers_of_splitmix64():
    words = bits(np.zeros(1, np.uint64), 3)[0]
    assert [hex(int(w)) for w in words] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_a_key_depends_on_every_part_and_on_their_order():
    parts = [("a", 1, 2), ("a", 2, 1), ("b", 1, 2), ("a", 1), ("a", 1, 2, 0), ("a", -1, 2)]
    assert len({int(key(*p)[0]) for p in parts}) == len(parts)


def test_a_key_is_the_callers_own():
    one = key("a", 1)
    one[0] = 0
    assert key("a", 1)[0] != 0 and np.array_equal(key("a", np.array([1])), key("a", 1))


def test_arrays_broadcast_and_rows_do_not_see_each_other():
    whole = key("x", np.arange(100))
    assert whole.shape == (100,) and len(np.unique(whole)) == 100
    assert np.array_equal(whole[[7, 3]], key("x", np.array([7, 3])))
    assert key("x", np.arange(3)[:, None], np.arange(4)).shape == (3, 4)
    assert key("x", np.arange(0)).shape == (0,)


def test_uniforms_are_uniform_and_uncorrelated_between_neighbours():
    u = uniform(key("u", np.arange(20_000)), 4)
    assert u.min() >= 0 and u.max() < 1
    assert np.all(np.abs(np.histogram(u, 16)[0] / u.size - 1 / 16) < 0.002)
    neighbours = np.corrcoef(np.concatenate([u[:-1], u[1:]], axis=1).T)
    assert np.abs(neighbours - np.eye(8)).max() < 0.03
