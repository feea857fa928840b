"""Cached rows and batches: frozen networks see every sample once, and a step reads what they gave.

    position ──► ids, readings ──► stored rows ──► Batch          Encoder, reads
    source   ──► frozen network ──► chunks of the array store     Cache, fills

B batch, C h w latent, L tokens, E width, N teacher tokens, n samples of the source
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.data.captions import Chooser, drawn_prompts, one_by_one, which_wording, wordings
from fulcrum.data.mix import FilteredSource, RecaptionedSource, one_shaped
from fulcrum.data.source import Source, order_of, readings
from fulcrum.files.array_store import Arrays, ArrayStore, Ids, StoredArray
from fulcrum.networks.captioner import load_captioner, load_scorer, word_dice
from fulcrum.networks.codec import IdentityCodec
from fulcrum.networks.network_hash import network_hash, on_this_gpu, to_unit
from fulcrum.networks.protocols import Codec, TeacherNetwork, TextEncoder
from fulcrum.networks.text import unread
from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.progress import Tally

Say = Callable[[str], None]
CHUNK = 256  # samples encoded at a time
# the bound on real tokens is rounded up to this: a tile or two of a GPU's product
TOKENS_STEP = 256


# --------------------------------------------------------------------------------------------------
# A batch: what one step reads, apart from its random numbers.


class Text(NamedTuple):
    """Encoded prompts, in the form in which the denoiser takes them."""

    emb: Tensor  # (B, L, E)
    mask: Tensor  # (B, L) bool, true = keep
    #: real tokens of all rows at most, whichever rows become the empty prompt
    most: int | None = None

    def with_dropped(self, drop: Tensor, empty: Tensor) -> Text:
        """Replace rows where `drop` (B,) is true by the empty prompt, `empty` (tokens, E)."""
        length, short = self.emb.shape[1], empty.shape[0]
        if short > length:
            raise ValueError(
                f"the empty prompt has {short} tokens, the batch is padded to {length}; pad to more"
            )
        padded = F.pad(empty.to(self.emb), (0, 0, 0, length - short))  # (L, E)
        kept = torch.arange(length, device=self.mask.device) < short  # (L,)
        emb = torch.where(drop[:, None, None], padded, self.emb)
        mask = torch.where(drop[:, None], kept, self.mask)
        return self._replace(emb=emb, mask=mask)


class Batch(NamedTuple):
    """All that a step reads, apart from its random numbers."""

    x0: Tensor  # (B, C, h, w)
    text: Text
    teacher: dict[str, Tensor]  # name -> (B, N, E')
    ids: Tensor  # (B,) int64, numbers of the samples within their source
    empty_text: Tensor  # (tokens of the empty prompt, E); the world's encoder gives one token
    #: (B, 4) original height and width, top and left of the crop; where a condition asks
    geometry: Tensor | None = None

    def widened(self) -> Batch:
        """Convert a batch from stored dtypes: to float32, with pixels in [-1, 1]."""
        teacher = {name: widened(tokens) for name, tokens in self.teacher.items()}
        text = self.text._replace(emb=self.text.emb.float())
        return self._replace(x0=widened(self.x0), text=text, teacher=teacher)


def widened(rows: Tensor) -> Tensor:
    """Convert stored rows to float32, and bytes to pixels in [-1, 1], on their device."""
    return to_unit(rows) if rows.dtype == torch.uint8 else rows.float()


def most_tokens(mask: Tensor, empty: int) -> int:
    """Bound the real tokens of a mask (B, L) on the host, when any row may become the empty prompt
    of `empty` tokens. Round up, so that a device has few shapes."""
    real = int(mask.sum(1).clamp(min=empty).sum())
    return min(-(-real // TOKENS_STEP) * TOKENS_STEP, mask.numel())


class Encoder:
    """A source through its frozen networks. Building one encodes what the cache lacks."""

    def __init__(
        self,
        source: Source,
        chooser: Chooser,
        seed: int,
        codec: Codec,
        text: TextEncoder,
        cache: Cache,
        say: Say | None = None,
        geometry: bool = False,
    ) -> None:
        self.source = source
        self.chooser = chooser
        self.seed = seed
        self.geometry = geometry
        # first: captions may be refused, and pictures take longer
        self.texts = cache.texts(source, chooser, text, say)
        self.latents = cache.latents(source, codec, say)

    def at(self, position: int, rows: int) -> Batch:
        """Read the batch at positions position ... position + rows - 1 of the global order."""
        return self.stored_at(position, rows).widened()

    def stored_at(self, position: int, rows: int, pinned: bool = False) -> Batch:
        """Read the same in stored dtypes: half the bytes of texts, a quarter of pixels."""
        ids = order_of(self.source, self.seed, position, rows)
        return self.stored(ids, readings(self.seed, position, rows), pinned)

    def rows(self, ids: Ids) -> Batch:
        """Read the batch of these samples, with the captions that they are judged by."""
        return self.stored(ids).widened()

    def stored(self, ids: Ids, numbers: Ids | None = None, pinned: bool = False) -> Batch:
        """Read the batch of these samples in stored dtypes, without teachers.

        `numbers` are those of the readings; without them each sample has the caption that it is
        judged by. Texts are padded to the longest of the whole source: shapes are static, and no
        row's arithmetic depends on the other rows of its batch.
        """
        emb, mask = self.texts.stored(ids, self.texts.longest, numbers, pinned)
        text = Text(emb, mask, most_tokens(mask, len(self.texts.empty)))
        return Batch(
            x0=self.latents.stored(ids, pinned),
            text=text,
            teacher={},
            ids=torch.from_numpy(np.asarray(ids, dtype=np.int64)),
            empty_text=self.texts.empty,
            geometry=torch.from_numpy(self.source.geometry(ids)) if self.geometry else None,
        )

    def ids(self, position: int, rows: int) -> NDArray[np.int64]:
        """Return the numbers of the samples of the batch at a position."""
        return order_of(self.source, self.seed, position, rows)

    def prompts_at(self, position: int, rows: int) -> list[str]:
        """Return the captions of the batch at a position."""
        numbers = readings(self.seed, position, rows)
        return drawn_prompts(self.source, self.chooser, self.ids(position, rows), numbers)


# --------------------------------------------------------------------------------------------------
# Stored rows by the numbers of their samples: of one shape, of several, and texts of any length.
# They travel to a device in their stored dtype; `widened` converts them there.


class RowCache:
    """One tensor per sample."""

    def __init__(self, rows: StoredArray) -> None:
        self._rows = rows  # (n, ...): float32, float16, or uint8 pixels
        self._kept: NDArray[np.int64] | None = None  # which of them, in which order; None: all
        self._dtype = torch_dtype(rows.dtype)

    def __len__(self) -> int:
        return len(self._rows) if self._kept is None else len(self._kept)

    def taken(self, kept: NDArray[np.int64]) -> RowCache:
        """Choose rows, numbered from zero; nothing is copied."""
        part = copy(self)
        part._kept = kept
        return part

    def stored(self, ids: Ids, pinned: bool = False) -> Tensor:
        """(B, ...) in the stored dtype; `pinned`: read straight into memory that a GPU can copy."""
        ids = ids if self._kept is None else self._kept[ids]
        shape = (len(ids), *self._rows.shape[1:])
        rows = torch.empty(shape, dtype=self._dtype, pin_memory=pinned)
        self._rows.read(ids, rows.numpy())
        return rows


class ShapedCache:
    """Tensors of several shapes: one entry for each, and rows of one shape at a time."""

    def __init__(self, parts: list[RowCache]) -> None:
        self.parts = parts
        self._starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def stored(self, ids: Ids, pinned: bool = False) -> Tensor:
        """(B, ...) in the stored dtype, of samples that have one shape."""
        owners = np.unique(np.searchsorted(self._starts, ids, side="right") - 1)
        if len(owners) != 1:
            raise ValueError(
                f"a batch has one shape; these {len(ids)} samples have {len(owners)}: ask for one"
                " batch"
            )
        number = int(owners[0])
        return self.parts[number].stored(ids - self._starts[number], pinned)


class TextCache:
    """Token embeddings of every sample's wordings in one style, packed without padding."""

    def __init__(
        self,
        tokens: StoredArray,
        ends: NDArray[Any],
        empty: NDArray[Any],
        counts: NDArray[Any] | None = None,
    ) -> None:
        self._tokens = tokens  # (all tokens, E) float16
        self._ends = np.asarray(ends)  # (wordings,) int64
        # (n,) how many wordings each sample has, and its first one; None: one each, in order, so
        # that eight bytes a sample are enough
        several = counts is not None and bool((np.asarray(counts) != 1).any())
        self._counts = np.asarray(counts, np.int64) if several else None
        self._first = None if self._counts is None else np.cumsum(self._counts) - self._counts
        self.dtype = torch_dtype(tokens.dtype)
        self.empty = torch.from_numpy(np.array(empty)).float()  # (tokens of the empty prompt, E)
        self.longest = int(max(np.diff(self._ends, prepend=0).max(initial=1), len(empty)))

    def __len__(self) -> int:
        return len(self._ends) if self._first is None else len(self._first)

    def taken(self, kept: NDArray[np.int64]) -> TextCache:
        """Choose samples, numbered from zero; nothing is copied, and `longest` stays that of
        all."""
        part = copy(self)
        part._first = kept if self._first is None else self._first[kept]
        part._counts = None if self._counts is None else self._counts[kept]
        return part

    def stored(
        self, ids: Ids, length: int | None = None, numbers: Ids | None = None, pinned: bool = False
    ) -> tuple[Tensor, Tensor]:
        """emb (B, L, E) in the stored dtype, zero where padded, and mask (B, L), true = keep.

        L is `length`, or the longest prompt of these rows. `numbers` are those of the readings;
        without them each sample has the wording that its own number decides.
        """
        one = ids if self._first is None else self._first[ids]
        if self._counts is not None:
            one = one + which_wording(ids if numbers is None else numbers, self._counts[ids])
        start = np.where(one == 0, 0, self._ends[one - 1])
        end = self._ends[one]
        longest = int((end - start).max(initial=1))
        length = longest if length is None else length
        if longest > length:
            raise ValueError(
                f"asked to pad to {length} tokens, but a prompt has {longest}; pass length >="
                f" {longest}"
            )
        shape = (len(ids), length, self.empty.shape[-1])
        emb = torch.zeros(shape, dtype=self.dtype, pin_memory=pinned)
        for prompt, first, last in zip(emb.numpy(), start.tolist(), end.tolist(), strict=True):
            self._tokens.fill(prompt[: last - first], first)
        return emb, torch.from_numpy(np.arange(length) < (end - start)[:, None])


