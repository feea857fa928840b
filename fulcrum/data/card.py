"""The data card: what the pictures of a run are, in counts, proportions and hashes."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fulcrum.data.caption import Chooser
from fulcrum.data.source import WorldSource
from fulcrum.data.world import vocabulary as v
from fulcrum.data.world.scene import Scenes

_LOOKED_AT = 20_000  # proportions and overlap use at most this many scenes of a source


def data_card(sources: Sequence[WorldSource], chooser: Chooser | None = None) -> dict[str, Any]:
    """Facts of these sources as plain data, ready for JSON."""
    looked_at = [source.scenes(np.arange(min(len(source), _LOOKED_AT))) for source in sources]
    card: dict[str, Any] = {
        "generator": "fulcrum world",
        "version": v.WORLD_VERSION,
        "sources": [_facts(source, chosen) for source, chosen in zip(sources, looked_at, strict=True)],
        "overlap": _overlap(looked_at),
    }
    if chooser is not None:
        weights = np.array(chooser.weights) / sum(chooser.weights)
        card["captions"] = dict(zip(chooser.styles, weights.tolist(), strict=True))
    return card


def _facts(source: WorldSource, chosen: Scenes) -> dict[str, Any]:
    def shares(values: np.ndarray[Any, Any], words: Sequence[str]) -> dict[str, float]:
        counts = np.bincount(values[values >= 0].ravel(), minlength=len(words))
        return {word: round(float(n) / max(int(counts.sum()), 1), 4) for word, n in zip(words, counts, strict=True)}

    return {
        "split": source.split,
        "domain": source.domain,
        "size": source.size,
        "count": len(source),
        "max_objects": source.max_objects,
        "fingerprint": source.fingerprint(),
        "looked_at": len(chosen),
        "mislabelled": {"share": source.mislabelled, "planted": int(source.planted(chosen.index).sum())},
        "distinct_descriptions": len(np.unique(chosen.signature())),
        "proportions": {
            "objects": shares(chosen.count - 1, ("1", "2", "3")),
            "shape": shares(chosen.shape, v.SHAPES),
            "colour": shares(chosen.colour, v.COLOURS),
            "texture": shares(chosen.texture, v.TEXTURES),
            "size": shares(chosen.size, v.SIZES),
            "place": shares(chosen.place, v.PLACES),
            "background": shares(chosen.background, v.BACKGROUNDS),
            "background_colour": shares(chosen.background_colour, v.BACKGROUND_COLOURS),
        },
    }


def _overlap(looked_at: Sequence[Scenes]) -> dict[str, Any]:
    """Descriptions that two splits share: none, by construction; counted all the same."""
    seen: dict[str, list[np.ndarray[Any, Any]]] = {}
    for chosen in looked_at:
        seen.setdefault(chosen.split, []).append(chosen.signature())
    merged = {split: np.unique(np.concatenate(parts)) for split, parts in seen.items()}
    shared = {f"{a} and {b}": int(np.intersect1d(merged[a], merged[b]).size) for a, b in combinations(merged, 2)}
    return {"shared_descriptions": shared, "disjoint": not any(shared.values())}
