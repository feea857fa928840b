"""Normal numbers by counter: known answers, the same bits in numpy, in torch and compiled, and the
normal distribution."""

import shutil
from math import erfc, sqrt
from statistics import NormalDist

import numpy as np
import pytest
import torch

from fulcrum.spec.keyed import bits, key
from fulcrum.training.flow import noise as gaussian
from fulcrum.training.flow import noise as keyed_noise

KNOWN = [  # of the keys 0 and 2^64 - 1: the first numbers, to the bit
    [
        "0x1.87df800000000p-5",
        "-0x1.3113580000000p+0",
        "-0x1.5887500000000p-2",
        "0x1.6140100000000p-3",
    ],
    [
        "0x1.3e19540000000p+0",
        "-0x1.3f6e1c0000000p+0",
        "-0x1.13ada80000000p+0",
        "-0x1.5b5f540000000p+0",
    ],
]
EDGES = np.array([0, 2**64 - 1], np.uint64)


def signed(keys):
    return torch.from_numpy(keys.view(np.int64))


def in_torch(keys, n, form=gaussian.device_normals):
    return form(signed(keys), n, gaussian.device_lines("cpu")).numpy()


def test_known_answers():
    assert [[float(z).hex() for z in row] for row in gaussian.normals(EDGES, 4)] == KNOWN


def test_each_half_of_a_word_goes_through_the_inverse_of_the_normal_distribution():
    """Against the inverse in float64: within 4e-6 everywhere, tails included."""
    keys = key("inverse", np.arange(400))
    halves = bits(keys, 50).view(np.int32).astype(np.int64) | 1
    tails = np.array([1, -1, 3, 5, 1001, -(2**20) + 1, 2**31 - 1, -(2**31) + 1])
    expected = np.array(
        [
            np.sign(u) * -NormalDist().inv_cdf(abs(u) / 2**32)
            for u in [*halves.ravel().tolist(), *tails.tolist()]
        ]
    )
    u = tails.astype(np.float32)
    segment = u.view(np.uint32) >> 16
    found = np.concatenate(
        [
            gaussian.normals(keys, 100).ravel(),
            u * gaussian.lines()[0][segment] + gaussian.lines()[1][segment],
        ]
    )
    assert np.abs(found - expected).max() < 4e-6
    assert expected.max() > 6.2 and expected.min() < -6.2


@pytest.mark.parametrize("n", [1, 2, 7, 512])
def test_torch_gives_the_bits_of_numpy(n):
    keys = key("torch", np.arange(300))
    assert np.array_equal(
        gaussian.normals(keys, n).view(np.int32), in_torch(keys, n).view(np.int32)
    )


class FarPlace(keyed_noise.DrawPlace):
    """Draws as on a device, on this one."""

    far = True


def test_keys_words_and_numbers_of_a_device_are_those_of_the_cpu():
    """Of a stretch of images, and of any others."""
    for index in (np.arange(2**33 - 5, 2**33 + 5), np.array([7, 3, 3, 0]), np.arange(0)):
        keys = keyed_noise.device_keys(5, "eps", index, "cpu")
        assert torch.equal(keys, signed(key(5, "eps", index)))
        assert torch.equal(gaussian.device_bits(keys, 9), signed(bits(key(5, "eps", index), 9)))
        far = FarPlace("cpu")
        assert torch.equal(
            keyed_noise.uniform(5, "eps", index, 9, far), keyed_noise.uniform(5, "eps", index, 9)
        )
        assert torch.equal(
            keyed_noise.normal(5, "eps", index, (3, 2), far),
            keyed_noise.normal(5, "eps", index, (3, 2)),
        )


