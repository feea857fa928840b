"""Is what a long life costs bounded? Memory, open files and disk at every tenth of four loads,
which should stay level.

    make load                              100,000 samples, 1,000 checkpoints, 500 cells, a record
                                           of a million lines
    python -m bench.load --share 0.02      the same on a fiftieth of it

  samples      tar shards are imported, then every picture is read once in the order of a training
  checkpoints  a run's state is saved again and again, as a training does it: copied, written by a
               thread, thinned
  cells        a whole study with its proof, page and verdicts; only the training of a cell is left
               out
  record       a week's lines: cut as a resume cuts them, hashed and thinned as a study's page shows
               them

Each load is a process of its own. It is level when between its half and its end memory grows by
less than LEVEL MB (and what is said to grow: bytes of each sample or cell), no file stays open, and
what should be thinned on disk is.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LEVEL = 24.0  # MB: the allocator's own coming and going
PARTS = 10


class Level(NamedTuple):
    """What a process holds at some moment."""

    at: int  # things done
    memory: float  # MB
    files: int  # open
    disk: float  # MB below its folder


class Gauge:
    """Looks every tenth of the way."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.every, self.levels, self.next = (
            folder,
            max(count // PARTS, 1),
            list[Level](),
            0,
        )

    def tell(self, done: int) -> None:
        if done >= self.next:
            self.next = done + self.every
            self.levels.append(self.now(done))

    def now(self, done: int) -> Level:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        disk = sum(
            path.stat().st_size
            for path in self.folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        )
        return Level(
            done, pages * resource.getpagesize() / 1e6, len(os.listdir("/proc/self/fd")), disk / 1e6
        )


class LoadResult(NamedTuple):
    name: str
    levels: list[Level]
    faults: list[str]
    remark: str = ""