class MixedTexts:
    """Texts of several styles, one entry for each; the chooser picks the style of each row."""

    def __init__(self, chooser: Chooser, styles: dict[int, TextCache]) -> None:
        self.chooser = chooser
        self.styles = styles  # by their place in the chooser, without those of weight zero
        some = next(iter(styles.values()))
        self.dtype = some.dtype
        self.empty = some.empty
        self.longest = max(texts.longest for texts in styles.values())

    def __len__(self) -> int:
        return len(next(iter(self.styles.values())))

    def stored(
        self, ids: Ids, length: int | None = None, numbers: Ids | None = None, pinned: bool = False
    ) -> tuple[Tensor, Tensor]:
        """As of one style; the length is that of the longest style unless it is given."""
        numbers = ids if numbers is None else numbers
        length = length or self.longest
        picked = self.chooser.pick(numbers)
        shape = (len(ids), length, self.empty.shape[-1])
        emb = torch.zeros(shape, dtype=self.dtype, pin_memory=pinned)
        mask = torch.zeros(len(ids), length, dtype=torch.bool)
        for place, texts in self.styles.items():
            mine = np.flatnonzero(picked == place)
            if len(mine):
                emb[mine], mask[mine] = texts.stored(ids[mine], length, numbers[mine])
        return emb, mask


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


