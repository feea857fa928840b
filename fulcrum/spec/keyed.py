"""Counter-based randomness: every number is a pure function of its key, so batching and order
cannot change it.

Legend: B keys, K slots per key.
"""

import hashlib
from functools import lru_cache, reduce
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

# splitmix64 (Steele, Lea, Flood 2014): increment and finaliser
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def scramble(words: Keys) -> Keys:
    """splitmix64's finaliser: a bijection of 64-bit words in which every input bit reaches every
    output bit."""
    shifted = words >> np.uint64(30)
    words = words ^ shifted
    words *= FIRST
    words ^= np.right_shift(words, np.uint64(27), out=shifted)
    words *= SECOND
    words ^= np.right_shift(words, np.uint64(31), out=shifted)
    return words


def _words(part: int | str | NDArray[np.generic]) -> Keys:
    if isinstance(part, str):
        return np.frombuffer(
            hashlib.blake2b(part.encode(), digest_size=8).digest(), dtype="<u8"
        ).astype(np.uint64)
    if isinstance(part, int):
        return np.array([part & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
    return np.atleast_1d(part).astype(np.uint64)


def _folded(state: Keys, part: int | str | NDArray[np.generic]) -> Keys:
    return scramble((state + GOLDEN) ^ scramble(_words(part) + GOLDEN))


@lru_cache(maxsize=1024)  # a run asks for the same seed and purposes at every step
def _opening(parts: tuple[int | str, ...]) -> Keys:
    return reduce(_folded, parts, np.zeros(1, dtype=np.uint64))


def key(*parts: int | str | NDArray[np.generic]) -> Keys:
    """Fold names, numbers and arrays (broadcast against each other) into 64-bit keys; order
    matters."""
    opening = tuple(takewhile(lambda part: isinstance(part, int | str), parts))
    return reduce(_folded, parts[len(opening) :], _opening(opening).copy())


def bits(keys: Keys, slots: int) -> Keys:
    """(B,) -> (B, K): the first K words of each key's splitmix64 stream."""
    steps = np.arange(1, slots + 1, dtype=np.uint64) * GOLDEN
    return scramble(keys[:, None] + steps)  # (B, K)


def uniform(keys: Keys, slots: int) -> NDArray[np.float64]:
    """(B,) -> (B, K) numbers in [0, 1), 53 bits each."""
    return (bits(keys, slots) >> np.uint64(11)).astype(np.float64) * 2.0**-53  # (B, K)
