"""Encode once: how fast cached latents are read, and what a step costs with the codec online and
with its cache.

    python bench/encode.py           a small random AutoencoderKLFlux2, half a minute on one core
    python bench/encode.py --real    one of FLUX.2's full size (84 million parameters, random
                                     weights), some minutes

The class, its normalisation and the path through folder, cache and feed are the real ones. Steps
are interleaved, so that a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from fulcrum import phrase
from fulcrum.files.array_store import ArrayStore
from fulcrum.networks.network_hash import to_unit
from fulcrum.networks.rows import Cache, Encoder, RowCache, widened
from fulcrum.spec.run import System
from fulcrum.training.build import assemble
from fulcrum.training.feed import Feed

READ = 20_000  # latents of each reading


def write_flux2(folder: Path, real: bool) -> Path:
    from diffusers import AutoencoderKLFlux2

    torch.manual_seed(0)
    small = dict(block_out_channels=(16, 16, 32, 32), layers_per_block=1, norm_num_groups=8)
    made = AutoencoderKLFlux2(
        latent_channels=32,
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        **(dict(block_out_channels=(128, 256, 512, 512)) if real else small),
    )
    made.save_pretrained(folder)
    print(
        f"AutoencoderKLFlux2 with {sum(p.numel() for p in made.parameters()) / 1e6:.1f} million"
        " parameters",
        flush=True,
    )
    return folder


def reading(cache: RowCache, batch: int) -> float:
    """Latents per second in random order, a batch at a time."""
    order = np.random.default_rng(0).integers(0, len(cache), READ)
    begun = time.perf_counter()
    for first in range(0, READ, batch):
        widened(cache.stored(order[first : first + batch]))
    return READ / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=64, help="pixels on a side")
    parser.add_argument("--real", action="store_true", help="a codec of FLUX.2's full size")
    parser.add_argument("--count", type=int, help="pictures; default 512, or 32 with --real")
    parser.add_argument("--steps", type=int, help="default 12, or 2 with --real")
    options = parser.parse_args()
    options.count = options.count or (32 if options.real else 512)
    options.steps = options.steps or (2 if options.real else 12)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        path = write_flux2(root / "vae", options.real)
        run = phrase(
            "pocket",
            f"encode.codec=pretrained_codec(path='{path}')",
            f"data.size={options.size}",
            f"data.source.count={options.count}",
            "budget.images=3200",
            "budget.batch=32",
        )
        feed = Feed(run, 0, root / "cache")
        codec = feed.codec()
        begun = time.perf_counter()
        feed.at(0)
        print(
            f"encoding {options.count} pictures and captions once:"
            f" {time.perf_counter() - begun:.1f} s",
            flush=True,
        )
        built = assemble(run, 0, System(), feed)
        source, batch = feed.source_at(0), run.budget.batch

        def step(online: bool, at: int) -> float:
            begun = time.perf_counter()
            data, draw = feed.at(at)
            if online:  # what a trainer without a cache does at every step
                with torch.no_grad():
                    pixels = to_unit(torch.from_numpy(source.read(data.ids.numpy()).images))
                    data = data._replace(x0=codec.encode(pixels))
            built.step(data, draw).total.backward()
            built.optimizer.step(1.0)
            built.optimizer.zero_grad()
            return time.perf_counter() - begun

        seconds = {online: [] for online in (True, False)}
        for number in range(options.steps + 1):
            for online in seconds:
                took = step(online, number * batch)
                if number:  # the first one warms up
                    seconds[online].append(took)
        means = {online: statistics.median(took) for online, took in seconds.items()}
        ratio = statistics.median(a / b for a, b in zip(seconds[True], seconds[False], strict=True))
        print(f"{'step of 32 at ' + str(options.size) + ' px':<34}{'ms':>8}")
        print(f"{'  codec online':<34}{means[True] * 1e3:>8.0f}")
        print(f"{'  latents from the cache':<34}{means[False] * 1e3:>8.0f}")
        print(f"{'  online / cached, paired':<34}{ratio:>8.2f}")

        print(f"{'cached reads':<34}{'latents/s':>12}{'MB/s':>8}")
        for shape in ((32, options.size // 8, options.size // 8), (16, 32, 32), (32, 32, 32)):
            chunk = {"rows": np.ones((256, *shape), np.float32)}
            entry = ArrayStore(root).get(
                "bench", {"shape": list(shape)}, range(16), lambda number, chunk=chunk: chunk
            )
            rows = RowCache(entry["rows"])
            reading(rows, 256)
            rate = max(reading(rows, 256) for _ in range(3))
            print(
                f"  {str(shape) + ' fp32, batches of 256':<32}{rate:>12,.0f}"
                f"{rate * 4 * np.prod(shape) / 1e6:>8,.0f}"
            )
        encoder = Encoder(
            source, run.data.caption.build(None), 0, codec, feed.text(), Cache(root / "cache")
        )
        begun, rows = time.perf_counter(), 200 * batch
        for first in range(0, rows, batch):
            encoder.at(first, batch)
        print(
            f"  {'whole batches of 32, with texts':<32}"
            f"{rows / (time.perf_counter() - begun):>12,.0f}"
        )


if __name__ == "__main__":
    main()