# --------------------------------------------------------------------------------------------------
# The cache: what frozen networks give for a whole source, encoded once. Latents, teacher tokens,
# packed texts, scores of pairs.


def _chooser_facts(chooser: Any) -> Any:
    """What decides the texts: a dataclass's fields, or what the chooser says of itself."""
    if hasattr(chooser, "fingerprint"):
        return str(chooser.fingerprint())
    if is_dataclass(chooser) and not isinstance(chooser, type):
        return [type(chooser).__qualname__, asdict(chooser)]
    raise TypeError(
        f"the cache must know what {type(chooser).__qualname__} chooses: make it a dataclass or"
        " give it fingerprint() -> str"
    )


@dataclass(frozen=True)
class Job:
    """An entry to be filled: what decides it, and how a chunk of it is made."""

    kind: str
    facts: dict[str, Any]
    count: int  # samples
    what: str  # in words
    encode: Callable[[Ids], Arrays]  # the samples of a chunk
    abreast: bool = True  # may several chunks be made at a time?

    def chunk(self, number: int) -> Arrays:
        return self.encode(np.arange(number * CHUNK, min((number + 1) * CHUNK, self.count)))

    def numbers(self, say: Say | None = None, part: int = 0, of: int = 1) -> Iterator[int]:
        """Every `of`-th chunk from `part` on; says now and then how far it is."""
        mine = range(part, -(-self.count // CHUNK), of)
        tally = Tally("", len(mine), say)
        whose = f" (process {part + 1} of {of})" if of > 1 else ""
        for made, number in enumerate(mine, 1):
            yield number
            done = (
                f"encoding {self.what}: {min((number + 1) * CHUNK, self.count):,} of"
                f" {self.count:,}{whose}"
            )
            if made < len(mine):
                tally.tell(made, done)
            elif say:
                say(f"{done}, 0 s left")


class Cache:
    """Encodings under one directory, named by source, network, transform and dtype.

    A filtered source reads those of the source that it filters: a run with and without a filter
    sees the same numbers.
    """

    def __init__(self, root: Path) -> None:
        self.store = ArrayStore(root)
        self.quiet = False  # no progress; warnings are told all the same
        self.threads = 1  # chunks that are made side by side; the numbers are the same
        self.reading = Lock()  # a source is read by one thread at a time

    def share(self, job: Job, part: int, of: int, say: Say | None = None) -> None:
        """Make one process's chunks of an entry, for `finished` to complete; chunks that are there
        are left."""
        self.store.share(
            job.kind, job.facts, job.numbers(None if self.quiet else say, part, of), job.chunk
        )

    def finished(self, job: Job, say: Say | None = None) -> dict[str, StoredArray]:
        """The arrays of an entry; chunks that a killed process left are taken, the others are
        made."""
        with _ahead(job, self.threads) as chunk:
            return self.store.get(
                job.kind, job.facts, job.numbers(None if self.quiet else say), chunk
            )

    def _rows(self, source: Source, job: Job, say: Say | None) -> RowCache:
        """What is encoded of a source of one shape; of a filtered one, what was kept."""
        rows = RowCache(self.finished(job, say)["rows"])
        return rows.taken(source.kept) if isinstance(source, FilteredSource) else rows

    def latents(
        self, source: Source, codec: Codec, say: Say | None = None
    ) -> RowCache | ShapedCache:
        """Latents of every sample (float32); those of a pixel-space codec as bytes, exact and a
        quarter."""
        return _joined(
            [self._rows(part, self.latents_job(part, codec), say) for part in one_shaped(source)]
        )

    def latents_job(self, source: Source, codec: Codec) -> Job:
        source = _pictured(source)
        exact = isinstance(codec, IdentityCodec)
        facts = {
            "source": source.fingerprint(),
            "network": network_hash(codec),
            "transform": "pixels in [-1, 1]",
            "dtype": "uint8" if exact else "float32",
        }

        def chunk(ids: Ids) -> Arrays:
            with self.reading:
                images = source.read(ids).images
            if exact:
                return {"rows": images}
            with torch.no_grad():
                return {
                    "rows": codec.encode(to_unit(torch.from_numpy(images))).float().cpu().numpy()
                }

        return Job("latents", facts, len(source), "latents", chunk)

    def tokens(
        self, source: Source, teacher: TeacherNetwork, say: Say | None = None
    ) -> RowCache | ShapedCache:
        """A teacher's patch tokens of every sample (float16)."""
        return _joined(
            [self._rows(part, self.tokens_job(part, teacher), say) for part in one_shaped(source)]
        )

    def tokens_job(self, source: Source, teacher: TeacherNetwork) -> Job:
        source = _pictured(source)
        facts = {
            "source": source.fingerprint(),
            "network": network_hash(teacher),
            "transform": "pixels in [-1, 1]",
            "dtype": "float16",
        }

        def chunk(ids: Ids) -> Arrays:
            with self.reading:
                images = source.read(ids).images
            return {
                "rows": _half(teacher.tokens(to_unit(torch.from_numpy(images))), "teacher tokens")
            }

        return Job("teacher", facts, len(source), "teacher tokens", chunk)

    def texts(
        self, source: Source, chooser: Chooser, text: TextEncoder, say: Say | None = None
    ) -> TextCache | MixedTexts:
        """Embeddings of every prompt that the chooser may give each sample (float16), and of the
        empty prompt."""
        unknown = unread(_whole(source), chooser, text) if say else None
        if unknown and say:
            say(unknown)
        parts = {
            place: self._texts(source, job, text, say)
            for place, job in self._style_jobs(source, chooser, text)
        }
        return next(iter(parts.values())) if len(parts) == 1 else MixedTexts(chooser, parts)

    def _texts(self, source: Source, job: Job, text: TextEncoder, say: Say | None) -> TextCache:
        arrays = self.finished(job, say)
        lengths = np.asarray(arrays["lengths"])
        empty = np.asarray(arrays["empty"])
        cut = int(np.asarray(arrays["cut"]).sum()) if "cut" in arrays else 0
        if cut and say:
            longest = getattr(text, "longest", 0)
            say(
                f"warning: {cut:,} of {len(lengths):,} prompts are longer than {longest} tokens;"
                " what is over is cut"
            )
        counts = np.asarray(arrays["wordings"]) if "wordings" in arrays else None
        texts = TextCache(arrays["tokens"], np.cumsum(lengths, dtype=np.int64), empty, counts)
        return texts.taken(source.kept) if isinstance(source, FilteredSource) else texts

    def texts_jobs(self, source: Source, chooser: Chooser, text: TextEncoder) -> list[Job]:
        """An entry for each style that can occur: runs that mix them and runs of one share it."""
        return [job for _, job in self._style_jobs(source, chooser, text)]

    def _style_jobs(
        self, source: Source, chooser: Chooser, text: TextEncoder
    ) -> list[tuple[int, Job]]:
        weights = chooser.weights if isinstance(chooser, Chooser) else (1.0,)
        styles = [
            (place, one) for place, one in enumerate(one_by_one(chooser)) if weights[place] > 0
        ]
        return [(place, self._style_job(_whole(source), style, text)) for place, style in styles]

    def _style_job(self, source: Source, chooser: Chooser, text: TextEncoder) -> Job:
        unread(source, chooser, text)  # refused before anything is encoded
        several = hasattr(source, "wordings")  # the world words a style in one way
        facts = {
            "source": source.fingerprint(),
            "network": network_hash(text),
            "chooser": _chooser_facts(chooser),
            "transform": (
                "all wordings, packed, with lengths" if several else "packed, with lengths"
            ),
            "dtype": "float16",
        }

        def packed(prompts: list[str]) -> tuple[NDArray[Any], Tensor]:
            emb, mask = text.encode(prompts)
            return _half(emb[mask], "text embeddings"), mask

        def chunk(ids: Ids) -> Arrays:
            before = getattr(text, "cut", 0)
            with self.reading:
                choices = wordings(source, chooser, ids)
            try:
                tokens, mask = packed([prompt for each in choices for prompt in each])
            except ValueError as error:  # a caption that the encoder cannot read
                raise BadInput(
                    f"among samples {ids[0]} to {ids[-1]}: {error}",
                    "change the caption, or the text encoder",
                ) from None
            lengths = mask.sum(1).cpu().numpy().astype(np.int32)
            cut = np.array([getattr(text, "cut", 0) - before], np.int32)
            empty = {} if ids[0] else {"empty": packed([""])[0]}  # once, beside the first samples
            counts = (
                {"wordings": np.array([len(each) for each in choices], np.int32)} if several else {}
            )
            return {"tokens": tokens, "lengths": lengths, "cut": cut, **counts, **empty}

        # else a count would mix
        return Job("texts", facts, len(source), "texts", chunk, abreast=not hasattr(text, "cut"))

    def scores(
        self, source: Source, chooser: Chooser, asset: str = "score", say: Say | None = None
    ) -> NDArray[Any]:
        """How well each sample's picture and prompt fit by a shipped scorer: (n,) float32, higher
        fits better. Of several styles the mean by weight: which one a reading will get is not known
        beforehand."""
        weights = np.asarray(chooser.weights)
        each = [
            self._scores(source, style, asset, say)
            for style, weight in zip(one_by_one(chooser), weights, strict=True)
            if weight > 0
        ]
        return (
            each[0]
            if len(each) == 1
            else np.average(each, axis=0, weights=weights[weights > 0]).astype(np.float32)
        )

    def _scores(
        self, source: Source, chooser: Chooser, asset: str, say: Say | None
    ) -> NDArray[Any]:
        scorer = load_scorer(asset)
        facts = {
            "source": source.fingerprint(),
            "network": network_hash(scorer),
            "chooser": _chooser_facts(chooser),
            "dtype": "float32",
        }

        def chunk(ids: Ids) -> Arrays:
            with self.reading:
                images = torch.from_numpy(source.read(ids).images)
                prompts = source.prompts(chooser, ids)
            return {"scores": scorer.score(images, prompts).numpy()}

        return np.asarray(
            self.finished(Job("scores", facts, len(source), "scores", chunk), say)["scores"]
        )

    def captions(
        self, source: Source, style: str, drawn: bool, say: Say | None = None
    ) -> list[str]:
        """What the shipped captioner writes about each picture of a source; with `drawn`, words by
        their probability."""
        captioner = load_captioner()
        facts = {
            "source": source.fingerprint(),
            "network": network_hash(captioner),
            "style": style,
            "drawn": drawn,
        }

        def chunk(ids: Ids) -> Arrays:
            with self.reading:
                images = torch.from_numpy(source.read(ids).images)
            return {
                "rows": (
                    captioner.ids(images, style, word_dice(ids, style) if drawn else None).numpy()
                )
            }

        rows = self.finished(Job("captions", facts, len(source), f"{style} captions", chunk), say)[
            "rows"
        ]
        return [captioner.text(row) for row in np.asarray(rows).tolist()]


@contextmanager
def _ahead(job: Job, threads: int) -> Iterator[Callable[[int], Arrays]]:
    """A job's chunks, several made at a time. One thread makes the whole of a chunk, so that its
    bits do not depend on how many there are; two that share every operator would also wait for each
    other at its end."""
    if threads == 1 or not job.abreast:
        yield job.chunk
        return
    made: dict[int, Future[Arrays]] = {}
    last = -(-job.count // CHUNK)
    threads_before = torch.get_num_threads()

    def alone(number: int) -> Arrays:
        # of the process, and of this thread's own OpenMP team: both are needed
        torch.set_num_threads(1)
        with torch.no_grad():
            return job.chunk(number)

    with ThreadPoolExecutor(threads, thread_name_prefix="encode", **on_this_gpu()) as pool:

        def chunk(number: int) -> Arrays:
            for later in range(number, min(number + threads, last)):
                if later not in made:
                    made[later] = pool.submit(alone, later)
            return made.pop(number).result()

        try:
            yield chunk
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads_before)


def _joined(parts: list[RowCache]) -> RowCache | ShapedCache:
    return parts[0] if len(parts) == 1 else ShapedCache(parts)


def _whole(source: Source) -> Source:
    """The source whose samples are encoded: a filter chooses among them and makes none."""
    return source.inner if isinstance(source, FilteredSource) else source


def _pictured(source: Source) -> Source:
    """The source that draws the pictures: other words change none of them."""
    source = _whole(source)
    return source.inner if isinstance(source, RecaptionedSource) else source


def _half(values: Tensor, what: str) -> NDArray[Any]:
    """As float16, refused where that would overflow."""
    half = values.half().cpu().numpy()
    if not np.isfinite(half).all():
        raise RunFailed(
            f"the {what} do not fit half precision: the largest is {float(values.abs().max()):g}",
            "such a network cannot be cached; is its folder whole?",
        )
    return half
