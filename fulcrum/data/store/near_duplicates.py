"""Pictures that look alike, found by a perceptual hash: 64 bits of the coarse shape, checked by a thumbnail's colours.

Two pictures whose hashes differ in at most k bits agree wholly in one of k + 1 bands of bits (pigeonholes): only those of
one band's value are compared, so a hundred thousand take seconds. Grey shape alone would take a red ball for a blue one.

n pictures, u different hashes
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.store.picture_store import PictureStore
from fulcrum.spec.progress import Tally
from fulcrum.spec.run import cores

SIDE, KEPT, THUMB = 32, 8, 8  # pixels that are transformed, frequencies that are kept, pixels of the thumbnail
COLOURS = 6.0  # of 255: thumbnails that differ by less on average may show the same
FARTHEST = 28.0  # and by less than this in their most different pixel: a small thing changes few pixels
CHUNK = 512  # pictures that are decoded at a time
ACROSS = 256  # hashes that are compared with all others of their band at a time
COMPARED = 4096  # pairs whose colours are compared at a time
Hashes = NDArray[np.uint64]


def _cosines() -> NDArray[np.float32]:
    """(KEPT + 1, SIDE): rows of the discrete cosine transform."""
    place = np.arange(SIDE) + 0.5
    return np.cos(np.pi / SIDE * np.arange(KEPT + 1)[:, None] * place).astype(np.float32)


COSINES = _cosines()
MEANS = np.kron(np.eye(THUMB), np.full(SIDE // THUMB, THUMB / SIDE)).astype(np.float32)  # (THUMB, SIDE)
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # of red, green and blue in grey


def perceptual_hashes(grey: NDArray[np.float32]) -> Hashes:
    """(n, SIDE, SIDE) -> (n,): which of the coarse frequencies lie above their median; the mean is not one of them."""
    waves = COSINES @ grey @ COSINES.T  # (n, KEPT + 1, KEPT + 1)
    waves = waves[:, :KEPT, 1:].reshape(len(grey), KEPT * KEPT)
    above = waves > np.median(waves, axis=1, keepdims=True)
    return np.packbits(above, axis=1).view(">u8")[:, 0].astype(np.uint64)


def looks(small: NDArray[np.uint8]) -> tuple[Hashes, NDArray[np.uint8]]:
    """(n, SIDE, SIDE, 3) -> hash (n,) and thumbnail (n, THUMB * THUMB * 3) of each picture."""
    values = small.astype(np.float32)
    across = MEANS @ values.reshape(len(small), SIDE, SIDE * 3)  # products: a mean over short axes takes ten times as long
    thumbs = across @ np.kron(MEANS.T, np.eye(3, dtype=np.float32))  # (n, THUMB, THUMB * 3)
    return perceptual_hashes(values @ LUMA), thumbs.round().astype(np.uint8).reshape(len(small), -1)


def store_looks(store: PictureStore, say: Callable[[str], None]) -> tuple[Hashes, NDArray[np.uint8]]:
    """Of every picture of a store, decoded on all cores."""
    hashes, thumbs = np.empty(len(store), np.uint64), np.empty((len(store), THUMB * THUMB * 3), np.uint8)

    def chunk(first: int) -> None:
        rows = range(first, min(first + CHUNK, len(store)))
        hashes[rows.start : rows.stop], thumbs[rows.start : rows.stop] = looks(
            np.stack([store.miniature(row, SIDE) for row in rows])
        )

    tally = Tally("looked at", len(store), say, "pictures")
    with ThreadPoolExecutor(cores()) as pool:
        for done, _ in enumerate(pool.map(chunk, range(0, len(store), CHUNK)), 1):
            tally.tell(min(done * CHUNK, len(store)))
    return hashes, thumbs


def alike(hashes: Hashes, thumbs: NDArray[np.uint8], rank: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """(n,) for each picture the one that stays and that it looks like: itself, where it stays.

    In the order of their rank pictures stay unless they look like one that stays already: nothing goes because of a chain
    of pictures in between.
    """
    known, group, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    starts, beside = _neighbours(known, _colour_bounds(thumbs, group, counts), most)
    crowded = (counts > 1) | (np.diff(starts) > 0)
    owner, stays = np.arange(len(hashes)), dict[int, list[int]]()
    order = np.argsort(rank, kind="stable")
    for number in order[crowded[group[order]]].tolist():
        mine = int(group[number])
        near = (mine, *beside[starts[mine] : starts[mine + 1]].tolist())
        others = [one for hash_number in near for one in stays.get(hash_number, ())]
        fits = _colours_fit(thumbs[number], thumbs[others]) if others else np.zeros(0, bool)
        if fits.any():
            owner[number] = others[int(fits.argmax())]
        else:
            stays.setdefault(mine, []).append(number)
    return owner


def _colour_bounds(
    thumbs: NDArray[np.uint8], group: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """(u, d) the least and the most that the thumbnails of each hash have of every colour."""
    by_hash, starts = thumbs[np.argsort(group, kind="stable")], np.r_[0, np.cumsum(counts)[:-1]]
    least, most = (extreme.reduceat(by_hash, starts, axis=0).astype(np.int16) for extreme in (np.minimum, np.maximum))
    return least, most


def _neighbours(
    known: Hashes, bounds: tuple[NDArray[np.int16], NDArray[np.int16]], most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The hashes beside the i-th, ascending: beside[starts[i] : starts[i + 1]]; at most so many bits away, and of colours
    that may fit: coarse shapes of unlike pictures meet by the million, and nobody needs those."""
    one, two = np.concatenate([np.zeros((2, 0), np.int64), *_near(known, bounds, most)], axis=1)
    from_, to = np.r_[one, two], np.r_[two, one]
    order = np.lexsort((to, from_))
    return np.searchsorted(from_[order], np.arange(len(known) + 1)), to[order]


