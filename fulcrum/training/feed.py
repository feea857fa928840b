"""The feed: batch and draw of any stretch of a run, prefetched by a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.data.mix import one_shaped
from fulcrum.data.source import Ids, Source
from fulcrum.networks.batch import Batch, Encoder
from fulcrum.networks.cache import Cache, Job, RowCache, ShapedCache
from fulcrum.networks.codec import IdentityCodec
from fulcrum.networks.network_hash import on_this_gpu
from fulcrum.networks.protocols import Codec, TextEncoder
from fulcrum.networks.teacher import OnGrid
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.run import RunSpec
from fulcrum.spec.slots import DataContext, Normal
from fulcrum.spec.stage import Phase, phases
from fulcrum.training.dist.machine import moved, settled
from fulcrum.training.flow.noise import Draw, DrawPlace, Draws

# --------------------------------------------------------------------------------------------------
# The feed: batch and draw of any stretch of a run, as a pure function of the position.


FAR_CHUNKS = 2  # of what is encoded that a device other than the CPU has at a time


class Ready(NamedTuple):
    """What one phase reads and draws."""

    run: RunSpec
    encoder: Encoder
    draws: Draws
    teachers: dict[str, RowCache | ShapedCache]  # by name; made when first read


class StagedBatch(NamedTuple):
    """The host's part of one stretch: what is read, in stored dtypes and where a GPU can copy it
    from, and the times."""

    position: int
    ready: Ready
    batch: Batch
    times: Tensor  # (B,)


class Feed:
    def __init__(
        self,
        run: RunSpec,
        seed: int,
        cache: Path,
        say: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        self.run, self.seed, self.root, self.cache, self.say = run, seed, cache, Cache(cache), say
        self.device = device  # where batches are handed over, and the networks compute
        self.compiled = False  # is noise made there by compiled code?
        self.phases = phases(run)
        # made when a phase begins; staged data costs nothing before
        self.ready: dict[int, Ready] = {}
        self.networks: dict[str, Any] = {}
        self.told: set[str] = set()  # what networks said of themselves
        self.frees = False  # do codec and text encoder leave as soon as a phase is ready?
        # is something being encoded, or opened, for a batch? Others may wait for it in their step
        self.encoding = False

    def at(self, position: int, rows: int | None = None) -> tuple[Batch, Draw]:
        """Batch and draw of the images position … position + rows - 1."""
        return self.landed(self.staged(position, rows or self.run.budget.batch))

    def staged(self, position: int, rows: int) -> StagedBatch:
        """The part of it that can be done ahead, beside a step: no operation of the device is in
        it."""
        ready, pinned = self._phase(position), self.device == "cuda"
        batch = ready.encoder.stored_at(position, rows, pinned)
        ids = batch.ids.numpy()
        teacher = {
            name: self._tokens(ready, name).stored(ids, pinned)
            for name in self._teachers(ready.run, position)
        }
        times = _shaped(ready, batch).times(position, rows)
        return StagedBatch(position, ready, batch._replace(teacher=teacher), times)

    def landed(self, staged: StagedBatch) -> tuple[Batch, Draw]:
        """The rest of it, on the device: widened there, and all noise made there."""
        batch, times = moved((staged.batch, staged.times), self.device)
        draws, place = _shaped(staged.ready, batch), DrawPlace(self.device, self.compiled)
        return batch.widened(), draws.at(staged.position, len(times), place, times)

    def is_ready(self, position: int) -> bool:
        """Is all encoded and open that this image's batch is read from? What is not is made when it
        is asked for."""
        number = self._number(position)
        if number not in self.ready:
            return False
        ready = self.ready[number]
        return all(name in ready.teachers for name in self._teachers(ready.run, position))

    def encode_abreast(self, threads: int) -> None:
        """Encode so many chunks side by side, on a CPU one for each thread. A device would have all
        of them in its memory: there two, of which one is read while the other is computed."""
        self.cache.threads = (
            threads if torch.device(self.device).type == "cpu" else min(threads, FAR_CHUNKS)
        )

    def tell(self, line: str) -> None:
        """To the person, if anyone listens."""
        if self.say is not None:
            self.say(line)

    def ids_at(self, position: int, rows: int) -> Ids:
        """Which samples of the source these images are; they may be those of several batches."""
        return self._phase(position).encoder.ids(position, rows)

    def weights(self, position: int) -> dict[str, float]:
        """Which terms are on at this position, and how much each counts."""
        run = next(
            (phase.run for phase in self.phases if position < phase.end), self.phases[-1].run
        )
        weights = {
            term.name: term.weight_at(position / self.run.budget.images) for term in run.terms
        }
        return {name: weight for name, weight in weights.items() if weight}

    def prompts_at(self, position: int, rows: int) -> list[str]:
        """The captions that these images are trained with."""
        return self._phase(position).encoder.prompts_at(position, rows)

    def sight(self, rows: int) -> tuple[int, list[str]]:
        """How many pictures the first phase has, and the captions of a few; nothing is encoded for
        it."""
        run = self.phases[0].run
        ctx = DataContext(run, self.cache, self.say)
        source, chooser = run.data.source.build(ctx), run.data.caption.build(ctx)
        return len(source), source.prompts(chooser, np.arange(min(rows, len(source))))

    def teachers(self) -> dict[str, OnGrid]:
        """The networks whose tokens some term reads when its phase begins."""
        return {
            name: self._teacher(phase.run, name)
            for phase in self.phases
            for name in self._teachers(phase.run, phase.start)
        }

    def source_at(self, position: int) -> Source:
        """The built source that this image is read from."""
        return self._phase(position).encoder.source

    def codec(self) -> Codec:
        codec: Codec = self._network("codec", self.run.encode.codec)
        return codec

    def text(self) -> TextEncoder:
        text: TextEncoder = self._network("text", self.run.encode.text)
        return text

    def let_go(self, position: int) -> None:
        """From now on codec and text encoder leave as soon as all that a phase reads of them is
        cached: at once, if that of `position` is. Whoever asks for one later has it loaded again. A
        teacher leaves by itself."""
        self.frees = True
        if self._number(position) in self.ready:
            self._free()

    def _free(self) -> None:
        for name in ("codec", "text"):
            self.networks.pop(name, None)

    def jobs(self) -> list[Job]:
        """Every entry of the cache that the run reads, whatever its phase, so that all can be
        filled beforehand."""
        jobs: dict[str, Job] = {}
        for phase in self.phases:
            run, ctx = phase.run, DataContext(phase.run, self.cache, self.say)
            source, chooser = run.data.source.build(ctx), run.data.caption.build(ctx)
            parts = one_shaped(source)  # pictures of several shapes: an entry for each
            entries = [
                *(self.cache.latents_job(part, stored(run, self.codec())) for part in parts),
                *self.cache.texts_jobs(source, chooser, self.text()),
            ]
            read = {
                name
                for at in range(phase.start, phase.end, run.budget.batch)
                for name in self._teachers(run, at)
            }
            entries += [
                self.cache.tokens_job(part, self._teacher(run, name))
                for name in sorted(read)
                for part in parts
            ]
            jobs |= {f"{job.kind} {job.facts}": job for job in entries}
        return list(jobs.values())

    def _teachers(self, run: RunSpec, position: int) -> list[str]:
        """Teachers that some term reads here; a term that is off costs nothing. A batch is on or
        off as a whole."""
        images, batch = self.run.budget.images, self.run.budget.batch
        progress = position // batch * batch / images
        return sorted(
            {name for term in run.terms if term.weight_at(progress) for name in term.teachers()}
        )

    def _tokens(self, ready: Ready, name: str) -> RowCache | ShapedCache:
        """A teacher's tokens of the phase's pictures, on the model's grid: resized once, when they
        are cached."""
        if name not in ready.teachers:
            with self._encoding():
                ready.teachers[name] = self.cache.tokens(
                    ready.encoder.source, self._teacher(ready.run, name), self.say
                )
            # all that it says is cached: it need not stay
            self.networks.pop(f"teacher {ready.run.encode.teacher(name)}")
        return ready.teachers[name]

    def _teacher(self, run: RunSpec, name: str) -> OnGrid:
        teacher = run.encode.teacher(name)
        if teacher is None:
            known = [one.name for one in run.encode.teachers]
            raise BadInput(
                f"a term reads the teacher '{name}', which the run does not have",
                nearest(name, known),
            )
        side = isqrt(run.tokens)
        return OnGrid(self._network(f"teacher {teacher}", teacher), side, run.data.size // side)

    def _network(self, name: str, filler: Any) -> Any:
        if name not in self.networks:
            self.networks[name] = settled(filler.build(None), self.device)
            # what a pretrained part found out about itself
            for line in getattr(self.networks[name], "notes", ()):
                if line not in self.told:  # said once, however often it is loaded
                    self.told.add(line)
                    self.tell(line)
        return self.networks[name]

    def _phase(self, position: int) -> Ready:
        number = self._number(position)
        if number not in self.ready:
            with self._encoding():
                self.ready = {number: self._prepare(self.phases[number])}
            if self.frees:
                self._free()
        return self.ready[number]

    @contextmanager
    def _encoding(self) -> Iterator[None]:
        self.encoding = True
        try:
            yield
        finally:
            self.encoding = False

    def _number(self, position: int) -> int:
        """Which phase this image belongs to."""
        return next(
            (i for i, phase in enumerate(self.phases) if position < phase.end), len(self.phases) - 1
        )

    def _prepare(self, phase: Phase) -> Ready:
        run = phase.run
        ctx = DataContext(run, self.cache, self.say)
        source, chooser = run.data.source.build(ctx), run.data.caption.build(ctx)
        codec, text, geometry = stored(run, self.codec()), self.text(), run.model.condition.geometry
        encoder = Encoder(source, chooser, self.seed, codec, text, self.cache, self.say, geometry)
        side = run.data.size // run.encode.codec.stride
        draws = Draws(
            seed=self.seed,
            time=run.flow.time.build(ctx),
            shape=(run.encode.codec.channels, side, side),
            drop_text=run.flow.drop_text,
            noise_scale=run.flow.noise_scale,
            needs=needs(run),
        )
        return Ready(run, encoder, draws, teachers={})


def stored(run: RunSpec, codec: Codec) -> Codec:
    """What the cache keeps latents of: pixels, if the codec is trained and says something else
    after every step."""
    return IdentityCodec() if run.encode.codec.trained else codec


def _shaped(ready: Ready, batch: Batch) -> Draws:
    """How draws are made for a batch of this shape."""
    codec = ready.run.encode.codec
    pixels = codec.stride if codec.trained else 1  # of a cell, in what the batch holds
    height, width = (side // pixels for side in batch.x0.shape[-2:])
    if (height, width) == ready.draws.shape[1:]:
        return ready.draws
    return ready.draws._replace(
        shape=(codec.channels, height, width), needs=needs(ready.run, (height, width))
    )


def needs(run: RunSpec, cells: tuple[int, int] | None = None) -> dict[str, Any]:
    """Random numbers that the run's fillers declare beyond time, noise and dropped captions; for
    latents of rows and columns `cells`, else square ones."""
    side = run.data.size // run.encode.codec.stride
    height, width = cells or (side, side)
    draws: dict[str, Any] = run.model.route.draws(
        (height // run.model.patch, width // run.model.patch)
    )
    for owner, filler in [("codec", run.encode.codec), *((term.name, term) for term in run.terms)]:
        for name, need in getattr(filler, "draws", dict)().items():
            latent = isinstance(need, Normal) and not need.shape
            draws[f"{owner}/{name}"] = (
                Normal((run.encode.codec.channels, height, width)) if latent else need
            )
    return draws


# --------------------------------------------------------------------------------------------------
# A feed that keeps ahead of the loop: while a step runs, a thread reads the next two stretches.
#
# Batches and draws are pure functions of the position, so what is made ahead is what the loop would
# have made itself. The thread does the host's part only (`Feed.staged`): it reads into pinned
# memory and touches no device. On a CPU nothing is made ahead: there the thread would take its time
# from the step (docs/decisions/0059).


AHEAD = 2  # stretches: one that is being read while one lies ready
Stretch = tuple[int, int]  # the first image, and how many


class FeedAhead:
    """`at` of these stretches, in their order.

    No more than AHEAD of them are held: the next one is begun when one is taken. What must be
    encoded or opened first, at the beginning of a phase say, is made by the loop itself, where
    Ctrl-C ends it. An error of the thread is raised, as itself, where its stretch is asked for.
    """

    def __init__(self, feed: Feed, stretches: Iterable[Stretch], pool: ThreadPoolExecutor) -> None:
        self.feed, self.pool = feed, pool
        self.coming = iter(stretches)
        # None: the loop must make it
        self.begun: deque[tuple[Stretch, Future[StagedBatch] | None]] = deque()

    def at(self, position: int, rows: int) -> tuple[Batch, Draw]:
        self._begin()
        stretch, staged = self.begun.popleft() if self.begun else (None, None)
        if stretch != (position, rows):
            raise ValueError(
                f"the feed was told that {stretch} comes next, and was asked for {(position, rows)}"
            )
        pair = self.feed.at(position, rows) if staged is None else self.feed.landed(staged.result())
        self._begin()
        return pair

    def _begin(self) -> None:
        """Begin what may be begun; behind a stretch that the loop must make nothing is."""
        while len(self.begun) < AHEAD and not (self.begun and self.begun[-1][1] is None):
            stretch = next(self.coming, None)
            if stretch is None:
                return
            ready = self.feed.is_ready(stretch[0])
            self.begun.append(
                (stretch, self.pool.submit(self.feed.staged, *stretch) if ready else None)
            )


@contextmanager
def feeding(feed: Feed, stretches: Iterable[Stretch]) -> Iterator[Feed | FeedAhead]:
    """The feed itself on a CPU, elsewhere one that keeps ahead; its thread ends with the block,
    however that ends."""
    if torch.device(feed.device).type == "cpu":
        yield feed
        return
    # else it would pin its memory by way of the first GPU
    pool = ThreadPoolExecutor(1, "feed", **on_this_gpu())
    try:
        yield FeedAhead(feed, stretches, pool)
    finally:
        pool.shutdown(cancel_futures=True)
