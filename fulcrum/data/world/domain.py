"""The real domain: light, clutter, blur, grain and colour cast over the clean drawing, keyed by the scene.

Legend: B scenes, S image side; canvas (B, 3, S, S) float32 in [0, 1], changed in place.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.spec.keyed import Keys, key, uniform

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
    windows = np.lib.stride_tricks.sliding_window_view(canvas, (reach, reach), axis=(2, 3), writeable=True)
    rows, steps = np.arange(len(canvas)), np.arange(reach, dtype=np.float32) + _F(0.5)
    for n in range(SPECKS):
        x, y, du, dv, thick, tone, opacity = looks.specks[:, n].T
        left, top = (np.clip(np.floor(c * side).astype(np.int64) - reach // 2, 0, side - reach) for c in (x, y))
        px = ((left[:, None] + steps) / _F(side) - x[:, None])[:, None, :].astype(np.float32)  # (B, 1, W)
        py = ((top[:, None] + steps) / _F(side) - y[:, None])[:, :, None].astype(np.float32)  # (B, W, 1)
        du, dv, thick = du[:, None, None], dv[:, None, None], thick[:, None, None]
        along = np.clip((px * du + py * dv) / (du * du + dv * dv + _F(1e-12)), _F(-1), _F(1))
        px, py = px - along * du, py - along * dv  # (B, W, W)
        cover = np.clip(_F(0.5) - (np.sqrt(px * px + py * py) - thick) * _F(side), _F(0), _F(1))
        cover = (cover * opacity[:, None, None])[:, None]  # (B, 1, W, W)
        below = windows[rows, :, top, left]  # (B, 3, W, W)
        windows[rows, :, top, left] = below + cover * (tone[:, None, None, None] - below)


def finish(canvas: Canvas, looks: Photograph) -> None:
    """What the camera does to the painted scene: lens blur, then light, cast and vignette, then grain."""
    side = canvas.shape[-1]
    _blur(canvas, looks.blur * _F(side * side))
    across = ((np.arange(side, dtype=np.float32) + _F(0.5)) / _F(side) - _F(0.5)) * _F(2)  # (S,) in (-1, 1)
    squared = across * across
    x_part = looks.light[:, :1] * across - _F(0.5) * looks.vignette[:, None] * squared  # (B, S)
    y_part = looks.light[:, 1:] * across - _F(0.5) * looks.vignette[:, None] * squared
    shade = _F(1.0) + x_part[:, None, :] + y_part[:, :, None]  # (B, S, S)
    canvas *= looks.cast[:, :, None, None]
    canvas *= shade[:, None]
    canvas += (_grain(looks.key, side) * looks.grain[:, None, None])[:, None]


def _blur(canvas: Canvas, variance: Canvas) -> None:
    """Blur by these variances (squared pixels): three-tap passes whose stride doubles while variance is left.

    A pass with weights w, 1-2w, w at stride d adds a variance of 2 w d^2; w <= 1/4 keeps each pass free of ringing.
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
    """Along the last axis: a sample moves towards its two neighbours at this stride; past the border it has none."""
    step = (canvas[..., stride:] - canvas[..., :-stride]) * w
    canvas[..., :-stride] += step
    canvas[..., stride:] -= step


def _grain(keys: Keys, side: int) -> Canvas:
    """(B,) -> (B, S, S) noise in (-1, 1), the sum of two uniforms: a 32-bit hash of (scene, pixel), 16 bits each."""
    pixel = np.arange(side * side, dtype=np.uint32) * np.uint32(0x9E3779B9)
    word = (keys >> np.uint64(32)).astype(np.uint32)[:, None] + pixel  # (B, S*S)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):  # "lowbias32", C. Wellons' hash prospector
        word ^= word >> np.uint32(shift)
        word *= np.uint32(factor)
    word ^= word >> np.uint32(16)
    total = (word & np.uint32(0xFFFF)) + (word >> np.uint32(16))
    return (total.astype(np.float32) * _F(2.0**-16) - _F(1)).reshape(len(keys), side, side)
