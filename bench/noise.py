"""Noise by counter beside a generator that is seeded anew for every row, and the order of samples
beside a sorted index.

    python bench/noise.py [--rounds 41] [--compiled]

One thread. --compiled also times the form in torch, compiled.

Both ways of noise are timed in turn within every round, by CPU time of this thread: a batch of
spark (32 x 512), and half a million numbers in rows of 512 (spark, pocket) and of 16,384 (latents
of 16 x 32 x 32). A ratio is the old time over the new, the median over rounds with a 95 % bootstrap
interval. The order is timed for batches of 64, one after the other, with the memory that it takes.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from fulcrum.data.source import _block, order
from fulcrum.spec.keyed import key
from fulcrum.training.flow import noise as gaussian
from fulcrum.training.flow import noise as keyed_noise

SHAPES = ((32, 512), (1024, 512), (32, 16_384))  # rows, numbers in each
BATCH = 64


def reseeded(seed: int, purpose: str, index: NDArray[np.int64], n: int) -> torch.Tensor:
    """The noise of science version 2: torch's own normal numbers, one generator seeded anew for
    each row."""
    generator, out = torch.Generator(), torch.empty(len(index), n)
    for row, row_key in zip(out, key(seed, purpose, index), strict=True):
        generator.manual_seed(int(row_key >> np.uint64(1)))
        row.normal_(generator=generator)
    return out


def seconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def interval(ratios: NDArray[np.float64]) -> str:
    drawn = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return f"{np.median(ratios):.2f} [{low:.2f}, {high:.2f}]"


def noise(rounds: int, compiled: bool) -> None:
    table = gaussian.device_lines("cpu")
    for rows, n in SHAPES:
        index = np.arange(rows)
        ways: dict[str, Callable[[], object]] = {
            "reseeded": lambda index=index, n=n: reseeded(0, "eps", index, n),
            "counter": lambda index=index, n=n: keyed_noise.normal(0, "eps", index, (n,)),
        }
        if compiled:
            form = torch.compile(gaussian.device_normals, dynamic=False)
            keys = torch.from_numpy(key(0, "eps", index).view(np.int64))
            begun = time.perf_counter()
            form(keys, n, table)
            print(f"  compiled for {rows} x {n} in {time.perf_counter() - begun:.1f} s")
            ways["compiled"] = lambda form=form, keys=keys, n=n: form(keys, n, table)
        for work in ways.values():
            work()
        times = {name: np.array([0.0] * rounds) for name in ways}
        for turn in range(rounds):
            for name, work in ways.items():
                times[name][turn] = seconds(work)
        for name, spent in times.items():
            rate = rows * n / np.median(spent) / 1e6
            print(
                f"  {rows:5} x {n:6}  {name:9} {rate:7.0f} M/s "
                f" {interval(times['reseeded'] / spent)} times reseeded"
            )


def sorted_order(count: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of science version 2: a whole epoch's index, sorted by its keys and kept."""
    return np.argsort(
        key("order", seed, epoch, np.arange(count, dtype=np.int64)), kind="stable"
    ).astype(np.int64)


def orders() -> None:
    for count in (10_000, 1_000_000):
        sort = seconds(lambda count=count: sorted_order(count, 0, 0))
        _block.cache_clear()
        walk = seconds(
            lambda count=count: [
                order(count, 0, place, BATCH) for place in range(0, min(count, 100_000), BATCH)
            ]
        )
        spent = walk / (min(count, 100_000) / BATCH)
        print(
            f"  {count:11,} samples: {spent * 1e6:5.1f} us a batch of {BATCH}; sorted:"
            f" {sort * 1e3:6.1f} ms an epoch = {sort / (count / BATCH) * 1e6:5.1f} us a batch,"
            f" {16 * count / 1e6:.1f} MB held"
        )
    for count in (100_000_000, 1_000_000_000):
        _block.cache_clear()
        tracemalloc.start()
        for place in range(0, 100_000, BATCH):
            order(count, 0, place, BATCH)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(
            f"  {count:11,} samples: {peak / 1e6:.2f} MB at most; sorted: {16 * count / 1e6:,.0f}"
            " MB held"
        )


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--rounds", type=int, default=41)
    asked.add_argument("--compiled", action="store_true")
    given = asked.parse_args()
    torch.set_num_threads(1)
    print("noise")
    noise(given.rounds, given.compiled)
    print("order")
    orders()


if __name__ == "__main__":
    main()
