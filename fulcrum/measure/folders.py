"""Two sets of pictures on disk, one pass over each, every metric of every extractor, resumable.

B pictures of a chunk, n of a set, d feature width
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.judge.card import Measured, Sampling
from fulcrum.measure import evaluate
from fulcrum.measure.evaluate import Comparison, FeatureSet
from fulcrum.measure.features.extractor import Extractor, digest_of
from fulcrum.measure.features.kept import CHUNK, FeatureStore, PictureFacts
from fulcrum.measure.metrics.means import ClipScore
from fulcrum.measure.pictures import BadPicture, PictureSet, Stored, set_hash
from fulcrum.spec.errors import BadInput, shown

CLIP_SCORE = ClipScore()
Progress = Callable[[int], None]


class Seen:
    """What a pass over a set of pictures found."""

    def __init__(self, name: str, features: FeatureSet) -> None:
        self.name = name
        self.n = 0
        self.keys: list[bytes] = []
        self.captions: list[str | None] = []
        self.features = features
        self.skipped: list[tuple[str, str]] = []  # file, why
        self.notes: Counter[str] = Counter()
        self.sizes: Counter[tuple[int, int]] = Counter()
        self.ignored: Counter[str] = Counter()

    @property
    def hash(self) -> str:
        return set_hash(self.keys)

    def scored(self, part: Extractor) -> bool:
        """Did every picture come with a caption that this extractor scored?"""
        return part.score is not None and self.features.count(part.name, CLIP_SCORE) == self.n

    def about(self) -> dict[str, Any]:
        sizes = [f"{width}x{height}" for (height, width), _ in self.sizes.most_common(4)]
        return {
            "path": self.name,
            "n": self.n,
            "hash": self.hash,
            "sizes": sizes,
            "notes": dict(self.notes),
            "ignored": dict(self.ignored),
            "skipped": [{"file": file, "why": why} for file, why in self.skipped],
        }


class Policy(NamedTuple):
    skip_bad: bool = False
    any_size: bool = False  # each picture is resized by the extractor on its own


class _Waiting(NamedTuple):
    """A picture of the chunk at hand."""

    stored: Stored
    key: bytes
    pixels: Tensor | None  # (3, H, W), none when every extractor knows it already
    facts: PictureFacts


class Pass:
    """One pass over a set: every extractor sees a picture while it is in memory."""

    def __init__(
        self,
        comparisons: Sequence[Comparison],
        cache: Path,
        reference: bool,
        policy: Policy | None = None,
        keep: bool = False,
    ) -> None:
        self.extractors = [part for part, _ in comparisons]
        self.reference, self.policy, self.keep = reference, policy or Policy(), keep
        self.stores = {
            part.name: FeatureStore(cache, part.hash, part.width) for part in self.extractors
        }
        self.scorer = (
            next((part for part in self.extractors if part.score is not None), None)
            if not reference
            else None
        )
        self.scores = (
            FeatureStore(cache, digest_of("score", self.scorer.hash), 1) if self.scorer else None
        )
        self.comparisons = [
            Comparison(part, [*metrics, CLIP_SCORE] if part is self.scorer else metrics)
            for part, metrics in comparisons
        ]

    def look(self, pictures: PictureSet, progress: Progress | None = None) -> Seen:
        seen = Seen(shown(pictures.path), FeatureSet(self.comparisons, self.reference, self.keep))
        done = 0
        for chunk in _chunks(iter(pictures)):
            waiting = [
                one for stored in chunk if (one := self._admit(pictures, stored, seen)) is not None
            ]
            self._take(waiting, seen)
            done += len(chunk)
            if progress:
                progress(done)
        seen.ignored = +pictures.ignored
        if seen.n == 0:
            if not seen.skipped:
                raise BadInput(
                    f"{shown(pictures.path)} holds no pictures",
                    "it is empty: look at how it was made",
                )
            raise BadInput(
                f"{shown(pictures.path)} holds no usable picture: {len(seen.skipped)} were skipped",
                f"the first: {seen.skipped[0][0]}: {seen.skipped[0][1]}",
            )
        return seen

    def _admit(self, pictures: PictureSet, stored: Stored, seen: Seen) -> _Waiting | None:
        key = stored.key(pictures.policy)
        try:
            if stored.refused is None and all(
                key in store for store in self._all_stores(stored, key)
            ):
                facts = next(iter(self.stores.values())).get(key)[1]
                pixels = None
            else:
                decoded = pictures.decode(stored)
                pixels = torch.from_numpy(decoded.pixels)
                facts = PictureFacts.of(pixels.shape[1], pixels.shape[2], decoded.notes)
            self._fits(facts, seen)
        except BadPicture as error:
            if not self.policy.skip_bad:
                raise error.named(stored.name) from None
            seen.skipped.append((stored.name, error.why))
            return None
        seen.sizes[facts[0], facts[1]] += 1
        return _Waiting(stored, key, pixels, facts)

    def _all_stores(self, stored: Stored, key: bytes) -> Iterator[Any]:
        yield from self.stores.values()
        if self.scores is not None and stored.caption is not None:
            yield {key} if _with_caption(key, stored.caption) in self.scores else ()

    def _fits(self, facts: PictureFacts, seen: Seen) -> None:
        if seen.sizes and not self.policy.any_size and facts[:2] not in seen.sizes:
            (height, width), _ = next(iter(seen.sizes.items()))
            raise BadPicture(
                f"{facts[1]} x {facts[0]} pixels, and those before it {width} x {height}",
                "--any-size lets the extractor resize each on its own",
            )

    def _take(self, waiting: list[_Waiting], seen: Seen) -> None:
        """Features of a chunk: known ones from disk, the others computed and written before
        anything else happens."""
        bad: dict[bytes, str] = {}
        for part in self.extractors:
            bad |= self._compute(part, self.stores[part.name], waiting)
        good = [one for one in waiting if one.key not in bad]
        seen.skipped += [(one.stored.name, bad[one.key]) for one in waiting if one.key in bad]
        if not good:
            return
        ids = np.arange(seen.n, seen.n + len(good))
        for part in self.extractors:
            rows = torch.stack([self.stores[part.name].get(one.key)[0] for one in good])
            seen.features.update(part.name, rows, ids)
        if (
            self.scorer is not None
            and self.scores is not None
            and all(one.stored.caption is not None for one in good)
        ):
            self._score(good, seen, ids)
        seen.n += len(good)
        seen.keys += [one.key for one in good]
        seen.captions += [one.stored.caption for one in good]
        seen.notes.update(note for one in good for note in one.facts.notes)

    def _compute(
        self, part: Extractor, store: FeatureStore, waiting: list[_Waiting]
    ) -> dict[bytes, str]:
        # the same picture twice is looked at once
        new = {one.key: one for one in waiting if one.key not in store}
        rows: dict[bytes, Tensor] = {}
        bad: dict[bytes, str] = {}
        for same in _by_size(new.values()):
            try:
                features = part.rows(
                    torch.stack([one.pixels for one in same if one.pixels is not None])
                )
                rows |= {one.key: row for one, row in zip(same, features, strict=True)}
            except ValueError:
                for one in same:  # one by one: the culprit has a name
                    try:
                        assert one.pixels is not None
                        rows[one.key] = part.rows(one.pixels[None])[0]
                    except ValueError as error:
                        why = BadPicture(f"the extractor '{part.name}' failed on it: {error}")
                        if not self.policy.skip_bad:
                            raise why.named(one.stored.name) from None
                        bad[one.key] = why.why
        if rows:
            store.put(
                list(rows), torch.stack(list(rows.values())), [new[key].facts for key in rows]
            )
        return bad

    def _score(self, good: list[_Waiting], seen: Seen, ids: Any) -> None:
        assert self.scorer is not None and self.scorer.score is not None and self.scores is not None
        named = [_with_caption(one.key, one.stored.caption or "") for one in good]
        new = {key: one for key, one in zip(named, good, strict=True) if key not in self.scores}
        values = [
            self.scorer.score(one.pixels[None], [one.stored.caption or ""])
            for one in new.values()
            if one.pixels is not None
        ]  # alone: padding of a longer caption must not reach a shorter one
        self.scores.put(
            list(new),
            torch.stack(values) if values else torch.zeros(0, 1),
            [one.facts for one in new.values()],
        )
        seen.features.score(
            self.scorer.name, torch.stack([self.scores.get(key)[0] for key in named]), ids
        )


def compare(
    pictures: Seen,
    reference: Seen,
    comparisons: Sequence[Comparison],
    progress: Callable[[str], None] | None = None,
) -> dict[str, Measured]:
    """Every metric of the pictures against the reference, under its name (`extractor.metric` unless
    embedded)."""
    needed = max(
        (metric for _, metrics in comparisons for metric in metrics),
        key=lambda metric: metric.minimum,
    )
    for side in (pictures, reference):
        if side.n < needed.minimum:
            raise BadInput(
                f"{side.name} holds {side.n} pictures, and {needed.name} needs at least"
                f" {needed.minimum}",
                "a number from fewer would be noise; take more pictures"
                + (f" ({len(side.skipped)} were skipped)" if side.skipped else ""),
            )
    keys = {part.name: reference.hash for part, _ in comparisons}
    sides = pictures.features, reference.features, pictures.n, keys
    measured = evaluate.compare(comparisons, *sides, progress=progress)
    scored = [Comparison(part, [CLIP_SCORE]) for part, _ in comparisons if pictures.scored(part)]
    sampling = Sampling(prompts=digest_of(pictures.captions)[:16])
    return measured | evaluate.compare(scored, *sides, sampling=sampling)


class MeasuredSets(NamedTuple):
    """Two sets of pictures, and every metric of the one against the other."""

    pictures: Seen
    reference: Seen
    metrics: dict[str, Measured]


def measure_sets(
    pictures: PictureSet,
    reference: PictureSet,
    comparisons: Sequence[Comparison],
    cache: Path,
    policy: Policy | None = None,
    keep: bool = False,
    progress: Callable[[PictureSet], Progress] | None = None,
    computing: Callable[[str], None] | None = None,
) -> MeasuredSets:
    """One pass over each set, then the metrics. `keep` holds the rows of the pictures, for a curve
    over their number."""
    looks = Pass(comparisons, cache, False, policy, keep), Pass(comparisons, cache, True, policy)
    drawn, held = (
        look.look(side, progress(side) if progress else None)
        for look, side in zip(looks, (pictures, reference), strict=True)
    )
    return MeasuredSets(drawn, held, compare(drawn, held, comparisons, computing))


LABELS: Mapping[tuple[str, str], str] = {  # what a metric is called in a network's space
    ("inception", "frechet"): "FID",
    ("inception", "frechet_limit"): "FID, N → ∞",
    ("inception", "kid"): "KID",
    ("inception-torch", "frechet"): "FID (pytorch-fid's resize)",
    ("clip", "mmd_published"): "CMMD as published",
    ("clip", "mmd"): "CMMD, unbiased",
    ("dino", "mmd_published"): "DINO-MMD as published",
    ("dino", "mmd"): "DINO-MMD, unbiased",
    ("dino", "frechet"): "FD-DINO",
}


def _chunks(pictures: Iterator[Stored]) -> Iterator[list[Stored]]:
    chunk: list[Stored] = []
    for picture in pictures:
        chunk.append(picture)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _by_size(waiting: Any) -> list[list[_Waiting]]:
    sizes: dict[tuple[int, int], list[_Waiting]] = {}
    for one in waiting:
        sizes.setdefault(one.facts[:2], []).append(one)
    return list(sizes.values())


def _with_caption(key: bytes, caption: str) -> bytes:
    import hashlib

    return hashlib.sha256(key + caption.encode()).digest()