def _near(known: Hashes, bounds: tuple[NDArray[np.int16], NDArray[np.int16]], most: int) -> Iterator[NDArray[np.int64]]:
    """Pairs (2, p) of numbers into `known`, each pair once: in the first band in which it agrees."""
    least, greatest = bounds
    edges = np.linspace(0, 64, most + 2).astype(int).tolist() if most else []
    masks = [np.uint64(((1 << (high - low)) - 1) << low) for low, high in pairwise(edges)]
    for number, mask in enumerate(masks):
        band = known & mask
        order = np.argsort(band, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(band[order]) > 0, True])
        for begin, end in zip(starts[:-1], starts[1:], strict=True):
            rows = order[begin:end]
            for part in range(0, len(rows) - 1, ACROSS):
                ahead, all_left = rows[part : part + ACROSS], rows[part:]
                apart = known[ahead][:, None] ^ known[all_left][None, :]
                one, two = np.nonzero(np.triu(np.bitwise_count(apart) <= most, k=1))
                differ = apart[one, two]
                new = np.all([differ & earlier != 0 for earlier in masks[:number]], axis=0) if number else slice(None)
                one, two = ahead[one[new]], all_left[two[new]]
                for first in range(0, len(one), COMPARED):
                    a, b = one[first : first + COMPARED], two[first : first + COMPARED]
                    gap = np.maximum(least[a] - greatest[b], least[b] - greatest[a]).clip(min=0)
                    yield np.stack([a, b])[:, _close(gap)]


def _colours_fit(one: NDArray[np.uint8], others: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(k,) which of the other thumbnails (k, d) are close on the whole and nowhere far away."""
    return _close(np.abs(others.astype(np.int16) - one))


def _close(apart: NDArray[np.int16]) -> NDArray[np.bool_]:
    fits: NDArray[np.bool_] = (apart.mean(1) < COLOURS) & (apart.max(1) < FARTHEST)
    return fits
