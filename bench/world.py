"""Images per second of the embedded world: scenes, pictures in both domains, captions.

python bench/world.py            about 20 seconds on two cores
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from fulcrum.data.world.scene import DOMAINS, SPLITS, render, scenes
from fulcrum.data.world.words import STYLES, captions


def rate(work: Callable[[], object], count: int, repeats: int = 5) -> tuple[float, float]:
    """Median and best rate over the repeats, after one warm-up; on a shared machine the best is
    nearest the truth."""
    work()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return count / statistics.median(seconds), count / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4096, help="scenes per measurement at 32 px")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()

    print(f"{'what':<28}{'threads':>8}{'median/s':>12}{'best/s':>12}")

    def show(what: str, threads: int, work: Callable[[], object], count: int) -> None:
        median, best = rate(work, count)
        print(f"{what:<28}{threads:>8}{median:>12,.0f}{best:>12,.0f}", flush=True)

    index = np.arange(options.count)
    for split in SPLITS:
        show(f"scenes {split}", 1, lambda split=split: scenes(split, index), options.count)
    drawn = scenes("train", index)
    for domain in DOMAINS:
        for size in (32, 64, 128):
            some = drawn.take(slice(0, max(64, options.count * 32**2 // size**2)))
            for threads in options.threads:
                show(
                    f"{domain} {size} px",
                    threads,
                    lambda s=some, z=size, d=domain, n=threads: render(s, z, d, n),
                    len(some),
                )
    for style in STYLES:
        show(f"captions {style}", 1, lambda style=style: captions(drawn, style), options.count)


if __name__ == "__main__":
    main()
