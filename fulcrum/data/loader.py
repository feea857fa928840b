"""Raw batches by position: the next batch is a question, not a state.

Legend: B rows, S image side.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption import Chooser
from fulcrum.data.order import order
from fulcrum.data.source import Source


class RawBatch(NamedTuple):
    images: NDArray[np.uint8]           # (B, 3, S, S)
    prompts: list[str]                  # B texts
    ids: NDArray[np.int64]              # (B,) within the source
    position: int                       # of the first row in the global order


@dataclass(frozen=True)
class Loader:
    """A source in its global order, captioned. Exact resume needs nothing but the position."""

    source: Source
    chooser: Chooser
    seed: int

    def ids(self, position: int, rows: int) -> NDArray[np.int64]:
        """Which samples a batch holds; enough when everything about them is cached."""
        return order(len(self.source), self.seed, position, rows)

    def at(self, position: int, rows: int) -> RawBatch:
        samples = self.source.read(self.ids(position, rows))
        return RawBatch(samples.images, self.source.prompts(self.chooser, samples.ids), samples.ids, position)
