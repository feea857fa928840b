"""Three captions of an emoji: its name; name and keywords; and a template over facts that can be checked in the pixels.

S side in pixels
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KEYWORDS = 5  # that a caption names
SEEN = 0.5  # alpha from which a pixel counts as drawn
MOSTLY, SOME = 0.4, 0.12  # shares of the drawn pixels: the main colour, a further one
FULL, SMALL = 0.62, 0.33  # shares of the picture that are drawn
LONG_SIDE = 1.35  # ratio of the sides from which a picture is wide or tall
MIRRORED = 0.9  # overlap with its mirror image
HUES = (
    (15, "red"),
    (42, "orange"),
    (66, "yellow"),
    (165, "green"),
    (200, "turquoise"),
    (255, "blue"),
    (290, "purple"),
    (340, "pink"),
    (361, "red"),
)  # upper bound in degrees


class Facts(NamedTuple):
    """What was measured in the pixels."""

    colours: tuple[str, ...]  # the main one first, at most three
    mostly: bool  # does the first cover most of it
    size: str
    shape: str
    symmetric: bool


def colour_names(rgb: NDArray[np.uint8]) -> NDArray[np.str_]:
    """(n, 3) -> (n,) one of twelve words for each pixel, by lightness, saturation and hue."""
    unit = rgb.astype(np.float64) / 255
    high, low = unit.max(1), unit.min(1)
    spread, light = high - low, (high + low) / 2
    span = np.where(spread > 0, spread, 1)
    red, green, blue = unit.T
    hue = (
        np.select(
            [high == red, high == green], [(green - blue) / span % 6, (blue - red) / span + 2], (red - green) / span + 4
        )
        * 60
    )
    saturation = np.where(high > 0, spread / np.where(high > 0, high, 1), 0)
    words = np.array([word for _, word in HUES])[np.searchsorted([bound for bound, _ in HUES], hue, side="right")]
    words = np.where((np.isin(words, ("orange", "red"))) & (light < 0.4) & (hue >= 8) & (hue < 45), "brown", words)
    grey = np.select([light < 0.2, light > 0.88], ["black", "white"], "grey")
    return np.where((saturation < 0.16) | (light < 0.1) | (light > 0.96), grey, words)


def measure(rgba: NDArray[np.uint8]) -> Facts:
    """Facts of a picture (S, S, 4) with its transparency."""
    drawn = rgba[..., 3] >= SEEN * 255  # (S, S)
    if not drawn.any():
        raise ValueError("an empty picture")
    words, counts = np.unique(colour_names(rgba[drawn][:, :3]), return_counts=True)
    order = np.lexsort((words, -counts))
    shares = counts[order] / counts.sum()
    ranked = [str(word) for word in words[order]]
    colours = [word for word, share in zip(ranked, shares, strict=True) if share >= SOME][:3] or ranked[:1]
    rows, columns = np.flatnonzero(drawn.any(1)), np.flatnonzero(drawn.any(0))
    height, width = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
    inside = drawn[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    mirrored = (inside & inside[:, ::-1]).sum() / (inside | inside[:, ::-1]).sum()
    cover = drawn.mean()
    return Facts(
        tuple(colours),
        bool(shares[0] >= MOSTLY),
        "large" if cover > FULL else "small" if cover < SMALL else "of middle size",
        "wide" if width > LONG_SIDE * height else "tall" if height > LONG_SIDE * width else "as wide as tall",
        bool(mirrored > MIRRORED),
    )


def short(name: str) -> str:
    return name


def medium(name: str, keywords: tuple[str, ...]) -> str:
    return f"{name}: {', '.join(keywords[:KEYWORDS])}" if keywords else name


def long(name: str, keywords: tuple[str, ...], title: str, group: str, facts: Facts) -> str:
    """Style, name, group, keywords, colours and layout."""
    main, *more = facts.colours
    seen = f"mostly {main}" if facts.mostly else main
    seen += f" with {' and '.join(more)}" if more else ""
    about = f" ({', '.join(keywords[:KEYWORDS])})" if keywords else ""
    kind = f", one of {group.lower().replace('&', 'and')}" if group else ""
    mirrored = "symmetric" if facts.symmetric else "not symmetric"
    return f"{name} in the style of {title}{kind}{about}. It is {seen}, {facts.size}, {facts.shape}, {mirrored}."
