"""The embedded world: scenes as data, their shapes, and the pictures drawn from them."""

import math
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fulcrum.spec.keyed import Keys, key, uniform

# --------------------------------------------------------------------------------------------------
# The real domain: light, clutter, blur, grain and colour cast over the clean drawing, keyed by the
# scene.
#
# Legend: B scenes, S image side; canvas (B, 3, S, S) float32 in [0, 1], changed in place.


Canvas = NDArray[np.float32]
_F = np.float32
SPECKS = 7  # at most, per scene


class Photograph(NamedTuple):
    """How one photograph of a scene came out; all float32."""

    light: Canvas  # (B, 2) direction and strength of the light, x and y
    vignette: Canvas  # (B,)
    cast: Canvas  # (B, 3) gain per channel
    blur: Canvas  # (B,)   variance, in squared image sides
    grain: Canvas  # (B,)   amplitude
    specks: Canvas  # (B, 7, 7) x, y, half length x and y, thickness, tone, opacity
    key: Keys  # (B,)


def look(keys: Keys) -> Photograph:
    """The look of each scene, from its key alone."""
    u = uniform(key(keys, "light"), 8).astype(np.float32)
    w = uniform(key(keys, "clutter"), SPECKS * 7).astype(np.float32)
    w = w.reshape(-1, SPECKS, 7)
    line = (w[..., 6:] < 0.5).astype(np.float32)  # half are short lines, half are dots
    tone = np.where(w[..., 5:6] < 0.5, _F(0.16), _F(0.92))  # dust is dark or bright, never coloured
    specks = np.concatenate(
        [
            w[..., 0:2],
            (w[..., 2:4] - _F(0.5)) * _F(0.13) * line,
            _F(0.006) + _F(0.007) * w[..., 4:5],
            tone,
            _F(0.12) + _F(0.40) * np.abs(w[..., 6:] - _F(0.5)) * 2,
        ],
        axis=-1,
    )
    return Photograph(
        light=(u[:, 0:2] - _F(0.5)) * _F(0.50),
        vignette=_F(0.10) + _F(0.20) * u[:, 2],
        cast=_F(1.0) + (u[:, 3:6] - _F(0.5)) * _F(0.13),
        blur=(_F(0.005) + _F(0.008) * u[:, 6]) ** 2,
        grain=_F(0.03) + _F(0.04) * u[:, 7],
        specks=specks.astype(np.float32),
        key=key(keys, "grain"),
    )


