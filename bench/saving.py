"""How long an asynchronous save holds a training up, against a plain copy of the same state in
memory.

    python bench/saving.py [--width 512] [--depth 8] [--rounds 7] [--json]

In every round, one after the other on the same run (weights, Muon's and AdamW's state, an average):
  copy    every tensor of the state is cloned
  save    Saver.begin: the state is copied and a thread is started that hashes and writes it
and while the thread writes, small products are timed in a loop: the longest of them tells whether
Python's lock was held. The ratio is the median of save over copy within a round; 1.5 is the most
that is allowed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.training.build import assemble
from fulcrum.training.checkpoint import State
from fulcrum.training.feed import Feed
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.saver import Saver, copied, live_parts

MOST = 1.5


def longest_product(saver: Saver) -> tuple[float, float]:
    """Seconds until the writing thread has ended, and of the longest small product meanwhile."""
    a, longest, begun = torch.ones(64, 64), 0.0, time.perf_counter()
    while saver.thread is not None and saver.thread.is_alive():
        before = time.perf_counter()
        a @ a
        longest = max(longest, time.perf_counter() - before)
    return time.perf_counter() - begun, longest


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words.add_argument("--width", type=int, default=512)
    words.add_argument("--depth", type=int, default=8)
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--json", action="store_true")
    asked = words.parse_args()
    torch.set_num_threads(1)
    sizes = [f"model.width={asked.width}", f"model.depth={asked.depth}", "model.heads=8"]
    run = parse("pocket + muon + ema", CATALOG, sizes).run
    with tempfile.TemporaryDirectory() as place:
        built = assemble(run, 0, System(), Feed(run, 0, Path(place) / "cache"))
        saver = Saver(built, RunFolder(Path(place) / "run"), State())
        parts = live_parts(built)
        size = sum(
            value.numel() * value.element_size()
            for tensors in parts.values()
            for value in tensors.values()
        )
        ratios, rows = [], []
        for number in range(asked.rounds + 1):
            begun = time.perf_counter()
            clones = [copied(tensors) for tensors in parts.values()]
            copy = time.perf_counter() - begun
            del clones
            begun = time.perf_counter()
            saver.begin(built, State(images=number))
            blocked = time.perf_counter() - begun
            writing, longest = longest_product(saver)
            saver.wait()
            if number:  # the first touches fresh memory
                ratios.append(blocked / copy)
                rows.append((copy, blocked, writing, longest))
    ratio = statistics.median(ratios)
    copy, blocked, writing, longest = (
        statistics.median(column) for column in zip(*rows, strict=True)
    )
    if asked.json:
        print(
            json.dumps(
                {"bytes": size, "ratio": ratio, "most": MOST, "written_over_copy": writing / copy}
            )
        )
        return
    print(
        f"state of {size / 1e6:,.0f} MB: copy {copy * 1e3:.0f} ms, save blocks {blocked * 1e3:.0f}"
        f" ms, ratio {ratio:.2f}"
    )
    print(
        f"written in {writing * 1e3:.0f} ms beside it; the longest small product meanwhile took"
        f" {longest * 1e3:.1f} ms"
    )
    if ratio > MOST:
        raise SystemExit(f"a save blocks the training for {ratio:.2f} copies, more than {MOST}")


if __name__ == "__main__":
    main()
