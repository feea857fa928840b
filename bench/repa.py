"""What alignment adds to a training step: the recipe against the recipe with a lever, interleaved
in one process.

    python bench/repa.py [--recipe pocket] [--lever repa] [--rounds 80] [--steps 1] [--threads 1]
                         [--cache DIR] [--json]

Eager steps, forward to optimizer, reading the batch and the cached teacher tokens included. Arms
take turns within every round, in alternating order; the first round warms up and is not counted.
The ratio is the median over rounds of lever over plain, with a 95 % bootstrap interval over rounds:
by the clock, and by the processor's own time, less disturbed when others use the machine. Encoding
the teacher's tokens (once per data set) is told apart.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.build import Built, assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.loop import after, train

TARGET = 1.08  # of repa on pocket


def built_of(text: str, settings: list[str], cache: Path, threads: int) -> tuple[Built, float]:
    """A run ready to train, and the seconds that encoding took."""
    run = parse(text, CATALOG, settings).run
    begun = time.perf_counter()
    feed = Feed(run, 0, cache)
    feed.at(0)
    spent = time.perf_counter() - begun
    return assemble(run, 0, System(threads=threads), feed), spent


def interleave(
    arms: dict[str, Built], rounds: int, steps: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of a step by the clock and by the processor, for every arm and round."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    states = dict.fromkeys(arms, State())
    for i in range(rounds + 1):
        for name in list(arms) if i % 2 else list(reversed(arms)):
            clock, processor = time.perf_counter(), time.process_time()
            states[name] = train(arms[name], states[name], [], after(steps))
            if i:
                seconds[name].append(
                    (
                        (time.perf_counter() - clock) / steps,
                        (time.process_time() - processor) / steps,
                    )
                )
    return seconds


def interval(ratios: list[float], draws: int = 2000) -> tuple[float, float]:
    pick = random.Random(0)
    medians = sorted(statistics.median(pick.choices(ratios, k=len(ratios))) for _ in range(draws))
    return medians[draws // 40], medians[-draws // 40 - 1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", default="pocket")
    parser.add_argument("--lever", default="repa")
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--steps", type=int, default=1, help="per round and arm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--images", type=int, default=2048, help="distinct pictures to encode")
    parser.add_argument(
        "--cache", type=Path, help="where encodings are kept; a fresh folder unless said"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)

    phrase = parse(f"{given.recipe} + {given.lever}", CATALOG)
    with tempfile.TemporaryDirectory() as fresh:
        cache, settings = given.cache or Path(fresh), [f"data.source.count={given.images}"]
        plain, _ = built_of(given.recipe, settings, cache, given.threads)
        aligned, encoding = built_of(str(phrase), settings, cache, given.threads)
        seconds = interleave({"plain": plain, "lever": aligned}, given.rounds, given.steps)
    result = {
        "phrase": str(phrase),
        "threads": given.threads,
        "rounds": given.rounds,
        "steps_per_round": given.steps,
        "flops_ratio": phrase.levers[0].cost(phrase.base).flops,
        "encoding_seconds": encoding,
    }
    for which, name in enumerate(("clock", "processor")):
        spent = {arm: [one[which] for one in taken] for arm, taken in seconds.items()}
        ratios = [one / other for one, other in zip(spent["lever"], spent["plain"], strict=True)]
        result[name] = {
            "plain_ms": 1e3 * statistics.median(spent["plain"]),
            "ratio": statistics.median(ratios),
            "low": interval(ratios)[0],
            "high": interval(ratios)[1],
        }
    if given.json:
        print(json.dumps(result))
        return
    print(
        f"{result['phrase']}: {given.threads} threads, {given.rounds} rounds of {given.steps} steps"
    )
    for name in ("clock", "processor"):
        row = result[name]
        print(
            f"  by the {name:9} plain {row['plain_ms']:6.1f} ms a step, ratio {row['ratio']:.3f} "
            f"[{row['low']:.3f}, {row['high']:.3f}]"
        )
    print(
        f"  FLOPs say {result['flops_ratio']:.3f}"
        + (f"; target {TARGET:.2f}" if str(phrase) == "pocket + repa" else "")
    )
    print(f"  teacher tokens of {given.images} pictures: {encoding:.1f} s, once")


if __name__ == "__main__":
    main()