def clutter(canvas: Canvas, looks: Photograph) -> None:
    """Faint dust and scratches on the background; objects are painted over them."""
    side = canvas.shape[-1]
    reach = int(np.ceil(0.085 * side)) * 2 + 3  # window that holds the longest scratch
    reach = min(reach, side)
    windows = np.lib.stride_tricks.sliding_window_view(
        canvas, (reach, reach), axis=(2, 3), writeable=True
    )
    rows, steps = np.arange(len(canvas)), np.arange(reach, dtype=np.float32) + _F(0.5)
    for n in range(SPECKS):
        x, y, du, dv, thick, tone, opacity = looks.specks[:, n].T
        left, top = (
            np.clip(np.floor(c * side).astype(np.int64) - reach // 2, 0, side - reach)
            for c in (x, y)
        )
        # (B, 1, W)
        px = ((left[:, None] + steps) / _F(side) - x[:, None])[:, None, :].astype(np.float32)
        # (B, W, 1)
        py = ((top[:, None] + steps) / _F(side) - y[:, None])[:, :, None].astype(np.float32)
        du, dv, thick = du[:, None, None], dv[:, None, None], thick[:, None, None]
        along = np.clip((px * du + py * dv) / (du * du + dv * dv + _F(1e-12)), _F(-1), _F(1))
        px, py = px - along * du, py - along * dv  # (B, W, W)
        cover = np.clip(_F(0.5) - (np.sqrt(px * px + py * py) - thick) * _F(side), _F(0), _F(1))
        cover = (cover * opacity[:, None, None])[:, None]  # (B, 1, W, W)
        below = windows[rows, :, top, left]  # (B, 3, W, W)
        windows[rows, :, top, left] = below + cover * (tone[:, None, None, None] - below)


def finish(canvas: Canvas, looks: Photograph) -> None:
    """What the camera does to the painted scene: lens blur, then light, cast and vignette, then
    grain."""
    side = canvas.shape[-1]
    _blur(canvas, looks.blur * _F(side * side))
    # (S,) in (-1, 1)
    across = ((np.arange(side, dtype=np.float32) + _F(0.5)) / _F(side) - _F(0.5)) * _F(2)
    squared = across * across
    x_part = looks.light[:, :1] * across - _F(0.5) * looks.vignette[:, None] * squared  # (B, S)
    y_part = looks.light[:, 1:] * across - _F(0.5) * looks.vignette[:, None] * squared
    shade = _F(1.0) + x_part[:, None, :] + y_part[:, :, None]  # (B, S, S)
    canvas *= looks.cast[:, :, None, None]
    canvas *= shade[:, None]
    canvas += (_grain(looks.key, side) * looks.grain[:, None, None])[:, None]


def _blur(canvas: Canvas, variance: Canvas) -> None:
    """Blur by these variances (squared pixels): three-tap passes whose stride doubles while
    variance is left.

    A pass with weights w, 1-2w, w at stride d adds a variance of 2 w d^2; w <= 1/4 keeps each pass
    free of ringing.
    """
    left, stride = variance, 1
    worst = (0.013 * canvas.shape[-1]) ** 2  # a bound for all scenes: the number of passes is fixed
    while worst > 0 and stride < canvas.shape[-1]:
        w = np.minimum(left / _F(2 * stride * stride), _F(0.25))
        left, worst = left - w * _F(2 * stride * stride), worst - stride * stride / 2
        _three_taps(canvas, w[:, None, None, None], stride)
        _three_taps(canvas.swapaxes(2, 3), w[:, None, None, None], stride)
        stride *= 2


def _three_taps(canvas: Canvas, w: Canvas, stride: int) -> None:
    """Along the last axis: a sample moves towards its two neighbours at this stride; past the
    border it has none."""
    step = (canvas[..., stride:] - canvas[..., :-stride]) * w
    canvas[..., :-stride] += step
    canvas[..., stride:] -= step


def _grain(keys: Keys, side: int) -> Canvas:
    """(B,) -> (B, S, S) noise in (-1, 1), the sum of two uniforms: a 32-bit hash of (scene, pixel),
    16 bits each."""
    pixel = np.arange(side * side, dtype=np.uint32) * np.uint32(0x9E3779B9)
    word = (keys >> np.uint64(32)).astype(np.uint32)[:, None] + pixel  # (B, S*S)
    # "lowbias32", C. Wellons' hash prospector
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        word ^= word >> np.uint32(shift)
        word *= np.uint32(factor)
    word ^= word >> np.uint32(16)
    total = (word & np.uint32(0xFFFF)) + (word >> np.uint32(16))
    return (total.astype(np.float32) * _F(2.0**-16) - _F(1)).reshape(len(keys), side, side)


# --------------------------------------------------------------------------------------------------
# The geometry of the world's nouns: signed distances and textures, in an object's own coordinates.
#
# Legend: M objects, W window side; u, v (M, W, W) in units of the object's radius, v down, already
# turned upright; pixel (M, 1, 1) is the side of a pixel in the same units. Only + - * / sqrt, abs,
# min, max and floor are used: those are exactly rounded everywhere, so that a picture's bytes do
# not depend on the machine, the batch or the thread.


Plane = NDArray[np.floating[Any]]  # float32 throughout; numpy's stubs lose it in mixed expressions


def _circle(u: Plane, v: Plane) -> Plane:
    return np.sqrt(u * u + v * v) - _F(1.0)


def _square(u: Plane, v: Plane) -> Plane:
    return np.maximum(np.abs(u), np.abs(v)) - _F(0.88)


def _triangle(u: Plane, v: Plane) -> Plane:
    """Equilateral, point up: the inner circle touches three half-planes."""
    low = v - _F(0.10)  # sits a little lower, to look centred
    outside: Plane = np.maximum(low, np.abs(u) * _F(math.sqrt(0.75)) - low * _F(0.5)) - _F(0.62)
    return outside


def _diamond(u: Plane, v: Plane) -> Plane:
    """A tall rhombus: unlike a square at any small angle."""
    half, tall = 0.80, 1.22
    return (np.abs(u) * _F(tall) + np.abs(v) * _F(half) - _F(half * tall)) * _F(
        1 / math.hypot(half, tall)
    )


def _ring(u: Plane, v: Plane) -> Plane:
    return np.abs(np.sqrt(u * u + v * v) - _F(0.79)) - _F(0.27)


def _cross(u: Plane, v: Plane) -> Plane:
    a, b = np.abs(u), np.abs(v)
    return np.maximum(np.maximum(a, b) - _F(1.06), np.minimum(a, b) - _F(0.36))


def _star(u: Plane, v: Plane) -> Plane:
    """Five points: fold the plane into one tenth of the star, where its outline is a single
    straight edge."""
    c, s = _F(math.cos(math.pi / 5)), _F(math.sin(math.pi / 5))
    a, b = np.abs(u), -v  # one point up
    fold = _F(2.0) * np.maximum(a * c - b * s, _F(0.0))
    a, b = a - fold * c, b + fold * s
    fold = _F(2.0) * np.maximum(-a * c - b * s, _F(0.0))
    a, b = np.abs(a + fold * c), b + fold * s
    tip, waist = 1.25, 0.56  # radii of the points and of the notches between them
    along, down = waist * math.sin(math.pi / 5), tip - waist * math.cos(math.pi / 5)
    edge = math.hypot(along, down)
    outside: Plane = a * _F(down / edge) + (b - _F(tip)) * _F(along / edge)
    return outside


# In the order of SHAPES; each is roughly as heavy to the eye as the circle of the same
# radius.
DISTANCE: tuple[Callable[[Plane, Plane], Plane], ...] = (
    _circle,
    _square,
    _triangle,
    _diamond,
    _ring,
    _cross,
    _star,
)
REACH = 1.30  # no shape extends further from its centre than this many radii
RIM = 0.05  # width of the outline that textures leave free, in radii


def _wave(u: Plane, period: float) -> Plane:
    """Distance to the nearest edge of a square wave of this period: negative in the half that holds
    u = 0."""
    turns = u * _F(1 / period)
    outside: Plane = (_F(0.25) - np.abs(turns - np.floor(turns) - _F(0.5))) * _F(period)
    return outside


def _soft(distance: Plane, pixel: Plane) -> Plane:
    """Share of a pixel that lies on the negative side of an edge at this distance."""
    return np.clip(_F(0.5) - distance / pixel, _F(0.0), _F(1.0))


def _striped(u: Plane, v: Plane, pixel: Plane) -> Plane:
    return _soft(-_wave(v, 0.80), pixel)  # a light stripe in the middle


def _dotted(u: Plane, v: Plane, pixel: Plane) -> Plane:
    period = _F(0.74)
    a, b = u / period, v / period
    a, b = (a - np.floor(a + _F(0.5))) * period, (b - np.floor(b + _F(0.5))) * period
    return _soft(np.sqrt(a * a + b * b) - _F(0.22), pixel)


def _checkered(u: Plane, v: Plane, pixel: Plane) -> Plane:
    a, b = _soft(_wave(u - _F(0.28), 1.12), pixel), _soft(_wave(v - _F(0.28), 1.12), pixel)
    return a + b - _F(2.0) * a * b


# In the order of TEXTURES after "plain": share of the second tone in each pixel.
TEXTURE: tuple[Callable[[Plane, Plane, Plane], Plane], ...] = (_striped, _dotted, _checkered)


def coverage(distance: Plane, pixel: Plane) -> Plane:
    """Share of each pixel inside the shape: antialiasing over one pixel's width."""
    return _soft(distance, pixel)


# --------------------------------------------------------------------------------------------------
# The closed world's nouns and adjectives, with the numbers that give each of them a look.


WORLD_VERSION = 2  # part of every key: raise it when any scene, picture or caption changes
MAX_OBJECTS = 3

SHAPES = ("circle", "square", "triangle", "diamond", "ring", "cross", "star")
COLOURS = ("red", "orange", "yellow", "green", "cyan", "blue", "purple", "pink")
TEXTURES = ("plain", "striped", "dotted", "checkered")
SIZES = ("small", "medium", "large")
PLACES = (
    "top left",
    "top",
    "top right",
    "left",
    "centre",
    "right",
    "bottom left",
    "bottom",
    "bottom right",
)
BACKGROUNDS = ("plain", "gradient", "horizon", "striped")
BACKGROUND_COLOURS = ("white", "cream", "sand", "grey", "sage", "mauve", "slate", "charcoal")

# Saturated, and at least 75 (Euclidean, of 255) from each other and from every background colour.
COLOUR_RGB = (
    (222, 38, 42),
    (246, 134, 24),
    (250, 214, 40),
    (44, 164, 68),
    (54, 202, 222),
    (40, 82, 214),
    (126, 50, 178),
    (246, 118, 190),
)
BACKGROUND_RGB = (
    (246, 246, 244),
    (240, 230, 206),
    (208, 190, 158),
    (166, 167, 170),
    (160, 176, 152),
    (178, 156, 170),
    (98, 112, 130),
    (54, 56, 64),
)

# Image side = 1, y points down. Each size is a third wider than the last: 3.8, 5.0 and 6.4 pixels
# of radius at 32 px.
RADII = (0.120, 0.155, 0.200)
# Columns, and rows, of the 3 x 3 places. A quarter apart, so that a model's tokens (8 px wide) lie
# to an object alike at every place: a shape need not be learned nine times over.
CENTRES = (0.25, 0.50, 0.75)

TOKEN = re.compile(r"[a-z]+|[.,;]")


def tokenize(text: str) -> list[str]:
    """Words and marks of a text; anything else separates them."""
    return TOKEN.findall(text.lower())


# --------------------------------------------------------------------------------------------------
# Scenes as data: who stands where, a pure function of (world version, split, index, most objects).
#
# Legend: B scenes, 3 object slots (-1 in an absent slot), 9 places.


# two centres a diagonal apart hold objects whose radii sum to less; side by side, to less than 0.25
TOUCH = 0.36
SHIFT, STRETCH, TURN = 0.018, 0.03, 0.14  # jitter of a centre, of a radius (its share), of an angle
TAKES = 8  # photographs of a curated scene, of which the cleanest is kept

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

# A scene's description is hashed into one of 16 buckets, and each bucket belongs to one split: two
# splits cannot share a description. The frozen parts have their own split, so that no network
# judges pictures that it was trained on.
SPLITS = ("train", "validation", "reference", "curated", "assets")
_BUCKET_OWNER = np.array([0] * 10 + [1, 2, 3] + [4] * 3)
# code of an absent object
_EMPTY = len(PLACES) * len(SHAPES) * len(COLOURS) * len(TEXTURES) * len(SIZES)


@dataclass(frozen=True)
class Scenes:
    """B scenes as a struct of arrays. The integers index the words above."""

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
            self.shape,
            self.colour,
            self.texture,
            self.size,
            self.place,
            self.background,
            self.background_colour,
        )

    def grid(self) -> dict[str, Ints]:
        """What each of the 9 places holds: name -> (B, 9); present is 0 or 1, attributes are -1
        where empty."""
        rows, slots = np.nonzero(self.place >= 0)
        cells = self.place[rows, slots]
        out = {"present": np.zeros((len(self), len(PLACES)), np.int64)}
        out["present"][rows, cells] = 1
        for name in ("shape", "colour", "texture", "size"):
            out[name] = np.full((len(self), len(PLACES)), -1, np.int64)
            out[name][rows, cells] = getattr(self, name)[rows, slots]
        return out


