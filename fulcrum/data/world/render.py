"""Pictures of scenes: analytic antialiasing at any resolution, the same bytes for any chunking or thread count.

Legend: B scenes, S image side, M objects, W side of the window that holds an object; image side = 1, y down.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.world import vocabulary as v
from fulcrum.data.world.domain import Canvas, clutter, finish, look
from fulcrum.data.world.scene import Scenes
from fulcrum.data.world.shape import DISTANCE, REACH, RIM, TEXTURE, coverage

DOMAINS = ("synthetic", "real")
SMALLEST = 8  # below this a place is less than three pixels wide
_CHUNK_PIXELS = 2**16  # 64 images of 32 px: the canvas stays in the second-level cache
SHADOW_REACH = 1.60  # in radii
_F = np.float32

_BACKGROUND = np.array(v.BACKGROUND_RGB, np.float32) / _F(255)
_TONE = np.array(v.COLOUR_RGB, np.float32) / _F(255)
_DARK = _TONE * _F(0.40)  # second tone of stripes and checks
_LIGHT = _F(1) - (_F(1) - _TONE) * _F(0.16)  # second tone of dots
_SECOND = np.stack([_TONE, _DARK, _LIGHT, _DARK])  # (texture, colour, 3)


def render(scenes: Scenes, size: int, domain: str = "synthetic", threads: int = 1) -> NDArray[np.uint8]:
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
    for kind, name in enumerate(v.BACKGROUNDS):
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
            field = np.broadcast_to((edge * _F(size) + _F(0.5))[:, None, :], (len(rows), size, size))
        share = np.clip(field, _F(0), _F(1))[:, None]  # (M, 1, S, S)
        base = first[rows, :, None, None]
        canvas[rows] = base + share * (second[rows, :, None, None] - base)
    return canvas


def _paint_objects(canvas: Canvas, scenes: Scenes, light: Canvas | None) -> None:
    """Paint the objects over the canvas in slot order; with a light they are shaded and cast a soft shadow."""
    side = canvas.shape[-1]
    reach = REACH if light is None else SHADOW_REACH
    window = min(side, int(np.ceil(2 * reach * 1.04 * v.RADII[-1] * side)) + 2)
    slots, rows = np.nonzero(scenes.shape.T >= 0)  # (M,) each, slot by slot
    shape, texture, colour = (a[rows, slots] for a in (scenes.shape, scenes.texture, scenes.colour))
    x, y, radius, angle = (a[rows, slots] for a in (scenes.x, scenes.y, scenes.radius, scenes.angle))
    left, top = (np.clip(np.floor(c * side).astype(np.int64) - window // 2, 0, side - window) for c in (x, y))

    # Taylor series instead of library sine and cosine, whose last bit differs between machines; |angle| <= 0.2.
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
    paint = base + second[:, None] * (_SECOND[texture, colour][:, :, None, None] - base)  # (M, 3, W, W)
    shadow = None
    if light is not None:
        toward = light[rows]  # (M, 2)
        facing = toward[:, :1, None] * u + toward[:, 1:, None] * v_
        paint *= (_F(1) + _F(0.9) * facing)[:, None]
        fade = _F(SHADOW_REACH**2) - u * u - v_ * v_  # gone before the window ends
        shadow = np.minimum(_F(0.30) - distance - facing, fade * _F(0.5))  # longer away from the light
        shadow = np.clip(shadow, _F(0), _F(0.30))

    windows = np.lib.stride_tricks.sliding_window_view(canvas, (window, window), axis=(2, 3), writeable=True)
    for slot in range(scenes.shape.shape[1]):
        those = slice(*np.searchsorted(slots, (slot, slot + 1)))
        at = (rows[those], slice(None), top[those], left[those])
        below = windows[at]  # (M', 3, W, W)
        if shadow is not None:
            below *= (_F(1) - shadow[those])[:, None]
        windows[at] = below + alpha[those][:, None] * (paint[those] - below)
