"""The host's part of a step (read, draw, hand over) beside a simulated device, at the sizes of the
published models.

    python bench/host.py [--rounds 8] [--rows 32] [--out FOLDER]
        one thread makes batches, one process is one rank
    python bench/host.py --cpu spark
        real steps on a CPU, with and without that thread

Real here: the files (written to FOLDER first, about 2 GB, and then read from the page cache: no
disk is timed), the order of samples, the reading of `Feed.staged`, texts padded to the limit of the
encoder, and the thread that keeps ahead. Simulated: the frozen networks (what they would have said
is random numbers of the real shapes and dtypes), the device's step (a wait of the published length,
for `--busy` of which the host calls small torch operations one by one, as a thread does that
launches kernels), and the copy (a wait at `--bus` GB/s, in line with the step). Memory is not
pinned, so it goes back to the kernel with every batch, 3 to 4 ms for 52 MB; a training lets a batch
go while the device computes, and so does this (pinned memory torch would keep). Noise, dropped
captions and widening are the device's in a real run and are not made here; times are.

Three ways take turns within every round: the device alone, batches made inside the step, batches
made ahead. Time lost is what a way takes beyond the device alone, as a share, told in three ways:
by core time (what the loop's own thread computes to get a batch, plus the copy: what is lost where
cores are free and the thread keeps up), and by the wall in the same round, the median and the
quietest quarter of rounds: on a shared machine somebody else's work is in every wall time. The
target is 3 % for batches made ahead.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fulcrum.data.captions import Chooser
from fulcrum.data.source import WorldSource
from fulcrum.files.array_store import ArrayStore
from fulcrum.files.prefetch import prefetched
from fulcrum.levers.catalog import CATALOG
from fulcrum.networks.rows import Batch, Encoder, RowCache, TextCache
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.build import assemble
from fulcrum.training.dist.machine import moved
from fulcrum.training.feed import READ_AHEAD, Feed, HostBatch, Stretch
from fulcrum.training.flow.fillers import LogitNormal
from fulcrum.training.flow.noise import Draw, Draws
from fulcrum.training.loop import all_stretches, gradients

MOST_LOST = 0.03
CHUNK = 16  # samples of a chunk here: a large one would only make the files larger


class Case(NamedTuple):
    """What one rank reads for a picture, and how long the published step takes for 32 of them."""

    name: str
    seconds: float
    samples: int  # that are stored; a run of a million reads no differently, page cache apart
    x0: tuple[str, tuple[int, ...]]
    teacher: tuple[int, int] | None  # tokens and width, in half precision
    tokens: tuple[int, int] = (180, 256)  # of a prompt: from, to; padded to the last
    width: int = 2304


CASES = (
    Case("prx_256 + repa", 0.253, 512, ("<f4", (16, 32, 32)), (256, 768)),
    Case("prx_pixels_1024", 0.752, 192, ("|u1", (3, 1024, 1024)), None),
)


class StoredEncoder(Encoder):
    """An encoder over arrays that are there; it has no networks."""

    def __init__(self, source: Any, latents: RowCache, texts: TextCache) -> None:
        self.source, self.chooser, self.seed, self.geometry = source, Chooser(), 0, False
        self.latents, self.texts = latents, texts


class StoredFeed(Feed):
    """A feed of one phase over such an encoder. Its device is none: the copy is a wait for the
    bus."""

    def __init__(self, case: Case, root: Path, bus: float) -> None:
        source = WorldSource("train", "synthetic", 32, case.samples)
        arrays = written(case, root)
        ends = np.cumsum(np.asarray(arrays["lengths"]), dtype=np.int64)
        texts = TextCache(arrays["tokens"], ends, np.zeros((1, case.width), np.float16))
        texts.longest = case.tokens[1]
        self.device = "meta"
        self.encoder = StoredEncoder(source, RowCache(arrays["x0"]), texts)
        self.draws = Draws(0, LogitNormal(uniform_share=0.0), (1, 1, 1), 0.1)
        self.tokens = None if case.teacher is None else RowCache(arrays["teacher"])
        self.bus, self.bytes = bus, 0

    def is_ready(self, position: int) -> bool:
        return True

    def read(self, position: int, rows: int) -> HostBatch:
        batch = self.encoder.stored_at(position, rows)
        if self.tokens is not None:
            batch = batch._replace(teacher={"dino": self.tokens.stored(batch.ids.numpy())})
        return HostBatch(position, batch, self.draws.times(position, rows), self.draws)

    def to_device(self, read: HostBatch) -> tuple[Batch, Draw]:
        batch: Batch = moved(read.batch, "cpu")
        tensors = [batch.x0, batch.text.emb, batch.text.mask, *batch.teacher.values()]
        self.bytes = sum(one.nbytes for one in tensors)
        time.sleep(self.bytes / self.bus)
        return batch, Draw(read.times, batch.x0, batch.ids, None, {})


def written(case: Case, root: Path) -> dict[str, Any]:
    """The arrays that a cache of this run holds, of random numbers."""
    kind, shape = case.x0

    def chunk(number: int) -> dict[str, Any]:
        dice = np.random.default_rng([len(case.name), number])
        lengths = dice.integers(*case.tokens, CHUNK).astype(np.int32)
        x0 = (
            dice.integers(0, 256, (CHUNK, *shape), np.uint8)
            if kind == "|u1"
            else dice.random((CHUNK, *shape), np.float32)
        )
        arrays = {
            "x0": x0,
            "lengths": lengths,
            "tokens": dice.random((lengths.sum(), case.width), np.float32).astype("<f2"),
        }
        if case.teacher is not None:
            arrays["teacher"] = dice.random((CHUNK, *case.teacher), np.float32).astype("<f2")
        return arrays

    return ArrayStore(root).get("bench", {"case": case.name}, range(case.samples // CHUNK), chunk)


def device_step(seconds: float, busy: float, batch: list[Any]) -> None:
    """The host lets the batch go, launches kernels for a share of the step, and waits for the
    rest."""
    begun, kernel = time.perf_counter(), torch.zeros(64)
    batch.clear()
    while time.perf_counter() - begun < busy * seconds:
        kernel.add_(1.0)
    time.sleep(max(0.0, seconds - (time.perf_counter() - begun)))


def stretches(rows: int) -> Iterator[Stretch]:
    return ((position, rows) for position in range(0, 10**9, rows))


def measured(case: Case, root: Path, options: argparse.Namespace) -> list[str]:
    feed, rows, seconds = StoredFeed(case, root, options.bus * 1e9), options.rows, case.seconds
    begun = time.perf_counter()
    # every chunk is verified, and lies in the page cache
    for position in range(0, 4 * case.samples, rows):
        feed.read(position, rows)
    with closing(feed.batches(stretches(rows))) as ahead:

        def stepped(batches: Iterator[Any] | None, way: str) -> float:
            begun = 0.0
            # the first are not timed: batches of the way before are still made
            for number in range(READ_AHEAD + options.steps):
                begun = time.perf_counter() if number == READ_AHEAD else begun
                core = time.thread_time()
                batch = [] if batches is None else [next(batches)]
                in_line[way].append(time.thread_time() - core)
                device_step(seconds, options.busy, batch)
            return (time.perf_counter() - begun) / options.steps

        ways: dict[str, Iterator[Any] | None] = {
            "device": None,
            "inside": (feed.at(*stretch) for stretch in stretches(rows)),
            "ahead": ahead,
        }
        spent: dict[str, list[float]] = {way: [] for way in ways}
        in_line: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(options.rounds):
            for way, batches in ways.items():
                spent[way].append(stepped(batches, way))
    begun, core = time.perf_counter(), time.thread_time()
    for position in range(0, 8 * rows, rows):
        feed.read(position, rows)
    wall, core = (time.perf_counter() - begun) / 8, (time.thread_time() - core) / 8
    copy = feed.bytes / feed.bus
    by_core = {
        way: (statistics.median(in_line[way]) + copy) / seconds for way in ("inside", "ahead")
    }
    lost = {}
    for way in ("inside", "ahead"):
        shares = [
            (one - alone) / alone for one, alone in zip(spent[way], spent["device"], strict=True)
        ]
        lost[way] = statistics.median(shares), float(np.quantile(shares, 0.25))
    return [
        case.name,
        f"{feed.bytes / 1e6:.0f}",
        f"{1e3 * wall:.0f} ({1e3 * core:.0f})",
        f"{1e3 * copy:.1f}",
        f"{1e3 * seconds:.0f}",
        *(
            "{:.1%}; {:.1%}, {:.1%}".format(by_core[way], *lost[way])
            + judged(by_core[way], lost[way][0])
            for way in lost
        ),
    ]


def judged(*shares: float) -> str:
    """Of the share by core time, and of the median by the wall."""
    return f" ({', '.join('held' if share <= MOST_LOST else 'MISSED' for share in shares)})"


def on_a_cpu(phrase: str, root: Path, rounds: int) -> None:
    """Gradients of real steps in one torch thread: batches made ahead against those made inside, in
    turns of five."""
    run = parse(phrase, CATALOG, ["data.source.count=2048"]).run
    built = assemble(run, 0, System(threads=1), Feed(run, 0, root))
    gradients(built, 0)
    ratios = []
    asked = all_stretches(built, 0)
    read = prefetched(lambda stretch: built.feed.read(*stretch), asked, READ_AHEAD)
    with closing(read):
        ways = {"inside": None, "ahead": map(built.feed.to_device, read)}
        images = dict.fromkeys(ways, 0)
        for _ in range(rounds + 1):
            spent = {}
            for way, batches in ways.items():
                begun = time.perf_counter()
                for _ in range(5):
                    gradients(built, images[way], batches)
                    images[way] += run.budget.batch
                spent[way] = time.perf_counter() - begun
            ratios.append(spent["ahead"] / spent["inside"])
    low, middle, high = np.quantile(ratios[1:], [0.125, 0.5, 0.875])
    print(
        f"{phrase}: a step with batches made ahead takes {middle:.3f} [{low:.3f}, {high:.3f}] times"
        " one without"
    )


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--rounds", type=int, default=8)
    asked.add_argument("--steps", type=int, default=3, help="of a way, in a round")
    asked.add_argument("--rows", type=int, default=32)
    asked.add_argument(
        "--bus",
        type=float,
        default=25.0,
        help="GB/s from host to device (PCIe 4 x16 gives about that)",
    )
    asked.add_argument(
        "--busy", type=float, default=0.2, help="share of a step in which Python holds its lock"
    )
    asked.add_argument("--case", choices=[case.name for case in CASES])
    asked.add_argument("--out", type=Path)
    asked.add_argument("--cpu", metavar="PHRASE")
    options = asked.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        if options.cpu:
            return on_a_cpu(options.cpu, options.out or Path(place), options.rounds)
        rows = [
            measured(case, options.out or Path(place), options)
            for case in CASES
            if options.case in (None, case.name)
        ]
    head = [
        "case",
        "MB a batch",
        "read, ms (core)",
        "copy, ms",
        "step, ms",
        "lost, made inside",
        "lost, made ahead",
    ]
    for row in [head, ["---"] * len(head), *rows]:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