def _signature(
    shape: Ints, colour: Ints, texture: Ints, size: Ints, place: Ints, kind: Ints, colours: Ints
) -> Keys:
    code = place
    for part, words in ((shape, SHAPES), (colour, COLOURS), (texture, TEXTURES), (size, SIZES)):
        code = code * len(words) + part
    code = np.sort(np.where(place >= 0, code, _EMPTY), axis=-1)  # (B, 3), order-free
    return key(
        "description", code[:, 0], code[:, 1], code[:, 2], kind, colours[:, 0], colours[:, 1] + 1
    )


def _pick(u: NDArray[np.float64], words: tuple[Any, ...]) -> Ints:
    return (u * len(words)).astype(np.int64)


def _distinct_places(u: NDArray[np.float64]) -> Ints:
    """(B, 3) uniforms -> three distinct places each: draw among those left, step over those
    taken."""
    first, second, third = ((u[:, k] * (len(PLACES) - k)).astype(np.int64) for k in range(3))
    second = second + (second >= first)
    low, high = np.minimum(first, second), np.maximum(first, second)
    third = third + (third >= low)
    third = third + (third >= high)
    return np.stack([first, second, third], axis=1)  # (B, 3)


def _draw_description(keys: Keys, max_objects: int) -> dict[str, Ints]:
    u = uniform(keys, 19)  # (B, 19)
    count = 1 + (u[:, 0] * max_objects).astype(np.int64)
    kind, first = _pick(u[:, 1], BACKGROUNDS), _pick(u[:, 2], BACKGROUND_COLOURS)
    second = (u[:, 3] * (len(BACKGROUND_COLOURS) - 1)).astype(np.int64)
    second = np.where(kind == 0, -1, second + (second >= first))  # another colour than the first
    drawn = {
        "shape": _pick(u[:, 4:7], SHAPES),
        "colour": _pick(u[:, 7:10], COLOURS),
        "texture": _pick(u[:, 10:13], TEXTURES),
        "size": _pick(u[:, 13:16], SIZES),
        "place": _distinct_places(u[:, 16:19]),
    }
    absent = np.arange(MAX_OBJECTS) >= count[:, None]  # (B, 3)
    drawn = {name: np.where(absent, -1, value) for name, value in drawn.items()}
    return {
        **drawn,
        "count": count,
        "background": kind,
        "background_colour": np.stack([first, second], axis=1),
    }


