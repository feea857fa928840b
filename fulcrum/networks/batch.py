"""Batches from the caches: what one training step reads, as a pure function of the position.

B batch, C h w latent, L tokens, E width, N teacher tokens
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.data.captions import Chooser, drawn_prompts, readings
from fulcrum.data.source import Source, order_of
from fulcrum.networks.cache import Cache, widened
from fulcrum.networks.protocols import Codec, TextEncoder

STEP = 256  # rows: a tile or two of a GPU's product


class Text(NamedTuple):
    """Encoded prompts, and the encoded empty prompt that stands in for dropped ones."""

    emb: Tensor  # (B, L, E)
    mask: Tensor  # (B, L) bool, true = keep
    empty: Tensor  # (tokens of the empty prompt, E); the world's encoder gives one
    #: real tokens of all rows at most, whichever of them become the empty prompt
    most: int | None = None

    def with_dropped(self, drop: Tensor) -> Text:
        """Rows where `drop` (B,) is true become the empty prompt: its tokens, the rest masked."""
        rows, length, _ = self.emb.shape
        short = self.empty.shape[0]
        if short > length:
            raise ValueError(
                f"the empty prompt has {short} tokens, the batch is padded to {length}; pad to more"
            )
        empty = F.pad(self.empty.to(self.emb), (0, 0, 0, length - short))  # (L, E)
        kept = torch.arange(length, device=self.mask.device) < short  # (L,)
        emb, mask = (
            torch.where(drop[:, None, None], empty, self.emb),
            torch.where(drop[:, None], kept, self.mask),
        )
        return self._replace(emb=emb, mask=mask)


class Batch(NamedTuple):
    """All that a step reads, apart from its random numbers."""

    x0: Tensor  # (B, C, h, w)
    text: Text
    teacher: dict[str, Tensor]  # name -> (B, N, E')
    ids: Tensor  # (B,) int64, numbers of the samples within their source
    #: (B, 4) original height and width, top and left of the crop; where a condition asks
    geometry: Tensor | None = None

    def widened(self) -> Batch:
        """A batch in stored dtypes as a step reads it: float32, pixels in [-1, 1]."""
        teacher = {name: widened(tokens) for name, tokens in self.teacher.items()}
        return self._replace(
            x0=widened(self.x0), text=self.text._replace(emb=self.text.emb.float()), teacher=teacher
        )


def most_tokens(mask: Tensor, empty: int) -> int:
    """Of a mask (B, L) that lies on the host: how many tokens are real at most, when any row may
    become the empty prompt. In steps, so that a device has few shapes."""
    real = int(mask.sum(1).clamp(min=empty).sum())
    return min(-(-real // STEP) * STEP, mask.numel())


class Encoder:
    """A source through its frozen networks.  Building one encodes what the cache does not hold
    yet."""

    def __init__(
        self,
        source: Source,
        chooser: Chooser,
        seed: int,
        codec: Codec,
        text: TextEncoder,
        cache: Cache,
        say: Callable[[str], None] | None = None,
        geometry: bool = False,
    ) -> None:
        self.source, self.chooser, self.seed, self.geometry = source, chooser, seed, geometry
        # first: captions may be refused, and pictures take longer
        self.texts = cache.texts(source, chooser, text, say)
        self.latents = cache.latents(source, codec, say)

    def ids(self, position: int, rows: int) -> NDArray[np.int64]:
        """Which samples stand at positions position ... position + rows - 1 of the global order."""
        return order_of(self.source, self.seed, position, rows)

    def at(self, position: int, rows: int) -> Batch:
        """The batch at a position, its captions drawn for these readings."""
        return self.stored_at(position, rows).widened()

    def stored_at(self, position: int, rows: int, pinned: bool = False) -> Batch:
        """The same in the dtypes that it is stored in: half the bytes of texts, a quarter of
        pixels."""
        return self._stored(self.ids(position, rows), readings(self.seed, position, rows), pinned)

    def rows(
        self, ids: NDArray[np.integer[Any]], numbers: NDArray[np.integer[Any]] | None = None
    ) -> Batch:
        """The batch of these samples, read by these numbers; without them, with the captions that
        they are judged by."""
        return self._stored(ids, numbers).widened()

    def _stored(
        self,
        ids: NDArray[np.integer[Any]],
        numbers: NDArray[np.integer[Any]] | None,
        pinned: bool = False,
    ) -> Batch:
        """Texts are padded to the longest of the whole source: static shapes, and no row's
        arithmetic depends on its batch mates. A term's teachers are added where the terms are
        known."""
        emb, mask = self.texts.stored(ids, self.texts.longest, numbers, pinned)
        samples = torch.from_numpy(np.asarray(ids, dtype=np.int64))
        geometry = torch.from_numpy(self.source.geometry(ids)) if self.geometry else None
        text = Text(emb, mask, self.texts.empty, most_tokens(mask, len(self.texts.empty)))
        return Batch(self.latents.stored(ids, pinned), text, {}, samples, geometry)

    def prompts_at(self, position: int, rows: int) -> list[str]:
        """The captions of the batch at a position."""
        return drawn_prompts(
            self.source, self.chooser, self.ids(position, rows), readings(self.seed, position, rows)
        )
