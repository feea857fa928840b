"""What the study engine adds to its cells' work: overhead, the start of a second cell, cells side
by side.

    python bench/engine.py                           about 6 minutes on two quiet cores
    python bench/engine.py --study runs/study-...    the overhead of a study that was run in one go,
                                                     from its timings

Overhead is lane time that is not a cell's training steps, drawing, features or metrics: start-up,
proof, waiting, building, saving, timing the arms' costs, the page; and besides, what the study's
own process computes while its cells train. A lane that has no cell left at the end is not counted:
that depends on how many cells a plan has, and is told apart. So is what is paid once on a machine
and then kept: encoding the data, and a first step's compilation (beyond an ordinary step).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.training.dist.compiled_code import FOLDER, compiles_here

ARM, SEEDS, SAMPLES = "bf16_storage", 3, 512
QUICK = 24  # cells of examples/quick.toml
SHORT = 9_600  # images of a cell that is only trained
OVERHEAD, START, COLD, PAIR = 0.03, 5.0, 60.0, 1.7  # targets: share, seconds, seconds, times


def read(path: Path) -> dict[str, Any]:
    timings: dict[str, Any] = json.loads(path.read_text())
    return timings


class Cell(NamedTuple):
    begun: float
    ended: float
    to_first_step: float
    useful: float  # seconds of ordinary steps, drawing, features, metrics
    first: float  # beyond an ordinary step: encoding, compilation

    @classmethod
    def of(cls, folder: Path) -> Cell:
        told, run = read(folder / "timings.json"), read(folder / "about.json")["run"]
        parts, steps = told["parts"], run["budget"]["images"] // run["budget"]["batch"]
        ordinary = (parts["steps"] - parts["first step"]) / (steps - 1)
        return cls(
            told["begun"],
            told["ended"],
            told["first_step"] - told["begun"],
            ordinary * steps + parts.get("drawing", 0.0),
            parts["first step"] - ordinary,
        )


def overhead(study: Path, seconds: float | None = None, begun: float | None = None) -> float:
    """Print where a study's time went; returns the engine's share. `begun` when its command was
    given."""
    told = read(study / "timings.json")
    if told["already"]:
        sys.exit(
            f"{told['already']} cells of {study} were finished before: only a study that was run in"
            " one go tells"
        )
    cells = sorted(
        (Cell.of(study.parent / key) for key in told["cells"]), key=lambda cell: cell.ended
    )
    lanes, parts = told["lanes"], told["parts"]
    seconds = seconds or told["ended"] - told["begun"]
    useful = sum(cell.useful for cell in cells)
    idle = sum(cells[-1].ended - cell.ended for cell in cells[-lanes:])
    each = [cell.ended - cell.begun - cell.useful - cell.first for cell in cells]
    first, encoding = sum(cell.first for cell in cells), lanes * parts.get("encoding", 0.0)
    fixed = lanes * seconds - sum(cell.ended - cell.begun for cell in cells) - idle - encoding
    whole = lanes * seconds - idle
    share = (fixed + sum(each) + parts["pages"]) / whole
    training = min(cell.begun + cell.to_first_step for cell in cells) - (begun or told["begun"])
    since = "command" if begun else "imports"
    print(f"the first cell had trained a step {training:.1f} s after the {since} (target {COLD:g})")
    print(
        f"study: {len(cells)} cells, {lanes} side by side, {seconds:.1f} s; useful"
        f" {useful / lanes:.1f} s a lane, idle at the end {idle:.1f} s of one lane"
    )
    print(
        f"  outside cells  {fixed / lanes:6.1f} s  (proof {parts['proof']:.1f}, costs"
        f" {parts['costs']:.1f}; the rest is start-up and the last page)"
    )
    print(
        f"  inside cells   {sum(each):6.1f} s of one lane  ({statistics.median(each):.2f} in the"
        " median cell: building, loading, saving)"
    )
    print(
        f"  pages          {parts['pages']:6.1f} s while cells trained; the study's process"
        f" computed {told['cpu']:.1f} s"
    )
    print(f"overhead {share:.2%} of this study (target {OVERHEAD:.0%})")
    print(
        f"once for this machine, and not in it: encoding {encoding / lanes:.1f} s, first steps"
        f" (compilation, or reading what was compiled) {first:.1f} s of one lane:"
        f" {(encoding + first) / whole:.2%}",
        flush=True,
    )
    if len(cells) < QUICK:  # a worker's first cell also loads what it measures with
        more = (QUICK - len(cells)) / len(cells)
        longer = (
            whole * share + more * (len(cells) * statistics.median(each) + parts["pages"])
        ) / (whole + more * useful)
        print(
            f"         {longer:.2%} of one of {QUICK} such cells, as examples/quick.toml has: the"
            " start is paid once",
            flush=True,
        )
    return share


def run_study(place: Path, images: int | None) -> float:
    """A study from an empty folder, with nothing encoded and nothing compiled."""
    place.mkdir()
    (place / "plan.toml").write_text(
        f'title = "Engine"\nbaseline = "spark"\narms = ["{ARM}"]\nseeds ='
        f" {list(range(SEEDS))}\nsamples = {SAMPLES}\n" + (f"images = {images}\n" if images else "")
    )
    begun = time.time()
    subprocess.run(
        [
            sys.executable,
            "-m",
            "fulcrum",
            "study",
            "run",
            str(place / "plan.toml"),
            "--quiet",
            "--out",
            str(place / "runs"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, FOLDER: str(place / "compiled")},
    )
    return overhead(next((place / "runs").glob("study-*")), time.time() - begun, begun)


class Trained(NamedTuple):
    start: float  # seconds from asking for the first cell to its first step
    later: list[float]  # the same of cells that found a worker at hand
    rates: list[float]  # images a second of each, without the first tenth


def train(place: Path, seeds: list[int], lanes: int) -> Trained:
    """Cells that are only trained, in new workers; all of one graph."""
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.spec.run import System
    from fulcrum.studies.cell import lay_out, measuring
    from fulcrum.studies.plan import Plan
    from fulcrum.studies.runner import Work, run_all

    plan = Plan(
        title="Engine",
        baseline="spark",
        arms=(ARM,),
        seeds=tuple(seeds) if len(seeds) > 1 else (*seeds, 999),
        images=SHORT,
        samples=SAMPLES,
    )
    cells = [
        cell._replace(kind="trunk")
        for cell in lay_out(plan, CATALOG, {}, place).cells
        if cell.arm == "baseline" and cell.seed in seeds
    ]
    begun = time.time()
    run_all(
        cells, Work(place, System(compile=True), measuring(plan), ()), lanes, lambda board: None
    )
    told = sorted((Cell.of(place / cell.key) for cell in cells), key=lambda cell: cell.begun)
    return Trained(
        told[0].begun + told[0].to_first_step - begun,
        [cell.to_first_step for cell in told[lanes:]],
        [rate(place / cell.key) for cell in cells],
    )


def rate(folder: Path) -> float:
    lines = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    early = next(line for line in lines if line["images"] >= SHORT // 10)
    return float(
        (lines[-1]["images"] - early["images"]) / (lines[-1]["seconds"] - early["seconds"])
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--study",
        type=Path,
        help="folder of a study that was run in one go: tell its overhead only",
    )
    parser.add_argument(
        "--rounds", type=int, default=2, help="of one cell alone and two side by side, in turns"
    )
    parser.add_argument(
        "--images", type=int, help="of each cell of the study; fewer only to try this script out"
    )
    options = parser.parse_args()
    if options.study:
        overhead(options.study)
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="fulcrum-engine-") as name:
        place = Path(name)
        os.environ[FOLDER] = str(place / "compiled")  # cold, and shared by all cells from here on
        if not compiles_here(print):
            sys.exit("nothing to measure without a compiler")
        first = train(place / "apart", [100, 101], 1)
        print(
            f"a first cell, cold: {first.start:.1f} s to the end of its first step; the second in"
            f" the same worker: {first.later[0]:.1f} s",
            flush=True,
        )
        starts, alone, pairs = [*first.later], [], []
        for turn in range(options.rounds):
            one = train(place / "apart", [200 + turn], 1)
            two = train(place / "apart", [300 + 2 * turn, 301 + 2 * turn], 2)
            starts.append(one.start)
            alone.append(one.rates[0])
            pairs.append(sum(two.rates))
            print(
                f"  in a new worker {one.start:.1f} s; alone {one.rates[0]:,.0f} images/s, two side"
                f" by side {sum(two.rates):,.0f}",
                flush=True,
            )
        times = statistics.median(pair / one for pair, one in zip(pairs, alone, strict=True))
        print(
            f"second cell of the same graph: at most {max(starts):.1f} s to the end of its first"
            f" step (target {START:g})"
        )
        print(
            f"two one-thread cells side by side: {times:.2f} x one alone (target {PAIR:g} x)",
            flush=True,
        )
        share = run_study(place / "cold", options.images)
    print(
        json.dumps(
            {
                "overhead": round(share, 4),
                "second_cell_seconds": round(max(starts), 2),
                "pair": round(times, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