def _owner(drawn: dict[str, Ints]) -> Ints:
    signature = _signature(
        *(
            drawn[n]
            for n in (
                "shape",
                "colour",
                "texture",
                "size",
                "place",
                "background",
                "background_colour",
            )
        )
    )
    owner: Ints = _BUCKET_OWNER[(signature & np.uint64(15)).astype(np.int64)]
    return owner


def scenes(split: str, index: NDArray[np.integer[Any]], max_objects: int = 3) -> Scenes:
    """The scenes of these numbers: the same whatever else is asked for in the same call.

    A description that falls into another split's buckets, or is not good enough for the curated
    one, is drawn again, with the attempt as part of its key.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}; found {split!r}")
    if not 1 <= max_objects <= MAX_OBJECTS:
        raise ValueError(f"max_objects must be 1 to {MAX_OBJECTS}; found {max_objects}")
    index = np.asarray(index)
    if index.ndim != 1 or (index.size and (index.dtype.kind not in "iu" or int(index.min()) < 0)):
        raise ValueError(
            f"index must be a 1-d array of integers >= 0; found {index.dtype} of shape"
            f" {index.shape}"
        )
    numbers: Ints = index.astype(np.int64)

    base = np.broadcast_to(key("world", WORLD_VERSION, split, max_objects, numbers), numbers.shape)
    chosen: dict[str, Ints] = {}
    pending, attempt = np.arange(len(numbers)), 0
    while True:
        # Several attempts at once while few scenes are left; the first that fits wins, so the block
        # size is invisible.
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
            chosen.setdefault(name, np.empty((len(numbers), *value.shape[1:]), np.int64))[
                pending[fitting]
            ] = value[rows]
        pending, attempt = pending[~fitting], attempt + block
        if not len(pending):
            break
    arrays: dict[str, Any] = {**chosen, **_place_objects(base, chosen)}
    looks = _cleanest(base) if split == "curated" else key(base, "look")
    return Scenes(split=split, index=numbers, key=looks, **arrays)


def apart(place: Ints, size: Ints) -> NDArray[np.bool_]:
    """(B,) from (B, n): no two objects touch. Side by side both are small; a diagonal apart not
    both large."""
    radius = np.array(RADII)[size]
    free = np.ones(len(place), np.bool_)
    for i, j in combinations(range(place.shape[1]), 2):
        across, down = (np.abs(part[:, i] - part[:, j]) for part in (place % 3, place // 3))
        beside = (np.maximum(across, down) == 1) & (place[:, i] >= 0) & (place[:, j] >= 0)
        room = np.where(across + down == 1, 0.25, TOUCH)
        free &= ~(beside & (radius[:, i] + radius[:, j] > room))
    return free


def _worthy(drawn: dict[str, Ints]) -> NDArray[np.bool_]:
    """(B,) what a curator keeps: one or two objects, none small, two of them well apart, no striped
    background."""
    small = ((drawn["size"] >= 0) & (drawn["size"] < 1)).any(axis=1)
    across, down = (
        np.abs(part[:, 0] - part[:, 1]) for part in (drawn["place"] % 3, drawn["place"] // 3)
    )
    # a place lies free between them
    apart = (drawn["count"] == 1) | (np.maximum(across, down) == 2)
    quiet = drawn["background"] != BACKGROUNDS.index("striped")
    worthy: NDArray[np.bool_] = (drawn["count"] <= 2) & ~small & apart & quiet
    return worthy


def _cleanest(base: Keys) -> Keys:
    """(B,) of several photographs of each scene the one with the least grain, blur, shade and
    dust."""
    takes = key(base[:, None], "look", np.arange(TAKES))  # (B, takes)
    seen = look(takes.reshape(-1))
    fault = (
        seen.grain / 0.05
        + np.sqrt(seen.blur) / 0.009
        + seen.vignette / 0.2
        + seen.specks[:, :, 6].mean(axis=1) / 0.22
    ).reshape(takes.shape)  # each about one on average
    best: Keys = np.take_along_axis(takes, fault.argmin(axis=1)[:, None], axis=1)[:, 0]
    return best


def _place_objects(base: Keys, chosen: dict[str, Ints]) -> dict[str, Floats]:
    """The continuous part: jitter small enough that place, size and shape stay readable."""
    u = uniform(key(base, "jitter"), 14)  # (B, 14)
    wiggle = (2 * u - 1)[:, :12].reshape(-1, 4, MAX_OBJECTS)  # (B, 4, 3) in [-1, 1)
    centres, place, present = np.array(CENTRES), chosen["place"], chosen["place"] >= 0
    values = {
        "x": centres[place % 3] + SHIFT * wiggle[:, 0],
        "y": centres[place // 3 % 3] + SHIFT * wiggle[:, 1],
        "radius": np.array(RADII)[chosen["size"]] * (1 + STRETCH * wiggle[:, 2]),
        "angle": TURN * wiggle[:, 3],
    }
    floats = {
        name: np.where(present, value, 0.0).astype(np.float32) for name, value in values.items()
    }
    return {**floats, "background_jitter": u[:, 12:].astype(np.float32)}


# --------------------------------------------------------------------------------------------------
# Pictures of scenes: analytic antialiasing at any resolution, the same bytes for any chunking or
# thread count.
#
# Legend: B scenes, S image side, M objects, W side of the window that holds an object; image side =
# 1, y down.


DOMAINS = ("synthetic", "real")
SMALLEST = 8  # below this a place is less than three pixels wide
_CHUNK_PIXELS = 2**16  # 64 images of 32 px: the canvas stays in the second-level cache
SHADOW_REACH = 1.60  # in radii

_BACKGROUND = np.array(BACKGROUND_RGB, np.float32) / _F(255)
_TONE = np.array(COLOUR_RGB, np.float32) / _F(255)
_DARK = _TONE * _F(0.40)  # second tone of stripes and checks
_LIGHT = _F(1) - (_F(1) - _TONE) * _F(0.16)  # second tone of dots
_SECOND = np.stack([_TONE, _DARK, _LIGHT, _DARK])  # (texture, colour, 3)


def render(
    scenes: Scenes, size: int, domain: str = "synthetic", threads: int = 1
) -> NDArray[np.uint8]:
    """Draw the scenes at size x size pixels: (B, 3, S, S), red green blue."""
    if domain not in DOMAINS:
        raise ValueError(f"domain must be one of {', '.join(DOMAINS)}; found {domain!r}")
    if size < SMALLEST:
        raise ValueError(f"size must be at least {SMALLEST} pixels; found {size}")
    images = np.empty((len(scenes), 3, size, size), np.uint8)
    chunk = max(1, _CHUNK_PIXELS // (size * size))
    parts = [slice(start, start + chunk) for start in range(0, len(scenes), chunk)]

    def draw(part: slice) -> None:
        images[part] = _draw(scenes.take(part), size, domain)

    if threads > 1 and len(parts) > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(draw, parts))
    else:
        for part in parts:
            draw(part)
    return images


def _draw(scenes: Scenes, size: int, domain: str) -> NDArray[np.uint8]:
    canvas = _paint_background(scenes, size)
    if domain == "real":
        looks = look(scenes.key)
        clutter(canvas, looks)
        _paint_objects(canvas, scenes, looks.light)
        finish(canvas, looks)
    else:
        _paint_objects(canvas, scenes, None)
    canvas *= _F(255)
    canvas += _F(0.5)
    return np.clip(canvas, _F(0), _F(255.5), out=canvas).astype(np.uint8)


def _paint_background(scenes: Scenes, size: int) -> Canvas:
    """A field in [0, 1] per scene, then the mix of its two colours: (B, 3, S, S)."""
    across = (np.arange(size, dtype=np.float32) + _F(0.5)) / _F(size)  # (S,)
    level, slope = scenes.background_jitter.T
    first, second = (_BACKGROUND[scenes.background_colour[:, k]] for k in (0, 1))  # (B, 3)
    canvas = np.empty((len(scenes), 3, size, size), np.float32)
    for kind, name in enumerate(BACKGROUNDS):
        rows = np.flatnonzero(scenes.background == kind)
        if not len(rows):
            continue
        if name == "plain":
            canvas[rows] = first[rows, :, None, None]
            continue
        tilt = (slope[rows, None] - _F(0.5)) * (across - _F(0.5))  # (M, S): varies along x
        if name == "gradient":
            field = across[:, None] + (tilt * _F(0.4))[:, None, :]
        elif name == "horizon":
            height = (_F(0.40) + _F(0.25) * level[rows])[:, None] + tilt * _F(0.2)
            field = (across[:, None] - height[:, None, :]) * _F(size) + _F(0.5)
        else:
            period = (_F(0.25) + _F(0.10) * slope[rows])[:, None]
            turns = across / period + level[rows, None]  # (M, S)
            edge = (_F(0.25) - np.abs(turns - np.floor(turns) - _F(0.5))) * period
            field = np.broadcast_to(
                (edge * _F(size) + _F(0.5))[:, None, :], (len(rows), size, size)
            )
        share = np.clip(field, _F(0), _F(1))[:, None]  # (M, 1, S, S)
        base = first[rows, :, None, None]
        canvas[rows] = base + share * (second[rows, :, None, None] - base)
    return canvas


def _paint_objects(canvas: Canvas, scenes: Scenes, light: Canvas | None) -> None:
    """Paint the objects over the canvas in slot order; with a light they are shaded and cast a soft
    shadow."""
    side = canvas.shape[-1]
    reach = REACH if light is None else SHADOW_REACH
    window = min(side, int(np.ceil(2 * reach * 1.04 * RADII[-1] * side)) + 2)
    slots, rows = np.nonzero(scenes.shape.T >= 0)  # (M,) each, slot by slot
    shape, texture, colour = (a[rows, slots] for a in (scenes.shape, scenes.texture, scenes.colour))
    x, y, radius, angle = (
        a[rows, slots] for a in (scenes.x, scenes.y, scenes.radius, scenes.angle)
    )
    left, top = (
        np.clip(np.floor(c * side).astype(np.int64) - window // 2, 0, side - window) for c in (x, y)
    )

    # Taylor series instead of library sine and cosine, whose last bit differs between machines;
    # |angle| <= 0.2.
    square = angle * angle
    cosine = (_F(1) - square * (_F(0.5) - square * _F(1 / 24))) / radius
    sine = angle * (_F(1) - square * (_F(1 / 6) - square * _F(1 / 120))) / radius
    steps = np.arange(window, dtype=np.float32) + _F(0.5)
    px = (left.astype(np.float32)[:, None] + steps) / _F(side) - x[:, None]  # (M, W)
    py = (top.astype(np.float32)[:, None] + steps) / _F(side) - y[:, None]
    u = (cosine[:, None] * px)[:, None, :] + (sine[:, None] * py)[:, :, None]  # (M, W, W), in radii
    v_ = (cosine[:, None] * py)[:, :, None] - (sine[:, None] * px)[:, None, :]
    pixel = (_F(1) / (radius * _F(side)))[:, None, None]  # (M, 1, 1)

    distance, second = np.empty_like(u), np.zeros_like(u)
    for kind, measure in enumerate(DISTANCE):
        rows_of_kind = np.flatnonzero(shape == kind)
        distance[rows_of_kind] = measure(u[rows_of_kind], v_[rows_of_kind])
    for kind, pattern in enumerate(TEXTURE, start=1):
        rows_of_kind = np.flatnonzero(texture == kind)
        second[rows_of_kind] = pattern(u[rows_of_kind], v_[rows_of_kind], pixel[rows_of_kind])
    second *= coverage(distance + _F(RIM), pixel)  # an unbroken outline
    alpha = coverage(distance, pixel)

    base = _TONE[colour][:, :, None, None]  # (M, 3, 1, 1)
    # (M, 3, W, W)
    paint = base + second[:, None] * (_SECOND[texture, colour][:, :, None, None] - base)
    shadow = None
    if light is not None:
        toward = light[rows]  # (M, 2)
        facing = toward[:, :1, None] * u + toward[:, 1:, None] * v_
        paint *= (_F(1) + _F(0.9) * facing)[:, None]
        fade = _F(SHADOW_REACH**2) - u * u - v_ * v_  # gone before the window ends
        # longer away from the light
        shadow = np.minimum(_F(0.30) - distance - facing, fade * _F(0.5))
        shadow = np.clip(shadow, _F(0), _F(0.30))

    windows = np.lib.stride_tricks.sliding_window_view(
        canvas, (window, window), axis=(2, 3), writeable=True
    )
    for slot in range(scenes.shape.shape[1]):
        those = slice(*np.searchsorted(slots, (slot, slot + 1)))
        at = (rows[those], slice(None), top[those], left[those])
        below = windows[at]  # (M', 3, W, W)
        if shadow is not None:
            below *= (_F(1) - shadow[those])[:, None]
        windows[at] = below + alpha[those][:, None] * (paint[those] - below)
