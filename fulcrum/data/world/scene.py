"""Scenes as data: who stands where, a pure function of (world version, split, index, most objects).

Legend: B scenes, 3 object slots (-1 in an absent slot), 9 places.
"""

from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.world import vocabulary as v
from fulcrum.data.world.domain import look
from fulcrum.spec.keyed import Keys, key, uniform

TOUCH = 0.36  # two centres a diagonal apart hold objects whose radii sum to less; side by side, to less than 0.25
SHIFT, STRETCH, TURN = 0.018, 0.03, 0.14  # jitter of a centre, of a radius (its share), of an angle
TAKES = 8  # photographs of a curated scene, of which the cleanest is kept

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

# A scene's description is hashed into one of 16 buckets, and each bucket belongs to one split: two splits cannot share
# a description. The frozen parts have their own split, so that no network judges pictures that it was trained on.
SPLITS = ("train", "validation", "reference", "curated", "assets")
_BUCKET_OWNER = np.array([0] * 10 + [1, 2, 3] + [4] * 3)
_EMPTY = len(v.PLACES) * len(v.SHAPES) * len(v.COLOURS) * len(v.TEXTURES) * len(v.SIZES)  # code of an absent object


@dataclass(frozen=True)
class Scenes:
    """B scenes as a struct of arrays. The words behind the integers are in vocabulary.py."""

    split: str
    index: Ints  # (B,)   number of the scene within its split
    key: Keys  # (B,)   seeds wording, light, grain and clutter
    count: Ints  # (B,)   1..3 objects
    shape: Ints  # (B, 3)
    colour: Ints  # (B, 3)
    texture: Ints  # (B, 3)
    size: Ints  # (B, 3)
    place: Ints  # (B, 3) distinct within a scene
    x: Floats  # (B, 3) centre, image side = 1, y down
    y: Floats  # (B, 3)
    radius: Floats  # (B, 3)
    angle: Floats  # (B, 3) radians, small: an upright square never becomes a diamond
    background: Ints  # (B,)   kind
    background_colour: Ints  # (B, 2) second is -1 for a plain background
    background_jitter: Floats  # (B, 2) in [0, 1]: level or phase, and slope

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: NDArray[np.integer[Any]] | slice) -> Self:
        """The chosen rows as scenes of their own."""
        arrays = {f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "split"}
        return replace(self, **arrays)

    def replaced(self, rows: NDArray[np.integer[Any]], other: Self) -> Self:
        """These scenes with others of the same split in the given rows."""
        arrays = {f.name: getattr(self, f.name).copy() for f in fields(self) if f.name != "split"}
        for name, values in arrays.items():
            values[rows] = getattr(other, name)
        return replace(self, **arrays)

    def signature(self) -> Keys:
        """(B,) hash of all that words can say of a scene, whatever the order of its objects."""
        return _signature(
            self.shape, self.colour, self.texture, self.size, self.place, self.background, self.background_colour
        )

    def grid(self) -> dict[str, Ints]:
        """What each of the 9 places holds: name -> (B, 9); present is 0 or 1, attributes are -1 where empty."""
        rows, slots = np.nonzero(self.place >= 0)
        cells = self.place[rows, slots]
        out = {"present": np.zeros((len(self), len(v.PLACES)), np.int64)}
        out["present"][rows, cells] = 1
        for name in ("shape", "colour", "texture", "size"):
            out[name] = np.full((len(self), len(v.PLACES)), -1, np.int64)
            out[name][rows, cells] = getattr(self, name)[rows, slots]
        return out


def _signature(shape: Ints, colour: Ints, texture: Ints, size: Ints, place: Ints, kind: Ints, colours: Ints) -> Keys:
    code = place
    for part, words in ((shape, v.SHAPES), (colour, v.COLOURS), (texture, v.TEXTURES), (size, v.SIZES)):
        code = code * len(words) + part
    code = np.sort(np.where(place >= 0, code, _EMPTY), axis=-1)  # (B, 3), order-free
    return key("description", code[:, 0], code[:, 1], code[:, 2], kind, colours[:, 0], colours[:, 1] + 1)


def _pick(u: NDArray[np.float64], words: tuple[Any, ...]) -> Ints:
    return (u * len(words)).astype(np.int64)


def _distinct_places(u: NDArray[np.float64]) -> Ints:
    """(B, 3) uniforms -> three distinct places each: draw among those left, step over those taken."""
    first, second, third = ((u[:, k] * (len(v.PLACES) - k)).astype(np.int64) for k in range(3))
    second = second + (second >= first)
    low, high = np.minimum(first, second), np.maximum(first, second)
    third = third + (third >= low)
    third = third + (third >= high)
    return np.stack([first, second, third], axis=1)  # (B, 3)


def _draw_description(keys: Keys, max_objects: int) -> dict[str, Ints]:
    u = uniform(keys, 19)  # (B, 19)
    count = 1 + (u[:, 0] * max_objects).astype(np.int64)
    kind, first = _pick(u[:, 1], v.BACKGROUNDS), _pick(u[:, 2], v.BACKGROUND_COLOURS)
    second = (u[:, 3] * (len(v.BACKGROUND_COLOURS) - 1)).astype(np.int64)
    second = np.where(kind == 0, -1, second + (second >= first))  # another colour than the first
    drawn = {
        "shape": _pick(u[:, 4:7], v.SHAPES),
        "colour": _pick(u[:, 7:10], v.COLOURS),
        "texture": _pick(u[:, 10:13], v.TEXTURES),
        "size": _pick(u[:, 13:16], v.SIZES),
        "place": _distinct_places(u[:, 16:19]),
    }
    absent = np.arange(v.MAX_OBJECTS) >= count[:, None]  # (B, 3)
    drawn = {name: np.where(absent, -1, value) for name, value in drawn.items()}
    return {**drawn, "count": count, "background": kind, "background_colour": np.stack([first, second], axis=1)}