def test_one_rounding_instead_of_two_stays_within_the_tolerance():
    """What a compiler does that joins product and sum, computed in float64: both forms of the known
    table, tails too."""
    keys = key("contracted", np.arange(2000))
    tails = np.concatenate([np.arange(1, 2**16, 2), -np.arange(1, 2**16, 2)])
    u = np.concatenate([(bits(keys, 256).view(np.int32) | 1).ravel(), tails]).astype(np.float32)
    slope, offset = (row[u.view(np.uint32) >> 16] for row in gaussian.lines())
    once = (u.astype(np.float64) * slope.astype(np.float64) + offset.astype(np.float64)).astype(
        np.float32
    )
    apart = np.abs(once.astype(np.float64) - (u * slope + offset).astype(np.float64)).max()
    assert 0 < apart <= gaussian.TOLERANCE


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="there is no C++ compiler")
def test_known_answers_and_all_bits_of_the_compiled_form():
    """One graph for the words and the numbers; a long row, so that vectors and what is left of them
    both occur."""
    compiled = torch.compile(gaussian.device_normals, fullgraph=True, dynamic=False)
    assert [[float(z).hex() for z in row[:4]] for row in in_torch(EDGES, 1021, compiled)] == KNOWN
    assert np.array_equal(
        in_torch(EDGES, 1021, compiled).view(np.int32), gaussian.normals(EDGES, 1021).view(np.int32)
    )


def test_a_number_does_not_depend_on_batch_position_or_length():
    """Rows are taken some at a time: neighbours across such a border, alone, reversed and cut
    short."""
    index = np.arange(300)
    whole = keyed_noise.normal(3, "eps", index, (8, 8, 8))
    assert torch.equal(keyed_noise.normal(3, "eps", index[::-1].copy(), (8, 8, 8)).flip(0), whole)
    for row in (0, 127, 128, 299):
        assert torch.equal(
            keyed_noise.normal(3, "eps", index[row : row + 1], (8, 8, 8))[0], whole[row]
        )
        assert torch.equal(
            keyed_noise.normal(3, "eps", index[row : row + 1], (3, 7))[0],
            whole[row].flatten()[:21].view(3, 7),
        )
    assert keyed_noise.normal(3, "eps", index[:0], (2, 2)).shape == (0, 2, 2)


def test_moments_and_tails_of_four_million_numbers():
    z = gaussian.normals(key("moments", np.arange(4096)), 1024).astype(np.float64).ravel()
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs((z**power).mean() - moment) < 4 * sqrt(variance / z.size), power
    for sigma in (1, 2, 3, 4, 4.5):
        expected = z.size * erfc(sigma / sqrt(2)) / 2
        for beyond in ((z > sigma).sum(), (z < -sigma).sum()):
            assert abs(beyond - expected) < 4 * sqrt(expected) + 1, sigma
    cells = np.histogram(
        z, [NormalDist().inv_cdf(i / 256) if 0 < i < 256 else (-9, 9)[i > 0] for i in range(257)]
    )[0]
    chi_square = ((cells - z.size / 256) ** 2 / (z.size / 256)).sum()
    assert abs(chi_square - 255) < 4 * sqrt(2 * 255)


def test_neighbours_in_index_place_purpose_and_seed_are_independent():
    """No correlation of the numbers, nor of their squares: a shared radius, say, would show in
    those."""
    index, shape = np.arange(2000), (500,)
    base = keyed_noise.normal(0, "eps", index, shape)
    others = {
        "index": keyed_noise.normal(0, "eps", index + 1, shape),
        "seed": keyed_noise.normal(1, "eps", index, shape),
        "purpose": keyed_noise.normal(0, "sample", index, shape),
        "place": base.roll(1, 1),
        "pair": base.view(2000, 250, 2).flip(2).reshape(2000, 500),  # of one word
    }
    for name, other in others.items():
        repeats = 2 if name == "pair" else 1  # each product is there twice
        for one, two in ((base, other), (base**2 - 1, other**2 - 1)):
            correlation = float((one * two).mean() / (one.std() * two.std()))
            assert abs(correlation) < 4 * sqrt(repeats / base.numel()), name
