"""The geometry of the world's nouns: signed distances and textures, in an object's own coordinates.

Legend: M objects, W window side; u, v (M, W, W) in units of the object's radius, v down, already turned upright;
pixel (M, 1, 1) is the side of a pixel in the same units. Only + - * / sqrt, abs, min, max and floor are used: those are
exactly rounded everywhere, so that a picture's bytes do not depend on the machine, the batch or the thread.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.floating[Any]]  # float32 throughout; numpy's stubs lose it in mixed expressions
_F = np.float32


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
    return (np.abs(u) * _F(tall) + np.abs(v) * _F(half) - _F(half * tall)) * _F(1 / math.hypot(half, tall))


def _ring(u: Plane, v: Plane) -> Plane:
    return np.abs(np.sqrt(u * u + v * v) - _F(0.79)) - _F(0.27)


def _cross(u: Plane, v: Plane) -> Plane:
    a, b = np.abs(u), np.abs(v)
    return np.maximum(np.maximum(a, b) - _F(1.06), np.minimum(a, b) - _F(0.36))


def _star(u: Plane, v: Plane) -> Plane:
    """Five points: fold the plane into one tenth of the star, where its outline is a single straight edge."""
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


# In the order of vocabulary.SHAPES; each is roughly as heavy to the eye as the circle of the same radius.
DISTANCE: tuple[Callable[[Plane, Plane], Plane], ...] = (_circle, _square, _triangle, _diamond, _ring, _cross, _star)
REACH = 1.30  # no shape extends further from its centre than this many radii
RIM = 0.05  # width of the outline that textures leave free, in radii


def _wave(u: Plane, period: float) -> Plane:
    """Distance to the nearest edge of a square wave of this period: negative in the half that holds u = 0."""
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


# In the order of vocabulary.TEXTURES after "plain": share of the second tone in each pixel.
TEXTURE: tuple[Callable[[Plane, Plane, Plane], Plane], ...] = (_striped, _dotted, _checkered)


def coverage(distance: Plane, pixel: Plane) -> Plane:
    """Share of each pixel inside the shape: antialiasing over one pixel's width."""
    return _soft(distance, pixel)
