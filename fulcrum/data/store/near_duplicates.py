"""Pictures that look alike, found by a perceptual hash: 64 bits of the coarse shape, checked by a thumbnail's colours.

Two pictures whose hashes differ in at most k bits agree wholly in one of k + 1 bands of bits (pigeonholes): only those of
one band's value are compared, so a hundred thousand take seconds. Grey shape alone would take a red ball for a blue one.

n pictures, u different hashes
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fulcrum.data.store.picture_store import PictureStore
from fulcrum.spec.countdown import Tally
from fulcrum.spec.system import cores

SIDE, KEPT, THUMB = 32, 8, 8  # pixels that are transformed, frequencies that are kept, pixels of the thumbnail
COLOURS = 6.0  # of 255: thumbnails that differ by less on average may show the same
FARTHEST = 28.0  # and by less than this in their most different pixel: a small thing changes few pixels
CHUNK = 512  # pictures that are decoded at a time
ACROSS = 256  # hashes that are compared with all others of their band at a time
Hashes = NDArray[np.uint64]


def _cosines() -> NDArray[np.float32]:
    """(KEPT + 1, SIDE): rows of the discrete cosine transform."""
    place = np.arange(SIDE) + 0.5
    return np.cos(np.pi / SIDE * np.arange(KEPT + 1)[:, None] * place).astype(np.float32)


COSINES = _cosines()


def perceptual_hashes(grey: NDArray[np.float32]) -> Hashes:
    """(n, SIDE, SIDE) -> (n,): which of the coarse frequencies lie above their median; the mean is not one of them."""
    waves = COSINES @ grey @ COSINES.T  # (n, KEPT + 1, KEPT + 1)
    waves = waves[:, :KEPT, 1:].reshape(len(grey), KEPT * KEPT)
    above = waves > np.median(waves, axis=1, keepdims=True)
    return np.packbits(above, axis=1).view(">u8")[:, 0].astype(np.uint64)


def looks(pictures: list[NDArray[np.uint8]]) -> tuple[Hashes, NDArray[np.uint8]]:
    """Hash and thumbnail (n, THUMB * THUMB * 3) of each picture (3, H, W)."""
    grey = np.empty((len(pictures), SIDE, SIDE), np.float32)
    thumbs = np.empty((len(pictures), THUMB * THUMB * 3), np.uint8)
    for row, picture in enumerate(pictures):
        small = Image.fromarray(np.ascontiguousarray(picture.transpose(1, 2, 0))).resize((SIDE, SIDE), Image.Resampling.BOX)
        grey[row] = np.asarray(small.convert("L"), np.float32)
        thumbs[row] = np.asarray(small.resize((THUMB, THUMB), Image.Resampling.BOX)).reshape(-1)
    return perceptual_hashes(grey), thumbs


def store_looks(store: PictureStore, say: Callable[[str], None]) -> tuple[Hashes, NDArray[np.uint8]]:
    """Of every picture of a store, decoded on all cores."""
    hashes, thumbs = np.empty(len(store), np.uint64), np.empty((len(store), THUMB * THUMB * 3), np.uint8)

    def chunk(first: int) -> None:
        rows = range(first, min(first + CHUNK, len(store)))
        hashes[rows.start : rows.stop], thumbs[rows.start : rows.stop] = looks([store.picture(row) for row in rows])

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
    known, group = np.unique(hashes, return_inverse=True)
    beside = _neighbours(known, most)
    crowded = np.bincount(group, minlength=len(known)) > 1
    crowded[list(beside)] = True
    owner, stays = np.arange(len(hashes)), dict[int, list[int]]()
    order = np.argsort(rank, kind="stable")
    for number in order[crowded[group[order]]].tolist():
        mine = int(group[number])
        others = [one for near in (mine, *beside.get(mine, ())) for one in stays.get(near, ())]
        fits = _colours_fit(thumbs[number], thumbs[others]) if others else np.zeros(0, bool)
        if fits.any():
            owner[number] = others[int(fits.argmax())]
        else:
            stays.setdefault(mine, []).append(number)
    return owner


def _neighbours(known: Hashes, most: int) -> dict[int, list[int]]:
    """Of each hash that has some, the numbers of the others at most so many bits away."""
    beside: dict[int, set[int]] = {}
    for one, two in _near(known, most) if most else ():
        for a, b in zip(one.tolist(), two.tolist(), strict=True):
            beside.setdefault(a, set()).add(b)
            beside.setdefault(b, set()).add(a)
    return {number: sorted(others) for number, others in beside.items()}


def _near(known: Hashes, most: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Pairs (numbers into `known`) of different hashes at most so many bits apart; a pair may come once for each band."""
    pairs, bounds = [], np.linspace(0, 64, most + 2).astype(int)
    for low, high in zip(bounds[:-1], bounds[1:], strict=True):
        band = (known >> np.uint64(low)) & np.uint64((1 << int(high - low)) - 1)
        order = np.argsort(band, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(band[order]) > 0, True])
        for begin, end in zip(starts[:-1], starts[1:], strict=True):
            rows = order[begin:end]
            for part in range(0, len(rows) - 1, ACROSS):
                ahead = rows[part : part + ACROSS]
                apart = np.bitwise_count(known[ahead][:, None] ^ known[rows[part:]][None, :])
                one, two = np.nonzero(np.triu(apart <= most, k=1))
                if len(one):
                    pairs.append((ahead[one], rows[part:][two]))
    return pairs


def _colours_fit(one: NDArray[np.uint8], others: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """(k,) which of the other thumbnails (k, d) are close on the whole and nowhere far away."""
    apart = np.abs(others.astype(np.int16) - one)
    fits: NDArray[np.bool_] = (apart.mean(1) < COLOURS) & (apart.max(1) < FARTHEST)
    return fits
