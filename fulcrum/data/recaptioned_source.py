"""The embedded world with captions that somebody else wrote: the same pictures, other words.

B samples asked for.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fulcrum.data.caption import Chooser
from fulcrum.data.source import Ids, Samples, require_inside
from fulcrum.data.world.scene import Scenes
from fulcrum.spec.errors import BadInput


@dataclass(frozen=True, eq=False)
class RecaptionedSource:
    """Pictures and scenes of another source; texts by style, one for each sample. What is drawn stays known: only the words
    come from whoever looked at the pictures."""

    inner: Any
    told: Mapping[str, list[str]]
    writer: str  # the hash of who wrote them, and how

    def __len__(self) -> int:
        return len(self.inner)

    def fingerprint(self) -> str:
        return hashlib.sha256(f"recaptioned {self.writer} {self.inner.fingerprint()}".encode()).hexdigest()

    def styles(self) -> tuple[str, ...]:
        return tuple(self.told)

    def read(self, index: Ids) -> Samples:
        samples: Samples = self.inner.read(index)
        return samples

    def scenes(self, index: Ids) -> Scenes:
        scenes: Scenes = self.inner.scenes(index)
        return scenes

    def geometry(self, index: Ids) -> NDArray[np.float32]:
        geometry: NDArray[np.float32] = self.inner.geometry(index)
        return geometry

    def prompts(self, chooser: Chooser, index: Ids) -> list[str]:
        ids = np.asarray(index, dtype=np.int64)
        require_inside(ids, len(self))
        missing = [style for style in chooser.styles if style not in self.told]
        if missing:
            raise BadInput(f"no captions '{missing[0]}' were written", f"there are {', '.join(self.told)}")
        picked = chooser.pick(ids)
        return [
            self.told[chooser.styles[style]][number] for style, number in zip(picked.tolist(), ids.tolist(), strict=True)
        ]
