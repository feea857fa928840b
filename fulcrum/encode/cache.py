"""What the frozen networks say about a whole source, encoded once: latents, teacher tokens, packed texts, scores of pairs.

n samples of the source, B rows asked for, L tokens, E width
"""
from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fulcrum.data.caption import Chooser
from fulcrum.data.source import Source
from fulcrum.encode.codec import Codec, IdentityCodec
from fulcrum.encode.pixels import to_unit
from fulcrum.encode.score import load_scorer
from fulcrum.encode.store import Store, Writer

Say = Callable[[str], None]
Ids = NDArray[np.integer[Any]]
CHUNK = 256                     # samples encoded at a time


def network_hash(network: nn.Module) -> str:
    """Class, configuration and every weight: two networks with the same hash compute the same."""
    about = [type(network).__qualname__, getattr(network, "config", None)]
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, value in network.state_dict().items():
        value = value.detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _chooser_facts(chooser: Any) -> Any:
    """What decides the texts: a dataclass's fields, or what the chooser says of itself."""
    if hasattr(chooser, "fingerprint"):
        return str(chooser.fingerprint())
    if is_dataclass(chooser) and not isinstance(chooser, type):
        return [type(chooser).__qualname__, asdict(chooser)]
    raise TypeError(f"the cache must know what {type(chooser).__qualname__} chooses: make it a dataclass or give it "
                    f"fingerprint() -> str")


class RowCache:
    """One tensor per sample."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._rows = rows                                    # (n, ...): float32, float16, or uint8 pixels

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, ids: Ids) -> Tensor:
        """(B, ...) float32; pixels that were stored as bytes come back in [-1, 1]."""
        found = torch.from_numpy(self._rows[ids])            # fancy indexing copies: the map stays read-only
        return to_unit(found) if found.dtype == torch.uint8 else found.float()


class TextCache:
    """Token embeddings of one prompt per sample, packed without padding."""

    def __init__(self, tokens: NDArray[Any], ends: NDArray[Any], empty: NDArray[Any]) -> None:
        self._tokens, self._ends = tokens, np.asarray(ends)                      # (total, E) float16, (n,) int64
        self._starts = np.concatenate([[0], self._ends[:-1]])
        self.empty = torch.from_numpy(np.array(empty)).float()                   # (tokens of the empty prompt, E)
        self.longest = int(max((self._ends - self._starts).max(initial=1), len(empty)))

    def __len__(self) -> int:
        return len(self._ends)

    def rows(self, ids: Ids, length: int | None = None) -> tuple[Tensor, Tensor]:
        """emb (B, L, E) float32, zero where padded, and mask (B, L), true = keep.

        L is `length`, or the longest prompt of these rows; one length for a whole run keeps shapes static.
        """
        start, end = self._starts[ids], self._ends[ids]
        longest = int((end - start).max(initial=1))
        length = longest if length is None else length
        if longest > length:
            raise ValueError(f"asked to pad to {length} tokens, but a prompt has {longest}; pass length >= {longest}")
        at = start[:, None] + np.arange(length)                                  # (B, L)
        mask = at < end[:, None]
        emb = torch.from_numpy(self._tokens[np.minimum(at, end[:, None] - 1)]).float()       # (B, L, E)
        keep = torch.from_numpy(mask)
        return emb.mul_(keep[..., None]), keep


class Cache:
    """Encodings under one directory, named by source, network, transform and dtype."""

    def __init__(self, root: Path) -> None:
        self.store = Store(Path(root))

    def latents(self, source: Source, codec: Codec, say: Say | None = None) -> RowCache:
        """Latents of every sample (float32); those of a pixel-space codec as bytes, exact and a quarter."""
        exact = isinstance(codec, IdentityCodec)
        facts = {"source": source.fingerprint(), "network": network_hash(codec),  # type: ignore[arg-type]
                 "transform": "pixels in [-1, 1]", "dtype": "uint8" if exact else "float32"}

        def make(writer: Writer) -> None:
            for ids in _chunks(len(source), "latents", say):
                images = source.read(ids).images
                if exact:
                    writer.append("rows", images)
                    continue
                with torch.no_grad():
                    writer.append("rows", codec.encode(to_unit(torch.from_numpy(images))).float().numpy())

        return RowCache(self.store.get("latents", facts, make)["rows"])

    def tokens(self, source: Source, teacher: Any, say: Say | None = None) -> RowCache:
        """A teacher's patch tokens of every sample (float16)."""
        facts = {"source": source.fingerprint(), "network": network_hash(teacher),
                 "transform": "pixels in [-1, 1]", "dtype": "float16"}

        def make(writer: Writer) -> None:
            for ids in _chunks(len(source), "teacher tokens", say):
                pixels = to_unit(torch.from_numpy(source.read(ids).images))
                writer.append("rows", teacher.tokens(pixels).half().numpy())

        return RowCache(self.store.get("teacher", facts, make)["rows"])

    def texts(self, source: Source, chooser: Chooser, text: Any, say: Say | None = None) -> TextCache:
        """Embeddings of the prompt that the chooser gives each sample (float16), and of the empty prompt."""
        facts = {"source": source.fingerprint(), "network": network_hash(text), "chooser": _chooser_facts(chooser),
                 "transform": "packed", "dtype": "float16"}

        def make(writer: Writer) -> None:
            writer.append("empty", text.encode([""])[0][0].half().numpy())
            last = 0
            for ids in _chunks(len(source), "texts", say):
                emb, mask = text.encode(source.prompts(chooser, ids))
                writer.append("tokens", emb[mask].half().numpy())
                ends = last + mask.sum(1).cumsum(0).numpy().astype(np.int64)
                writer.append("ends", ends)
                last = int(ends[-1])

        arrays = self.store.get("texts", facts, make)
        return TextCache(arrays["tokens"], arrays["ends"], arrays["empty"])

    def scores(self, source: Source, chooser: Chooser, asset: str = "score", say: Say | None = None) -> NDArray[Any]:
        """How well each sample's picture and prompt fit by a shipped scorer: (n,) float32, higher fits better."""
        scorer = load_scorer(asset)
        facts = {"source": source.fingerprint(), "network": network_hash(scorer), "chooser": _chooser_facts(chooser),
                 "dtype": "float32"}

        def make(writer: Writer) -> None:
            for ids in _chunks(len(source), "scores", say):
                images = torch.from_numpy(source.read(ids).images)
                writer.append("scores", scorer.score(images, source.prompts(chooser, ids)).numpy())

        return self.store.get("scores", facts, make)["scores"]


def _chunks(count: int, what: str, say: Say | None) -> Iterator[NDArray[np.int64]]:
    """Sample numbers in order, a chunk at a time; says now and then how far it is."""
    begin = told = time.perf_counter()
    for first in range(0, count, CHUNK):
        yield np.arange(first, min(first + CHUNK, count))
        now, done = time.perf_counter(), min(first + CHUNK, count)
        if say and (now - told > 2 or done == count):
            told = now
            say(f"encoding {what}: {done}/{count}, {(now - begin) * (count - done) / done:.0f} s left")