def _owner(drawn: dict[str, Ints]) -> Ints:
    signature = _signature(
        *(drawn[n] for n in ("shape", "colour", "texture", "size", "place", "background", "background_colour"))
    )
    owner: Ints = _BUCKET_OWNER[(signature & np.uint64(15)).astype(np.int64)]
    return owner


def scenes(split: str, index: NDArray[np.integer[Any]], max_objects: int = 3) -> Scenes:
    """The scenes of these numbers: the same whatever else is asked for in the same call.

    A description that falls into another split's buckets, or is not good enough for the curated one, is drawn again, with
    the attempt as part of its key.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; found {split!r}")
    if not 1 <= max_objects <= v.MAX_OBJECTS:
        raise ValueError(f"max_objects must be 1 to {v.MAX_OBJECTS}; found {max_objects}")
    index = np.asarray(index)
    if index.ndim != 1 or (index.size and (index.dtype.kind not in "iu" or int(index.min()) < 0)):
        raise ValueError(f"index must be a 1-d array of integers >= 0; found {index.dtype} of shape {index.shape}")
    numbers: Ints = index.astype(np.int64)

    base = np.broadcast_to(key("world", v.WORLD_VERSION, split, max_objects, numbers), numbers.shape)
    chosen: dict[str, Ints] = {}
    pending, attempt = np.arange(len(numbers)), 0
    while True:
        # Several attempts at once while few scenes are left; the first that fits wins, so the block size is invisible.
        block = int(np.clip(2048 // max(len(pending), 1), 1, 32))
        attempts = np.arange(attempt, attempt + block)
        drawn = _draw_description(key(base[pending][:, None], attempts).reshape(-1), max_objects)
        fits = (_owner(drawn) == SPLITS.index(split)) & apart(drawn["place"], drawn["size"])
        if split == "curated":
            fits &= _worthy(drawn)
        fits = fits.reshape(len(pending), block)
        fitting = fits.any(axis=1)
        rows = np.flatnonzero(fitting) * block + fits[fitting].argmax(axis=1)
        for name, value in drawn.items():
            chosen.setdefault(name, np.empty((len(numbers), *value.shape[1:]), np.int64))[pending[fitting]] = value[rows]
        pending, attempt = pending[~fitting], attempt + block
        if not len(pending):
            break
    arrays: dict[str, Any] = {**chosen, **_place_objects(base, chosen)}
    looks = _cleanest(base) if split == "curated" else key(base, "look")
    return Scenes(split=split, index=numbers, key=looks, **arrays)


def apart(place: Ints, size: Ints) -> NDArray[np.bool_]:
    """(B,) from (B, n): no two objects touch. Side by side both are small; a diagonal apart not both large."""
    radius = np.array(v.RADII)[size]
    free = np.ones(len(place), np.bool_)
    for i, j in combinations(range(place.shape[1]), 2):
        across, down = (np.abs(part[:, i] - part[:, j]) for part in (place % 3, place // 3))
        beside = (np.maximum(across, down) == 1) & (place[:, i] >= 0) & (place[:, j] >= 0)
        room = np.where(across + down == 1, 0.25, TOUCH)
        free &= ~(beside & (radius[:, i] + radius[:, j] > room))
    return free


def _worthy(drawn: dict[str, Ints]) -> NDArray[np.bool_]:
    """(B,) what a curator keeps: one or two objects, none small, two of them well apart, no striped background."""
    small = ((drawn["size"] >= 0) & (drawn["size"] < 1)).any(axis=1)
    across, down = (np.abs(part[:, 0] - part[:, 1]) for part in (drawn["place"] % 3, drawn["place"] // 3))
    apart = (drawn["count"] == 1) | (np.maximum(across, down) == 2)  # a place lies free between them
    quiet = drawn["background"] != v.BACKGROUNDS.index("striped")
    worthy: NDArray[np.bool_] = (drawn["count"] <= 2) & ~small & apart & quiet
    return worthy


def _cleanest(base: Keys) -> Keys:
    """(B,) of several photographs of each scene the one with the least grain, blur, shade and dust."""
    takes = key(base[:, None], "look", np.arange(TAKES))  # (B, takes)
    seen = look(takes.reshape(-1))
    fault = (
        seen.grain / 0.05 + np.sqrt(seen.blur) / 0.009 + seen.vignette / 0.2 + seen.specks[:, :, 6].mean(axis=1) / 0.22
    ).reshape(takes.shape)  # each about one on average
    best: Keys = np.take_along_axis(takes, fault.argmin(axis=1)[:, None], axis=1)[:, 0]
    return best


def _place_objects(base: Keys, chosen: dict[str, Ints]) -> dict[str, Floats]:
    """The continuous part: jitter small enough that place, size and shape stay readable."""
    u = uniform(key(base, "jitter"), 14)  # (B, 14)
    wiggle = (2 * u - 1)[:, :12].reshape(-1, 4, v.MAX_OBJECTS)  # (B, 4, 3) in [-1, 1)
    centres, place, present = np.array(v.CENTRES), chosen["place"], chosen["place"] >= 0
    values = {
        "x": centres[place % 3] + SHIFT * wiggle[:, 0],
        "y": centres[place // 3 % 3] + SHIFT * wiggle[:, 1],
        "radius": np.array(v.RADII)[chosen["size"]] * (1 + STRETCH * wiggle[:, 2]),
        "angle": TURN * wiggle[:, 3],
    }
    floats = {name: np.where(present, value, 0.0).astype(np.float32) for name, value in values.items()}
    return {**floats, "background_jitter": u[:, 12:].astype(np.float32)}
