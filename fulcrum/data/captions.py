"""Which caption a sample trains with: one style, or several mixed by weight, drawn anew whenever
the sample is read.

B readings: `fulcrum.data.source.readings` numbers them
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.world.scene import Scenes
from fulcrum.data.world.words import STYLES, captions
from fulcrum.spec.errors import BadInput
from fulcrum.spec.keyed import key, uniform


@dataclass(frozen=True)
class Chooser:
    """Style by keyed uniform of a number: in training that of the reading, so that a picture may be
    told in another way when it comes again; where pictures are judged that of the sample, so that
    prompts stay what they are."""

    styles: tuple[str, ...] = ("long",)
    weights: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        self._known()
        if len(self.weights) != len(self.styles):
            raise ValueError(
                f"one weight per style: expected {len(self.styles)}, found {len(self.weights)}"
            )
        if not all(np.isfinite(w) and w >= 0 for w in self.weights) or sum(self.weights) <= 0:
            raise ValueError(
                f"caption weights must be finite, >= 0 and not all zero; found {self.weights}"
            )

    def _known(self) -> None:
        unknown = [style for style in self.styles if style not in STYLES]
        if unknown or not self.styles:
            raise ValueError(
                f"caption styles are {', '.join(STYLES)}; found {', '.join(unknown) or 'none'}"
            )

    def pick(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """(B,) numbers of readings or of samples -> (B,) position of each one's style in
        `styles`."""
        u = uniform(key("caption style", np.asarray(numbers)), 1)[:, 0]
        bounds = np.cumsum(self.weights) / np.sum(self.weights)
        # The last positive weight's bound can round to just below one.
        last = max(n for n, weight in enumerate(self.weights) if weight > 0)
        return np.minimum(np.searchsorted(bounds, u, side="right"), last)

    def prompts(self, scenes: Scenes, ids: NDArray[np.integer[Any]]) -> list[str]:
        """The text of each sample."""
        strange = [style for style in self.styles if style not in STYLES]
        if strange:
            raise BadInput(
                f"the embedded world has no caption '{strange[0]}'", f"it has {', '.join(STYLES)}"
            )
        picked = self.pick(ids)
        texts = [""] * len(scenes)
        for n, style in enumerate(self.styles):
            rows = np.flatnonzero(picked == n)
            for row, text in zip(rows, captions(scenes.take(rows), style).texts, strict=True):
                texts[row] = text
        return texts


class NamedChooser(Chooser):
    """Captions of a user's own pictures, by the names they were imported with."""

    def _known(self) -> None:
        if not self.styles or len(set(self.styles)) < len(self.styles):
            raise ValueError(f"name one or more captions, each once; found {self.styles}")


def one_by_one(chooser: Any) -> list[Any]:
    """A chooser for each style that can occur, in the order of `pick`; one that is not ours chooses
    by itself."""
    if not isinstance(chooser, Chooser):
        return [chooser]
    return [replace(chooser, styles=(style,), weights=(1.0,)) for style in chooser.styles]


def wordings(source: Any, chooser: Any, index: NDArray[np.integer[Any]]) -> list[list[str]]:
    """All texts that a chooser of one style may give each sample; mostly one."""
    several = getattr(source, "wordings", None)
    return (
        several(chooser, index) if several else [[text] for text in source.prompts(chooser, index)]
    )


def which_wording(
    numbers: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """(B,) which of its texts a reading gets; they are equals."""
    return (uniform(key("caption of several", np.asarray(numbers)), 1)[:, 0] * counts).astype(
        np.int64
    )


def drawn_prompts(
    source: Any, chooser: Any, index: NDArray[np.integer[Any]], numbers: NDArray[np.integer[Any]]
) -> list[str]:
    """The caption that each of these samples gets in the reading of that number."""
    parts, texts = one_by_one(chooser), [""] * len(index)
    picked = chooser.pick(numbers) if len(parts) > 1 else np.zeros(len(index), np.int64)
    for place, part in enumerate(parts):
        rows = np.flatnonzero(picked == place)
        choices = wordings(source, part, index[rows]) if len(rows) else []
        chosen = which_wording(numbers[rows], np.array([len(each) for each in choices], np.int64))
        for row, each, one in zip(rows, choices, chosen, strict=True):
            texts[row] = each[one]
    return texts


def worded_shares(
    source: Any, ids: NDArray[np.integer[Any]], prompts: list[str]
) -> dict[str, float]:
    """Share of these samples' prompts that are worded in each style: what a caption lever must have
    changed."""
    known = source.styles() if hasattr(source, "styles") else STYLES
    shares = dict.fromkeys(STYLES, 0.0)
    for style in (style for style in STYLES if style in known):
        worded = source.prompts(Chooser((style,)), ids)
        shares[style] = float(
            np.mean([one == other for one, other in zip(prompts, worded, strict=True)])
        )
    return shares
