"""A scene as plain words and numbers, for tests to compare with."""

from typing import Any

from fulcrum.data.world import scene as v
from fulcrum.data.world.scene import Scenes


def describe(scenes: Scenes, i: int) -> dict[str, Any]:
    """Scene i as plain data: everything the renderer knows except the look of the real domain."""
    objects = [
        {
            "shape": v.SHAPES[scenes.shape[i, k]],
            "colour": v.COLOURS[scenes.colour[i, k]],
            "texture": v.TEXTURES[scenes.texture[i, k]],
            "size": v.SIZES[scenes.size[i, k]],
            "place": v.PLACES[scenes.place[i, k]],
            "x": float(scenes.x[i, k]),
            "y": float(scenes.y[i, k]),
            "radius": float(scenes.radius[i, k]),
            "angle": float(scenes.angle[i, k]),
        }
        for k in range(int(scenes.count[i]))
    ]
    background = {
        "kind": v.BACKGROUNDS[scenes.background[i]],
        "colours": [v.BACKGROUND_COLOURS[c] for c in scenes.background_colour[i] if c >= 0],
        "jitter": [float(u) for u in scenes.background_jitter[i]],
    }
    return {
        "world": v.WORLD_VERSION,
        "split": scenes.split,
        "index": int(scenes.index[i]),
        "objects": objects,
        "background": background,
    }
