"""Keyed random numbers: every draw of a step is a function of (seed, purpose, image index)."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from fulcrum.spec.keyed import FIRST, GOLDEN, SECOND, Keys, bits, key
from fulcrum.spec.slots import Chance, GroupedSubset, Need, Normal, Subset, Uniform

# --------------------------------------------------------------------------------------------------
# Standard normal numbers by counter: splitmix64 words through a piecewise linear inverse of the
# normal distribution.
#
# The same arithmetic twice, equal to the bit: in numpy for the CPU, where torch's operations one by
# one take twice as long, and in torch for other devices and for code that is compiled. Each word
# gives two numbers, its lower half first. There are only integer operations, one conversion, one
# product and one sum, which every device rounds alike (docs/decisions/0036). A compiler that joins
# product and sum rounds once instead of twice: then numbers are within TOLERANCE.
#
# B keys, n numbers per key, W = n / 2 words per key, rounded up.


# of a float32: sign, exponent and 7 bits of the mantissa choose the line, 128 lines for every
# octave
SEGMENT_BITS = 16
# with a sign
STEP, FACTORS = (
    int(GOLDEN.astype(np.int64)),
    tuple(int(word.astype(np.int64)) for word in (FIRST, SECOND)),
)
# between devices, of any number: one rounding at 4 to 6.2 standard deviations, less below (0060)
TOLERANCE = 4.8e-7
AT_ONCE = 32_768  # numbers; what is written in between stays in the cache of one core


@lru_cache(maxsize=1)
def lines() -> NDArray[np.float32]:
    """(2, 65536) slope and offset of the chord over each segment of u = ±1 ... ±2^31, where
    P(|z| > |z(u)|) = |u| / 2^31.

    The tail is where |u| is small, and there floating point numbers lie densest: it reaches to 6.2
    standard deviations.
    """
    # 1 ... 2^31
    edges = (
        (np.arange(127 * 128, 158 * 128 + 1, dtype=np.uint32) << 16)
        .view(np.float32)
        .astype(np.float64)
    )
    z = np.array([-NormalDist().inv_cdf(edge / 2.0**32) for edge in edges])
    slope = (np.diff(z) / np.diff(edges)).astype(np.float32)
    offset = (z[:-1] - slope.astype(np.float64) * edges[:-1]).astype(np.float32)
    # the last edge, 2^31 itself, keeps a line of zeros: z = 0
    table = np.zeros((2, 1 << SEGMENT_BITS), np.float32)
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

    torch's integers have a sign: a shift to the right copies it, and the mask takes the copies
    away."""
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
    """The same as one kernel instead of some twenty, each of which would write and read every
    number."""
    return torch.compile(device_normals, dynamic=False)


@lru_cache(maxsize=8)
def device_lines(device: str) -> Tensor:
    """The lines, copied to a device once."""
    return torch.tensor(lines(), device=device)


# --------------------------------------------------------------------------------------------------
# Keyed random tensors: pure functions of (seed, purpose, image index), never of rank, batch or what
# was drawn before.
#
# B rows, n numbers per row.


class DrawPlace(NamedTuple):
    """Where numbers are made, and whether by compiled code; the numbers are the same."""

    device: str = "cpu"
    compiled: bool = False


HERE = DrawPlace()


def uniform(
    seed: int, purpose: str, index: np.ndarray, n: int = 1, place: DrawPlace = HERE
) -> Tensor:
    """(B, n) numbers in (0, 1), 23 bits each: exact in fp32 and never 0 or 1."""
    if place.device != "cpu":
        far = (device_bits(device_keys(seed, purpose, index, place.device), n) >> 41) & (
            1 << 23
        ) - 1
        return (far.float() + 0.5) / 2**23
    words = bits(key(seed, purpose, index), n) >> np.uint64(41)
    return torch.from_numpy((words.astype(np.float64) + 0.5) / 2**23).float()


def normal(
    seed: int, purpose: str, index: np.ndarray, shape: tuple[int, ...], place: DrawPlace = HERE
) -> Tensor:
    """(B, *shape) standard normal numbers, the same on every device."""
    n = prod(shape)
    if place.device == "cpu":
        return torch.from_numpy(normals(key(seed, purpose, index), n)).reshape(len(index), *shape)
    form = compiled_normals() if place.compiled else device_normals
    numbers = form(device_keys(seed, purpose, index, place.device), n, device_lines(place.device))
    return numbers.reshape(len(index), *shape)


def device_keys(seed: int, purpose: str, index: np.ndarray, device: str) -> Tensor:
    """(B,) int64, the words of `key(seed, purpose, index)`, folded on the device: of a stretch of
    images only its bounds are told there."""
    first, count = int(index[0]) if len(index) else 0, len(index)
    if count and np.array_equal(index, np.arange(first, first + count)):
        numbers = torch.arange(first, first + count, device=device)
    else:
        numbers = torch.from_numpy(index.astype(np.int64)).to(device)
    opening = int((key(seed, purpose) + GOLDEN).view(np.int64)[0])
    return device_scramble(device_scramble(numbers + STEP) ^ opening)


