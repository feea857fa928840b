"""Scenes with anything from no object to nine: what a generated picture may hold, and the world
never does.

B scenes, 9 slots: slot k stands at place k, or is absent (-1)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import Ints, Scenes, apart, scenes
from fulcrum.spec.keyed import key, uniform

PLACES = len(v.PLACES)
SMALL = 0


def crowds(count: int, start: int = 0) -> Scenes:
    """Backgrounds and photographs of the assets split, peopled anew: every number of objects is as
    likely."""
    ground = scenes("assets", np.arange(start, start + count, dtype=np.int64))
    dice = uniform(key("crowd", ground.key), 7 * PLACES + 1)
    number, order, *attributes = (
        dice[:, 0],
        dice[:, 1 : PLACES + 1],
        *np.split(dice[:, PLACES + 1 :], 6, axis=1),
    )
    # (B, 9)
    present = (
        order.argsort(axis=1).argsort(axis=1) < (number * (PLACES + 1)).astype(np.int64)[:, None]
    )
    place = np.where(present, np.arange(PLACES), -1)
    words = (v.SHAPES, v.COLOURS, v.TEXTURES, v.SIZES)
    shape, colour, texture, size = (
        np.where(present, (u * len(names)).astype(np.int64), -1)
        for u, names in zip(attributes, words, strict=False)
    )
    size = _shrunk(place, size)
    x, y = (
        np.where(present, np.array(v.CENTRES)[where] + 0.036 * (u - 0.5), 0.0).astype(np.float32)
        for where, u in zip(
            (np.arange(PLACES) % 3, np.arange(PLACES) // 3), attributes[4:], strict=True
        )
    )
    radius = np.where(present, np.array(v.RADII)[size], 0.0).astype(np.float32)
    return replace(
        ground,
        count=present.sum(axis=1),
        shape=shape,
        colour=colour,
        texture=texture,
        size=size,
        place=place,
        x=x,
        y=y,
        radius=radius,
        angle=np.zeros_like(radius),
    )


def _shrunk(place: Ints, size: Ints) -> Ints:
    """The sizes, but small throughout where two objects would touch."""
    return np.where(apart(place, size)[:, None], size, np.where(place >= 0, SMALL, -1))
