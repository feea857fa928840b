"""Patterns that the world does not have, as signed distances on a grid: zigzags, bricks, rays,
spirals and the like.

The world's stripes, square lattice of dots and checks are not among them.

P patterns, G grid points along a side; a pattern's plane spans [-SPAN, SPAN], one unit is the
radius of what it covers
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

GRID, SPAN = 96, 2.6

Plane = NDArray[np.float64]
Pattern = Callable[[Plane, Plane], Plane]


def _fold(u: Plane, period: float) -> Plane:
    """Distance from the nearest multiple of the period."""
    return np.abs(u - period * np.round(u / period))


def _line(u: Plane, period: float, width: float) -> Plane:
    return _fold(u, period) - width / 2


def _both(*parts: Plane) -> Plane:
    return np.asarray(np.maximum.reduce(parts))


def _either(*parts: Plane) -> Plane:
    return np.asarray(np.minimum.reduce(parts))


def _brick(u: Plane, v: Plane, wide: float, tall: float) -> tuple[Plane, Plane]:
    """Place within a brick: every second row is shifted by half."""
    row = np.floor(v / tall)
    shifted = u + wide / 2 * (row % 2)
    return shifted - wide * np.round(shifted / wide), v - (row + 0.5) * tall


def _blotches(seed: int, wave: float) -> Pattern:
    random = np.random.default_rng(seed)
    turn, phase = random.uniform(0, 2 * math.pi, 7), random.uniform(0, 2 * math.pi, 7)

    def pattern(u: Plane, v: Plane) -> Plane:
        k = 2 * math.pi / wave
        total = sum(
            np.cos(k * (u * math.cos(a) + v * math.sin(a)) + b)
            for a, b in zip(turn, phase, strict=True)
        )
        return np.asarray(total) * wave / 16

    return pattern


def _angle(u: Plane, v: Plane) -> Plane:
    return np.arctan2(v, u)


PATTERNS: dict[str, Pattern] = {
    "rings": lambda u, v: _line(np.hypot(u, v), 0.7, 0.35),
    "bullseye": lambda u, v: np.hypot(u, v) - 0.5,
    "one ring": lambda u, v: np.abs(np.hypot(u, v) - 0.6) - 0.15,
    "half": lambda u, v: u,
    "upper half": lambda u, v: v,
    "slanted half": lambda u, v: (u + v) * 0.7,
    "band": lambda u, v: np.abs(v) - 0.25,
    "belt": lambda u, v: np.abs(u) - 0.25,
    "sash": lambda u, v: np.abs(u - v) * 0.7 - 0.25,
    "quarters": lambda u, v: -np.sign(u * v) * _either(np.abs(u), np.abs(v)),
    "turned quarters": lambda u, v: (
        -np.sign(u * u - v * v) * _either(np.abs(u - v), np.abs(u + v)) * 0.7
    ),
    "rays": lambda u, v: np.hypot(u, v) * np.sin(6 * _angle(u, v)) / 6,
    "sectors": lambda u, v: np.hypot(u, v) * np.sin(3 * _angle(u, v)) / 3,
    "spiral": lambda u, v: _line(np.hypot(u, v) - 0.8 * _angle(u, v) / (2 * math.pi), 0.8, 0.4),
    "zigzag": lambda u, v: _line(v + _fold(u, 0.8), 0.8, 0.4) * 0.7,
    "upright zigzag": lambda u, v: _line(u + _fold(v, 0.8), 0.8, 0.4) * 0.7,
    "waves": lambda u, v: _line(v + 0.22 * np.sin(5.2 * u), 0.9, 0.4) * 0.7,
    "net": lambda u, v: _either(_line(u, 0.8, 0.24), _line(v, 0.8, 0.24)),
    "slanted net": lambda u, v: _either(
        _line((u + v) * 0.7, 0.75, 0.22), _line((u - v) * 0.7, 0.75, 0.22)
    ),
    "bricks": lambda u, v: (
        -_both(*(np.abs(a) - b for a, b in zip(_brick(u, v, 1.1, 0.55), (0.45, 0.18), strict=True)))
    ),
    "dashes": lambda u, v: _both(
        *(np.abs(a) - b for a, b in zip(_brick(u, v, 1.0, 0.5), (0.3, 0.12), strict=True))
    ),
    "scales": lambda u, v: np.abs(np.hypot(*_brick(u, v, 0.9, 0.6)) - 0.4) - 0.09,
    "crosses": lambda u, v: _both(
        _either(_fold(u, 1.0), _fold(v, 1.0)) - 0.11,
        np.maximum(_fold(u, 1.0), _fold(v, 1.0)) - 0.33,
    ),
    "small diamonds": lambda u, v: (_fold(u, 0.9) + 0.6 * _fold(v, 1.4) - 0.3) * 0.8,
    "triangles": lambda u, v: _both(
        _fold(u, 0.9) * 0.87 + (v - 0.8 * np.round(v / 0.8)) * 0.5 - 0.2, _fold(v, 0.8) - 0.3
    ),
    "plaid": lambda u, v: _both(_line(u, 1.3, 0.8), _line(v, 1.3, 0.8)),
    "small spot": lambda u, v: np.hypot(u - 0.35, v + 0.3) - 0.3,
    "rim": lambda u, v: 0.72 - np.hypot(u, v),
    "coarse blotches": _blotches(3, 1.6),
    "fine blotches": _blotches(4, 0.9),
}


def patterns() -> tuple[list[str], NDArray[np.float32]]:
    """Names and signed distances (P, G, G), in radii: negative where the second tone is."""
    across = (np.arange(GRID) + 0.5) / GRID * 2 * SPAN - SPAN
    u, v = np.meshgrid(across, across)
    return list(PATTERNS), np.stack([pattern(u, v) for pattern in PATTERNS.values()]).astype(
        np.float32
    )