def growth(levels: list[Level], each: float = 0.0) -> list[str]:
    """What is not level from half of the way to its end; `each`: bytes that a thing may cost for
    good."""
    return growth_between(levels[len(levels) // 2], levels[-1], each)


def growth_between(half: Level, end: Level, each: float = 0.0) -> list[str]:
    allowed = LEVEL + each * (end.at - half.at) / 1e6
    faults = []
    if end.memory - half.memory > allowed:
        faults.append(
            f"memory grew by {end.memory - half.memory:.1f} MB from {half.at:,} to {end.at:,},"
            f" allowed {allowed:.1f}"
        )
    if end.files > half.files + 2:
        faults.append(
            f"{end.files - half.files} more files are open at {end.at:,} than at {half.at:,}"
        )
    return faults


def samples(count: int, folder: Path) -> LoadResult:
    from fulcrum.data.readers.reader import open_given
    from fulcrum.data.source import order
    from fulcrum.data.stores.finish_import import run_import
    from fulcrum.data.stores.importing import Options
    from fulcrum.data.stores.picture_store import PictureStore

    _shards(folder / "given", count)
    gauge = Gauge(folder, count)
    reader = open_given(str(folder / "given"))

    class Watched:
        """The same reader, with a look at what is held."""

        kind = reader.kind

        def __iter__(self) -> Iterator[Any]:
            for number, given in enumerate(reader):
                gauge.tell(number)
                yield given

        def share(self) -> float:
            return reader.share()

    run_import(Watched(), folder / "store", Options(size=16), lambda text: None)  # type: ignore[arg-type]
    gauge.levels.append(gauge.now(count))
    store, read = PictureStore(folder / "store"), Gauge(folder, count)
    for position in range(0, count, 64):
        read.tell(position)
        for row in order(len(store), 0, position, min(64, count - position)):
            store.picture(int(row))
    read.levels.append(read.now(count))
    faults = growth(gauge.levels, each=400) + [f"reading: {one}" for one in growth(read.levels)]
    remark = (
        f"read once in order: {read.levels[0].memory:.0f} to {read.levels[-1].memory:.0f} MB,"
        f" {read.levels[-1].files} files"
    )
    return LoadResult("samples", gauge.levels, faults, remark)


def _shards(folder: Path, count: int, each: int = 1000) -> None:
    """Tars of small pictures, no two alike."""
    from PIL import Image

    folder.mkdir()
    for first in range(0, count, each):
        with tarfile.open(folder / f"{first // each:05d}.tar", "w") as archive:
            for number in range(first, min(first + each, count)):
                stream = io.BytesIO()
                pixels = (
                    np.random.default_rng(number)
                    .integers(0, 256, (4, 4, 3), np.uint8)
                    .repeat(4, 0)
                    .repeat(4, 1)
                )
                Image.fromarray(pixels).save(stream, "PNG")
                for suffix, data in (
                    ("png", stream.getvalue()),
                    ("txt", f"picture {number}".encode()),
                ):
                    about = tarfile.TarInfo(f"{number:07d}.{suffix}")
                    about.size = len(data)
                    archive.addfile(about, io.BytesIO(data))


def checkpoints(count: int, folder: Path) -> LoadResult:
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.spec.phrase import parse
    from fulcrum.spec.run import System
    from fulcrum.training import checkpoint
    from fulcrum.training.build import assemble
    from fulcrum.training.checkpoint import State
    from fulcrum.training.feed import Feed
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.saver import Saver

    run = parse(
        "spark + ema",
        CATALOG,
        ["model.width=64", "model.depth=4", "model.heads=2", "data.source.count=64"],
    ).run
    built = assemble(run, 0, System(), Feed(run, 0, folder / "cache"))
    place = RunFolder(folder / "run")
    saver, gauge = Saver(built, place, State()), Gauge(folder / "run", count)
    for number in range(1, count + 1):
        saver.begin(built, State(images=number * run.budget.batch))
        if number > 2:
            gauge.tell(number)
    saver.wait()
    gauge.levels.append(gauge.now(count))
    faults, kept = growth(gauge.levels), [path.name for path in place.checkpoints.iterdir()]
    if len(kept) > checkpoint.KEEP_LAST:
        faults.append(
            f"{len(kept)} checkpoints are kept, expected {checkpoint.KEEP_LAST}: {kept[:5]}"
        )
    if max(one.disk for one in gauge.levels) > 2.0 * gauge.levels[0].disk:
        faults.append("the disk holds more than twice what it held at the beginning")
    return LoadResult("checkpoints", gauge.levels, faults, f"{len(kept)} of {count:,} are kept")


def cells(count: int, folder: Path) -> LoadResult:
    from fulcrum.judge.metrics import SHOWN
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.studies import arm_cost
    from fulcrum.studies import study as study_run
    from fulcrum.studies.runner import Lane
    from tests.study.small import finish_cell, plan

    arms = tuple(f"muon(lr_ratio={0.01 * k:.2f})" for k in range(1, 10))
    gauge, done, dice = Gauge(folder, count), list[str](), np.random.default_rng(0)

    class Untrained(Lane):
        """Leaves what a cell leaves that was trained and measured."""

        def ask(self, cell: Any) -> dict[str, Any]:
            level = 1.0 + 0.1 * dice.standard_normal()
            values = {name: level + 0.01 * dice.standard_normal() for name in SHOWN}
            finish_cell(self.work.out, cell, self.work.measuring.how, values, level)
            done.append(cell.key)
            gauge.tell(len(done))
            return {"ok": True, "key": cell.key}

    study_run.Lane = Untrained  # type: ignore[misc]
    arm_cost.ROUNDS = 1
    asked = plan(arms=arms, seeds=tuple(range(max(count // (len(arms) + 1), 2))))

    def judged() -> Level:
        nonlocal result, page
        result, page = study_run.run(
            asked, CATALOG, folder, "load", lambda text: None, compile_blocks=False
        )
        return gauge.now(len(done))

    result, page = None, Path()
    judged()
    faults = growth(gauge.levels, each=20_000)  # while cells run
    # verdicts take memory of their own: given again and again, no more of it
    times = [judged() for _ in range(6)]
    gauge.levels += times
    faults += growth_between(times[2], times[-1])
    if result.state != "finished" or len(done) != len(asked.seeds) * (len(arms) + 1):
        faults.append(f"the study is {result.state} after {len(done)} cells")
    return LoadResult(
        "cells", gauge.levels, faults, f"its page has {page.stat().st_size / 1e6:.1f} MB"
    )


def record(count: int, folder: Path) -> LoadResult:
    from fulcrum.files.sealed import keep_records
    from fulcrum.measure.preview import hashes, read_lines

    path, most = folder / "record.jsonl", 400
    with path.open("w") as stream:
        for number in range(count):
            line = {
                "images": 320 * number,
                "loss": 1.0 / (number + 1),
                "gradient_norm": 0.731,
                "rate": 1.0,
                "skipped": 0,
                "seconds": 0.6 * number,
                "parts": {"flow": 0.5},
            }
            stream.write(json.dumps(line) + "\n")
    gauge = Gauge(folder, count)
    before, levels = _peak(), [gauge.now(0)]
    faults = list(keep_records(path, lambda line: line["images"] <= 320 * count))
    levels.append(gauge.now(count))
    hashes(folder)
    shown = read_lines(path, most=most)
    levels.append(gauge.now(count))
    peak = _peak() - before
    if peak > LEVEL:
        faults.append(
            f"{path.stat().st_size / 1e6:.0f} MB of a record took {peak:.1f} MB of memory, allowed"
            f" {LEVEL}"
        )
    if not 0 < len(shown) <= most + 1 or shown[-1]["images"] != 320 * (count - 1):
        faults.append(f"{len(shown)} points are shown, expected up to {most}, the last among them")
    remark = (
        f"{path.stat().st_size / 1e6:.0f} MB, {len(shown)} points shown, at most {peak:.1f} MB"
        " taken on the way"
    )
    return LoadResult("record", levels, faults, remark)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


LOADS: dict[str, tuple[Callable[[int, Path], LoadResult], int]] = {
    "record": (record, 1_000_000),
    "checkpoints": (checkpoints, 1_000),
    "cells": (cells, 500),
    "samples": (samples, 100_000),
}


def table(result: LoadResult) -> Iterator[str]:
    yield f"{result.name}: {'level' if not result.faults else 'NOT LEVEL'}; {result.remark}"
    yield from (
        f"  {one.at:>9,} done {one.memory:>9.1f} MB {one.files:>4} files open "
        f"{one.disk:>9.1f} MB on disk"
        for one in result.levels
    )
    yield from (f"  FAULT {fault}" for fault in result.faults)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the whole load (1)")
    parser.add_argument("--only", choices=LOADS, action="append")
    asked = parser.parse_args()
    failed = False
    for name in asked.only or LOADS:
        load, count = LOADS[name]
        pid = os.fork()  # of a process that has imported nothing yet: each begins at the same level
        if pid == 0:
            code = 1
            try:
                with tempfile.TemporaryDirectory(prefix="load-") as folder:
                    result = load(max(int(count * asked.share), 20), Path(folder))
                print("\n".join(table(result)), flush=True)
                code = bool(result.faults)
            finally:
                sys.stdout.flush()
                os._exit(code)
        failed |= os.waitpid(pid, 0)[1] != 0
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
