"""Standard normal numbers by counter: splitmix64 words through a piecewise linear inverse of the normal distribution.

The same arithmetic twice, equal to the bit: in numpy for the CPU, where torch's operations one by one take twice as long,
and in torch for other devices and for code that is compiled. Each word gives two numbers, its lower half first. There are
only integer operations, one conversion, one product and one sum, which every device rounds alike (docs/decisions/0036). A
compiler that joins product and sum rounds once instead of twice: then numbers are within TOLERANCE.

B keys, n numbers per key, W = n / 2 words per key, rounded up.
"""

from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.spec.keyed import FIRST, GOLDEN, SECOND, Keys, bits

SEGMENT_BITS = 16  # of a float32: sign, exponent and 7 bits of the mantissa choose the line, 128 lines for every octave
STEP, FACTORS = int(GOLDEN.astype(np.int64)), tuple(int(word.astype(np.int64)) for word in (FIRST, SECOND))  # with a sign
TOLERANCE = 4.8e-7  # between devices, of any number: one rounding at 4 to 6.2 standard deviations, less below (0060)
AT_ONCE = 32_768  # numbers; what is written in between stays in the cache of one core


@lru_cache(maxsize=1)
def lines() -> NDArray[np.float32]:
    """(2, 65536) slope and offset of the chord over each segment of u = ±1 ... ±2^31, where P(|z| > |z(u)|) = |u| / 2^31.

    The tail is where |u| is small, and there floating point numbers lie densest: it reaches to 6.2 standard deviations.
    """
    edges = (np.arange(127 * 128, 158 * 128 + 1, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)  # 1 ... 2^31
    z = np.array([-NormalDist().inv_cdf(edge / 2.0**32) for edge in edges])
    slope = (np.diff(z) / np.diff(edges)).astype(np.float32)
    offset = (z[:-1] - slope.astype(np.float64) * edges[:-1]).astype(np.float32)
    table = np.zeros((2, 1 << SEGMENT_BITS), np.float32)  # the last edge, 2^31 itself, keeps a line of zeros: z = 0
    positive = slice(127 * 128, 158 * 128)
    negative = slice(positive.start + (1 << 15), positive.stop + (1 << 15))
    table[:, positive], table[:, negative] = (slope, offset), (slope, -offset)
    table.flags.writeable = False  # shared by all callers
    return table


def normals(keys: Keys, n: int) -> NDArray[np.float32]:
    """(B,) keys -> (B, n) on the CPU, some rows at a time."""
    slope, offset = lines()
    words = -(-n // 2)
    numbers, rows = np.empty((len(keys), 2 * words), np.float32), max(1, AT_ONCE // max(n, 1))
    for first in range(0, len(keys), rows):
        odd = bits(keys[first : first + rows], words).view(np.int32)  # (b, 2W)
        odd |= 1  # never 0, and as many above as below it
        u = numbers[first : first + rows]
        u[:] = odd
        segment = (u.view(np.uint32) >> np.uint32(16)).astype(np.intp)
        u *= slope.take(segment, mode="clip")  # no index is outside: this only spares the check
        u += offset.take(segment, mode="clip")
    return numbers[:, :n]


def device_scramble(words: Tensor) -> Tensor:
    """splitmix64's finaliser of int64 words on their device.

    torch's integers have a sign: a shift to the right copies it, and the mask takes the copies away."""
    words = (words ^ ((words >> 30) & (1 << 34) - 1)) * FACTORS[0]
    words = (words ^ ((words >> 27) & (1 << 37) - 1)) * FACTORS[1]
    return words ^ ((words >> 31) & (1 << 33) - 1)


def device_bits(keys: Tensor, slots: int) -> Tensor:
    """(B,) int64 keys -> (B, slots) words, those of `fulcrum.spec.keyed.bits`."""
    return device_scramble(keys[:, None] + torch.arange(1, slots + 1, device=keys.device) * STEP)


def device_normals(keys: Tensor, n: int, table: Tensor) -> Tensor:
    """(B,) int64 keys -> (B, n) on the keys' device, where `table`, the lines, is too."""
    u = (device_bits(keys, -(-n // 2)).view(torch.int32) | 1).float()  # (B, 2W)
    segment = (u.view(torch.int32) >> 16) & 0xFFFF
    return (u * table[0][segment] + table[1][segment])[:, :n]


@lru_cache(maxsize=1)
def compiled_normals() -> Callable[[Tensor, int, Tensor], Tensor]:
    """The same as one kernel instead of some twenty, each of which would write and read every number."""
    return torch.compile(device_normals, dynamic=False)


@lru_cache(maxsize=8)
def device_lines(device: str) -> Tensor:
    """The lines, copied to a device once."""
    return torch.tensor(lines(), device=device)