def subset(
    seed: int, purpose: str, index: np.ndarray, n: int, kept: int, place: DrawPlace = HERE
) -> Tensor:
    """(B, kept) sorted positions out of n, each subset equally likely; of equal numbers the first
    comes first."""
    order = uniform(seed, purpose, index, n, place).argsort(dim=1, stable=True)[:, :kept]
    return order.sort(dim=1).values


def grouped_subset(
    seed: int,
    purpose: str,
    index: np.ndarray,
    rows: int,
    columns: int,
    kept: int,
    place: DrawPlace = HERE,
) -> Tensor:
    """(B, K) sorted positions on a grid: of every 2 x 2 group `kept` of its four, each choice
    equally likely.

    Where a side is odd the groups at its edge are smaller and keep their share, rounded up: none is
    ever empty.
    """
    drawn = uniform(seed, purpose, index, rows * columns, place).reshape(-1, rows, columns)
    # places that are not there come last
    even = F.pad(drawn, (0, columns % 2, 0, rows % 2), value=2.0)
    groups = even.unfold(1, 2, 2).unfold(2, 2, 2)  # (B, groups down, groups across, 2, 2)
    members = groups.flatten(3)  # (B, groups down, groups across, 4)
    quota = -(-(members < 1).sum(-1, keepdim=True) * kept // 4)
    chosen = members.argsort(dim=-1, stable=True).argsort(-1) < quota
    whole = (
        chosen.reshape(groups.shape)
        .transpose(2, 3)
        .reshape(even.shape)[:, :rows, :columns]
        .flatten(1)
    )  # (B, N) true where kept
    # Not `nonzero`: how many it finds a device would have to tell the host, which must wait for
    # that.
    positions = (~whole).byte().argsort(dim=1, stable=True)
    return positions[:, : _grouped_count(rows, columns, kept)]


def _grouped_count(rows: int, columns: int, kept: int) -> int:
    """How many positions `grouped_subset` keeps: whole groups, those at an odd side, and the one in
    the corner."""
    down, across = rows // 2, columns // 2
    edge = (columns % 2) * down + (rows % 2) * across
    return (
        down * across * kept + edge * -(-2 * kept // 4) + (rows % 2) * (columns % 2) * -(-kept // 4)
    )


# --------------------------------------------------------------------------------------------------
# A draw: every random number of one step, made outside the model.
#
# B batch, C channels, h, w latent rows and columns, K kept tokens.


class Draw(NamedTuple):
    t: Tensor  # (B,)
    eps: Tensor  # (B, C, h, w)
    drop_text: Tensor  # (B,) bool
    keep: Tensor | None  # (B, K) or nothing is dropped
    extra: dict[str, Tensor]  # what other fillers declared
    drop_path: Tensor | None = None  # (B,) bool: the routed span counts for nothing


def make(need: Need, seed: int, purpose: str, index: np.ndarray, place: DrawPlace = HERE) -> Tensor:
    """Draw what a filler declared, for the images of `index`."""
    match need:
        case Uniform(n):
            return uniform(seed, purpose, index, n, place)
        case Subset(n, kept):
            return subset(seed, purpose, index, n, kept, place)
        case GroupedSubset(rows, columns, kept):
            return grouped_subset(seed, purpose, index, rows, columns, kept, place)
        case Chance(p):
            return uniform(seed, purpose, index, place=place)[:, 0] < p
        case Normal(shape):
            return normal(seed, purpose, index, shape, place)


class Draws(NamedTuple):
    """How draws are made in one phase of a run."""

    seed: int
    time: Callable[[Tensor], Tensor]
    shape: tuple[int, int, int]  # of one latent
    drop_text: float
    noise_scale: float = 1.0
    needs: Mapping[str, Need] = {}

    def at(
        self, position: int, rows: int, place: DrawPlace = HERE, times: Tensor | None = None
    ) -> Draw:
        """The draw of the images position … position + rows - 1, counted over the whole run and all
        processes.

        All of it is made at `place` but the `times`, which go through functions that devices round
        differently: they are made on the CPU, four bytes an image, and come along with the
        batch."""
        index = np.arange(position, position + rows)
        extra = {
            name: make(need, self.seed, name, index, place) for name, need in self.needs.items()
        }
        return Draw(
            t=(self.times(position, rows) if times is None else times).to(place.device),
            eps=normal(self.seed, "eps", index, self.shape, place) * self.noise_scale,
            drop_text=uniform(self.seed, "drop_text", index, place=place)[:, 0] < self.drop_text,
            keep=extra.pop("keep", None),
            drop_path=extra.pop("drop_path", None),
            extra=extra,
        )

    def times(self, position: int, rows: int) -> Tensor:
        """(B,) on the CPU."""
        return self.time(uniform(self.seed, "t", np.arange(position, position + rows))[:, 0])
