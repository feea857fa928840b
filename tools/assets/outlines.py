"""Outlines that the world does not have, as signed distances on a grid: what the default teacher
learns to see by.

Letters, tools, polygons and random blobs.  None is one of the world's seven shapes (a test holds
them against each other).

K outlines, G grid points along a side; an outline's own plane spans [-SPAN, SPAN], y down, one unit
is its radius
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

GRID, SPAN = 72, 1.9
REACH = 1.25  # the farthest point of an outline, in radii
# and the largest area: an outline is as heavy to the eye as a disc of radius 0.9
AREA = 0.80 * math.pi
RANDOM = 20  # outlines of each random family
# random ones that one of the world's shapes covers
TOO_NEAR = ("blob 0", "blob 4", "blob 7", "polygon 3", "polygon 18")

Plane = NDArray[np.float64]
Ring = NDArray[np.float64]  # (n, 2) corners
Measure = Callable[[Plane], Plane]  # points (n, 2) to signed distances (n,)


def _polar(*waves: tuple[int, float, float], corners: int = 64) -> list[Ring]:
    """r = 1 + sum of a cos(k angle + phase), clipped from below."""
    turn = np.linspace(0, 2 * math.pi, corners, endpoint=False)
    r = np.maximum(1 + sum(a * np.cos(k * turn + phase) for k, a, phase in waves), 0.12)
    return [np.stack([r * np.cos(turn), r * np.sin(turn)], 1)]


def _points(text: str) -> Ring:
    """'0,-1 1,1 -1,1' as corners."""
    return np.array([[float(number) for number in pair.split(",")] for pair in text.split()])


def _arc(
    radius: float, first: float, last: float, x: float = 0.0, y: float = 0.0, corners: int = 20
) -> Ring:
    """Points of a circle between two angles in degrees (0 right, 90 down)."""
    turn = np.radians(np.linspace(first, last, corners))
    return np.stack([x + radius * np.cos(turn), y + radius * np.sin(turn)], 1)


def _spikes(count: int, inner: float, first: float = -90.0) -> list[Ring]:
    """A star with this many points."""
    turn = np.radians(first + np.arange(2 * count) * 180 / count)
    r = np.where(np.arange(2 * count) % 2 == 0, 1.0, inner)
    return [np.stack([r * np.cos(turn), r * np.sin(turn)], 1)]


def _gear(teeth: int, depth: float, hole: float = 0.0) -> list[Ring]:
    turn = np.linspace(0, 2 * math.pi, 16 * teeth, endpoint=False)
    r = np.where(np.floor(turn * teeth / math.pi) % 2 == 0, 1.0, 1 - depth)
    rings = [np.stack([r * np.cos(turn), r * np.sin(turn)], 1)]
    return [*rings, _arc(hole, 0, 360)] if hole else rings


def _polygons() -> dict[str, list[Ring]]:
    """Named outlines as rings of corners; a second ring is a hole."""
    join = np.concatenate
    return {
        "oval": [_arc(1, 0, 360) * (1.0, 0.5)],
        "upright oval": [_arc(1, 0, 360) * (0.5, 1.0)],
        "bar": [_points("-1,-.35 1,-.35 1,.35 -1,.35")],
        "post": [_points("-.35,-1 .35,-1 .35,1 -.35,1")],
        "right corner": [_points("-1,-1 1,1 -1,1")],
        "left corner": [_points("1,-1 1,1 -1,1")],
        "spear": [_points("0,-1.3 .45,.9 -.45,.9")],
        "wedge": [_points("-1,0 .9,-.5 .9,.5")],
        "trapezoid": [_points("-.45,-.7 .45,-.7 1,.7 -1,.7")],
        "bucket": [_points("-1,-.7 1,-.7 .5,.7 -.5,.7")],
        "slant": [_points("-1,.6 -.4,-.6 1,-.6 .4,.6")],
        "back slant": [_points("1,.6 .4,-.6 -1,-.6 -.4,.6")],
        "kite": [_points("0,-.6 .7,-.1 0,1.3 -.7,-.1")],
        "dome": [join([_arc(1, 180, 360), _points("1,.2 -1,.2")])],
        "bowl": [join([_arc(1, 0, 180), _points("-1,-.2 1,-.2")])],
        "half left": [_arc(1, 90, 270)],
        "half right": [_arc(1, -90, 90)],
        "quarter": [join([_arc(1.4, 0, 90, -0.6, -0.6), _points("-.6,-.6")])],
        "moon": [join([_arc(1, -50, -310), _arc(0.85, -290, -70, 0.5)])],
        "moon back": [join([_arc(1, 130, -130), _arc(0.85, -110, 110, -0.5)])],
        "smile": [join([_arc(1, 0, 180), _arc(1.2, 146, 34, 0, -0.67)])],
        "heart": [
            join(
                [_arc(0.52, 180, 360, -0.5, -0.3), _arc(0.52, 180, 380, 0.5, -0.3), _points("0,1")]
            )
        ],
        "spade": [
            join([_points("0,-1"), _arc(0.5, -30, 150, 0.48, 0.3), _arc(0.5, 30, 210, -0.48, 0.3)])
        ],
        "drop": [join([_points("0,-1.3"), _arc(0.62, -30, 210, 0, 0.4)])],
        "arrow": [_points("-1,-.25 .1,-.25 .1,-.8 1,0 .1,.8 .1,.25 -1,.25")],
        "arrow up": [_points("0,-1 .8,-.1 .25,-.1 .25,1 -.25,1 -.25,-.1 -.8,-.1")],
        "chevron": [_points("-1,.2 0,-.8 1,.2 1,.9 0,-.1 -1,.9")],
        "tick": [_points("-1,0 -.6,-.3 -.3,.2 .7,-.9 1,-.6 -.25,.9")],
        "bolt": [_points("-.2,-1.1 .6,-1.1 .15,-.25 .7,-.25 -.4,1.1 -.05,.15 -.6,.15")],
        "tent": [_points("0,-1 1,.8 .35,.8 0,.1 -.35,.8 -1,.8")],
        "bow tie": [_points("-1,-.7 0,-.15 1,-.7 1,.7 0,.15 -1,.7")],
        "hourglass": [_points("-.7,-1 .7,-1 .15,0 .7,1 -.7,1 -.15,0")],
        "crown": [_points("-1,-.7 -.5,.0 0,-.8 .5,.0 1,-.7 .8,.7 -.8,.7")],
        "steps": [_points("-1,1 -1,.33 -.33,.33 -.33,-.33 .33,-.33 .33,-1 1,-1 1,1")],
        "frame": [_points("-1,-.8 1,-.8 1,.8 -1,.8"), _points("-.5,-.35 .5,-.35 .5,.35 -.5,.35")],
        "gate": [_points("-.95,.9 -.95,-.9 .95,-.9 .95,.9 .45,.9 .45,-.3 -.45,-.3 -.45,.9")],
        "hollow triangle": [_points("0,-1.1 1.1,.8 -1.1,.8"), _points("0,-.25 .45,.45 -.45,.45")],
        "pie": [join([_arc(1, 35, 325), _points("0,0")])],
        "open mouth up": [join([_arc(1, -55, 235), _points("0,0")])],
        "goggles": [_arc(0.5, 0, 360, -0.52), _arc(0.5, 0, 360, 0.52)],
        "snowman": [_arc(0.55, 0, 360, 0, 0.45), _arc(0.42, 0, 360, 0, -0.55)],
        "mushroom": [join([_arc(1, 180, 360, 0, 0.1), _points(".3,.1 .3,.95 -.3,.95 -.3,.1")])],
        "fish": [join([_arc(0.7, 30, 330, -0.3) * (1, 0.85), _points("1.1,-.6 .9,0 1.1,.6")])],
        "three points": _spikes(3, 0.3),
        "four points": _spikes(4, 0.38),
        "six points": _spikes(6, 0.5),
        "eight points": _spikes(8, 0.62),
        "three petals": _polar((3, 0.45, 0.0)),
        "gear": _gear(6, 0.35, 0.32),
        "bean": _polar((1, 0.25, 0.0), (2, 0.35, 0.4)),
    }


_LETTERS = {  # strokes on a square, and how thick they are
    "C": "1,-.8 -.3,-1 -1,0 -.3,1 1,.8",
    "E": "1,-1 -.7,-1 -.7,1 1,1|-.7,0 .6,0",
    "F": "1,-1 -.7,-1 -.7,1|-.7,0 .6,0",
    "H": "-.8,-1 -.8,1|.8,-1 .8,1|-.8,0 .8,0",
    "J": ".5,-1 .5,.7 -.1,1 -.7,.6",
    "K": "-.7,-1 -.7,1|.8,-1 -.7,0 .8,1",
    "L": "-.6,-1 -.6,1 .8,1",
    "M": "-1,1 -.8,-1 0,.3 .8,-1 1,1",
    "N": "-.8,1 -.8,-1 .8,1 .8,-1",
    "P": "-.6,1 -.6,-1 .5,-1 .8,-.5 .5,0 -.6,0",
    "S": ".8,-.8 0,-1 -.8,-.6 .8,.5 0,1 -.8,.8",
    "T": "-1,-1 1,-1|0,-1 0,1",
    "low T": "-1,1 1,1|0,-1 0,1",
    "U": "-.8,-1 -.8,.6 0,1 .8,.6 .8,-1",
    "V": "-.9,-1 0,1 .9,-1",
    "Y": "-.9,-1 0,0 .9,-1|0,0 0,1.1",
    "Z": "-.8,-1 .8,-1 -.8,1 .8,1",
    "4": ".4,1 .4,-1 -.8,.4 1,.4",
    "6": ".5,-1 -.6,.2 -.4,1 .5,1 .6,.2 -.5,.2",
    "7": "-.8,-1 .8,-1 -.1,1",
    "dagger": "0,-1 0,1.3|-.7,-.5 .7,-.5",
    "two bars": "-1,-.6 1,-.6|-1,.6 1,.6",
    "two posts": "-.6,-1 -.6,1|.6,-1 .6,1",
    "slash": "-.9,.9 .9,-.9",
    "bar with dots": "-1,0 1,0|0,-.9 0,-.89|0,.9 0,.89",
    "key": "-.9,0 -.5,-.5 0,0 -.5,.5 -.9,0|0,0 1.2,0 1.2,.5",
}


def _distance(points: Plane, first: Plane, last: Plane) -> Plane:
    """From each point to the nearest of the segments: (n, 2), (m, 2), (m, 2) -> (n,)."""
    along = last - first
    share = ((points[:, None] - first) * along).sum(-1) / np.maximum((along**2).sum(-1), 1e-12)
    near = first + np.clip(share, 0, 1)[..., None] * along
    return np.asarray(np.sqrt(((points[:, None] - near) ** 2).sum(-1)).min(1))


def _fill(points: Plane, rings: list[Ring]) -> Plane:
    """Signed distance to the border of the area inside an odd number of rings."""
    inside = np.zeros(len(points), bool)
    far = np.full(len(points), np.inf)
    for ring in rings:
        a, b = ring, np.roll(ring, -1, 0)
        far = np.minimum(far, _distance(points, a, b))
        y = points[:, 1:]
        crosses = (a[:, 1] > y) != (b[:, 1] > y)
        with np.errstate(divide="ignore", invalid="ignore"):
            x = a[:, 0] + (y - a[:, 1]) * (b[:, 0] - a[:, 0]) / (b[:, 1] - a[:, 1])
        inside ^= ((points[:, :1] < x) & crosses).sum(1) % 2 == 1
    return np.where(inside, -far, far)


def _stroke(points: Plane, lines: list[Ring], thick: float) -> Plane:
    return np.asarray(
        np.stack([_distance(points, line[:-1], line[1:]) for line in lines]).min(0) - thick
    )


def _plane(grid: int) -> Plane:
    across = (np.arange(grid) + 0.5) / grid * 2 * SPAN - SPAN
    return np.stack(np.meshgrid(across, across), -1).reshape(-1, 2)  # (G * G, 2) x, y


def _sized(measure: Measure) -> Plane:
    """The distances of an outline moved to its centre and scaled to its radius."""
    points = _plane(GRID // 3)
    x, y, scale = 0.0, 0.0, 1.0
    for _ in range(2):  # the first round may have cut what reaches beyond the plane
        inside = measure(points * scale + (x, y)) < 0
        area = inside.mean() * (2 * SPAN) ** 2
        middle = points[inside].mean(0)
        reach = np.sqrt(((points[inside] - middle) ** 2).sum(1)).max()
        x, y = x + middle[0] * scale, y + middle[1] * scale
        scale *= max(reach / REACH, math.sqrt(area / AREA))
    return (measure(_plane(GRID) * scale + (x, y)) / scale).reshape(GRID, GRID)


def outlines(seed: int = 7) -> tuple[list[str], NDArray[np.float32]]:
    """Names and signed distances (K, G, G), in radii: negative inside."""
    random = np.random.default_rng(seed)
    made: dict[str, Measure] = {}
    for name, rings in _polygons().items():
        made[name] = partial(_fill, rings=rings)
    for name, text in _LETTERS.items():
        lines = [_points(part) for part in text.split("|")]
        made[f"letter {name}"] = partial(_stroke, lines=lines, thick=0.27)
    for n in range(RANDOM):
        waves = [
            (k, float(random.normal(0, 0.38)) / k**0.6, float(random.uniform(0, 6.3)))
            for k in range(1, 7)
        ]
        made[f"blob {n}"] = partial(_fill, rings=_polar(*waves))
        turn = np.sort(random.uniform(0, 2 * math.pi, 7))
        ring = np.stack([np.cos(turn), np.sin(turn)], 1) * random.uniform(0.25, 1.2, (7, 1))
        made[f"polygon {n}"] = partial(_fill, rings=[ring])
        scrawl = random.uniform(-1, 1, (5, 2))
        made[f"scrawl {n}"] = partial(_stroke, lines=[scrawl], thick=0.25)
    kept = {name: measure for name, measure in made.items() if name not in TOO_NEAR}
    return list(kept), np.stack([_sized(measure) for measure in kept.values()]).astype(np.float32)
