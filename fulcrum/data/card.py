"""The data card: what the pictures of a run are, in counts, proportions and hashes, with a contact sheet to look at."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

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


def contact_sheet(
    path: str | Path, sources: Sequence[WorldSource], chooser: Chooser | None = None, columns: int = 6, size: int = 128
) -> Path:
    """Write a PNG: per source one row of captioned scenes, drawn at `size` pixels whatever the source's own size."""
    chooser = chooser or Chooser()
    font, title = ImageFont.load_default(11), ImageFont.load_default(13)
    gap, head, lines, line = 12, 24, 11, 13
    wide, tall = size + 2 * gap, head + size + gap // 2 + lines * line
    sheet = Image.new("RGB", (columns * wide, len(sources) * tall + gap), "white")
    pen = ImageDraw.Draw(sheet)
    for row, source in enumerate(sources):
        shown = replace(source, size=size, count=min(columns, len(source)))
        samples = shown.read(np.arange(len(shown)))
        texts = shown.prompts(chooser, samples.ids)
        top = row * tall + gap // 2
        wrong = f", {source.mislabelled:.0%} mislabelled" if source.mislabelled else ""
        pen.text((gap, top), f"{source.split}, {source.domain}: {len(source):,} scenes{wrong}", fill="black", font=title)
        for column, (picture, text) in enumerate(zip(samples.images, texts, strict=True)):
            left = column * wide + gap
            sheet.paste(Image.fromarray(picture.transpose(1, 2, 0)), (left, top + head))
            told = textwrap.wrap(text, max(12, (size + gap) // 6))[:lines]
            below = (left, top + head + size + gap // 2)
            pen.multiline_text(below, "\n".join(told), fill="#333333", font=font, spacing=2)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, format="PNG")
    return path
