"""The feed: batch and draw of any stretch of a run, as a pure function of the position.

    position ──► Feed.read ──► stored rows and times, on the host
                                   └──► Feed.to_device ──► Batch, Draw

`Feed.at` does both where it is called. `Feed.batches` does both for stretches in their order, and
on a device other than the CPU a thread reads ahead.

B images of a stretch
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fulcrum.data.captions import Chooser
from fulcrum.data.mix import one_shaped
from fulcrum.data.source import Ids, Source
from fulcrum.files.prefetch import prefetched
from fulcrum.networks.codec import IdentityCodec
from fulcrum.networks.network_hash import on_this_gpu
from fulcrum.networks.protocols import Codec, TextEncoder
from fulcrum.networks.rows import Batch, Cache, Encoder, Job, RowCache, ShapedCache
from fulcrum.networks.teacher import OnGrid
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.run import RunSpec
from fulcrum.spec.slots import DataContext, Need, Normal
from fulcrum.spec.stage import Phase, phases
from fulcrum.training.dist.machine import moved, settled
from fulcrum.training.flow.noise import Draw, DrawPlace, Draws

FAR_CHUNKS = 2  # of what is encoded that a device other than the CPU has at a time
READ_AHEAD = 2  # stretches: one that is being read while one is ready
Stretch = tuple[int, int]  # the first image, and how many


class Ready(NamedTuple):
    """What one phase reads and draws."""

    run: RunSpec
    encoder: Encoder
    draws: Draws
    teachers: dict[str, RowCache | ShapedCache]  # by name; made when first read


class HostBatch(NamedTuple):
    """The host's part of one stretch."""

    position: int
    batch: Batch  # in stored dtypes
    times: Tensor  # (B,)
    draws: Draws  # what the device draws by


class Feed:
    def __init__(
        self,
        run: RunSpec,
        seed: int,
        cache: Path,
        say: Callable[[str], None] | None = None,
        device: str = "cpu",
    ) -> None:
        self.run = run
        self.seed = seed
        self.root = cache
        self.cache = Cache(cache)
        self.say = say
        # where batches are handed over, and the networks compute; every name of the CPU is "cpu"
        self.device = "cpu" if torch.device(device).type == "cpu" else str(device)
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
        """Return batch and draw of the images position ... position + rows - 1."""
        return self.to_device(self.read(position, rows or self.run.budget.batch))

    def batches(self, stretches: Iterable[Stretch]) -> Generator[tuple[Batch, Draw], None, None]:
        """Yield batch and draw of each stretch, in order. Close the generator to end its thread.

        On a CPU nothing is read ahead: a thread would take its time from the step
        (docs/decisions/0059). On another device a thread reads the next stretches while a step
        runs. What must be encoded or opened first, at the beginning of a phase for example, is made
        by the caller's thread, where Ctrl-C ends it.
        """
        if torch.device(self.device).type == "cpu":
            for stretch in stretches:
                yield self.at(*stretch)
            return
        for is_ready, group in groupby(stretches, lambda stretch: self.is_ready(stretch[0])):
            if not is_ready:
                for stretch in group:
                    yield self.at(*stretch)
                continue
            # the thread takes this process's GPU: it would pin memory by way of the first one
            settings = {"thread_name_prefix": "feed", **on_this_gpu()}
            read = prefetched(lambda stretch: self.read(*stretch), group, READ_AHEAD, **settings)
            with closing(read):
                yield from map(self.to_device, read)

    def read(self, position: int, rows: int) -> HostBatch:
        """Do the host's part of `at`, which a thread can do beside a step: read rows in stored
        dtypes, pinned for a GPU, and make the times. No operation of the device is in it."""
        ready = self._phase(position)
        pinned = self.device == "cuda"
        batch = ready.encoder.stored_at(position, rows, pinned)
        ids = batch.ids.numpy()
        teacher = {
            name: self._tokens(ready, name).stored(ids, pinned)
            for name in self._teachers(ready.run, position)
        }
        draws = draws_for(ready, batch)
        times = draws.times(position, rows)
        return HostBatch(position, batch._replace(teacher=teacher), times, draws)

    def to_device(self, read: HostBatch) -> tuple[Batch, Draw]:
        """Do the device's part: copy what was read, widen it there, and make all noise there."""
        batch, times = read.batch, read.times
        if self.device != "cpu":
            batch, times = moved((batch, times), self.device)
        place = DrawPlace(self.device, self.compiled)
        return batch.widened(), read.draws.at(read.position, len(times), place, times)

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
        run = self.phases[self._number(position)].run
        progress = position / self.run.budget.images
        weights = {term.name: term.weight_at(progress) for term in run.terms}
        return {name: weight for name, weight in weights.items() if weight}

    def prompts_at(self, position: int, rows: int) -> list[str]:
        """The captions that these images are trained with."""
        return self._phase(position).encoder.prompts_at(position, rows)

    def sight(self, rows: int) -> tuple[int, list[str]]:
        """How many pictures the first phase has, and the captions of a few; nothing is encoded for
        it."""
        source, chooser = self._data(self.phases[0].run)
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
            run = phase.run
            source, chooser = self._data(run)
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

    def _data(self, run: RunSpec) -> tuple[Source, Chooser]:
        context = DataContext(run, self.cache, self.say)
        return run.data.source.build(context), run.data.caption.build(context)

    def _prepare(self, phase: Phase) -> Ready:
        run = phase.run
        source, chooser = self._data(run)
        encoder = Encoder(
            source,
            chooser,
            self.seed,
            stored(run, self.codec()),
            self.text(),
            self.cache,
            self.say,
            run.model.condition.geometry,
        )
        side = run.data.size // run.encode.codec.stride
        draws = Draws(
            seed=self.seed,
            time=run.flow.time.build(DataContext(run, self.cache, self.say)),
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


def draws_for(ready: Ready, batch: Batch) -> Draws:
    """Return how draws are made for a batch of this shape."""
    codec = ready.run.encode.codec
    pixels = codec.stride if codec.trained else 1  # of a cell, in what the batch holds
    height, width = (side // pixels for side in batch.x0.shape[-2:])
    if (height, width) == ready.draws.shape[1:]:
        return ready.draws
    return ready.draws._replace(
        shape=(codec.channels, height, width), needs=needs(ready.run, (height, width))
    )


def needs(run: RunSpec, cells: tuple[int, int] | None = None) -> dict[str, Need]:
    """Return the random numbers that the run's fillers declare beyond time, noise and dropped
    captions, for latents of rows and columns `cells`. None: square ones."""
    side = run.data.size // run.encode.codec.stride
    height, width = cells or (side, side)
    patch = run.model.patch
    draws = dict(run.model.route.draws((height // patch, width // patch)))
    declared = [("codec", run.encode.codec.draws())]
    declared += [(term.name, term.draws()) for term in run.terms]
    for owner, own in declared:
        for name, need in own.items():
            latent = isinstance(need, Normal) and not need.shape
            draws[f"{owner}/{name}"] = (
                Normal((run.encode.codec.channels, height, width)) if latent else need
            )
    return draws
