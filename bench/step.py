"""Images per second of our training step against diffusers' PRX transformer, side by side.

    python bench/step.py                       16, 64 and 256 tokens on two threads, about 25 min
    python bench/step.py --tokens 16 --rounds 15

Every contestant lives in a process of its own and waits; the parent lets one of them take one step
at a time, in a new random order each round, so that whatever else the machine does falls on all
alike. Sizes, batches, loss, clipping, fused AdamW, stored fp32 weights and the allocator's settings
are the same on both sides. Captions have the lengths of the embedded world's long captions, padded
to the longest of all batches, so that the peer too compiles one static graph.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

WIDTH, DEPTH, HEADS, BATCH, PATCH, CHANNELS, TEXT = 128, 6, 4, 64, 2, 8, 96
BATCHES = 4
OURS = "ours"
PEERS = ("peer eager fp32", "peer compiled fp32", "peer eager bf16", "peer compiled bf16")
TARGET = {16: 1.2, 64: 1.25, 256: 1.25}
# after three rounds, a peer mode this much slower than the fastest is not asked again
HOPELESS = 1.6


# ---- one contestant, in its own process


def lengths() -> list[list[int]]:
    """Tokens of the long captions of the embedded world, the start counted, for every image of
    every batch."""
    import numpy as np

    from fulcrum.data.world.scene import scenes
    from fulcrum.data.world.words import captions
    from fulcrum.networks.text import tokenize

    texts = captions(scenes("train", np.arange(BATCH * BATCHES)), "long").texts
    counts = [1 + len(tokenize(text)) for text in texts]
    return [counts[i * BATCH : (i + 1) * BATCH] for i in range(BATCHES)]


def batches(tokens: int) -> list[tuple[Any, ...]]:
    import torch

    torch.manual_seed(0)
    side, counts = round(tokens**0.5) * PATCH, lengths()
    longest = max(map(max, counts))
    made = []
    for batch in counts:
        mask = torch.arange(longest) < torch.tensor(batch)[:, None]
        x_t, target = torch.randn(2, BATCH, CHANNELS, side, side)
        made.append((x_t, torch.rand(BATCH), torch.randn(BATCH, longest, TEXT), mask, target))
    return made


def build(name: str) -> tuple[Any, Callable[..., Any]]:
    """The model of a contestant and its prediction; the same random weights for all, none of them
    zero."""
    import torch

    if name.startswith(OURS):
        from fulcrum.training.model import passes as room
        from fulcrum.training.model.transformer import Backbone, compile_backbone

        if name != OURS:  # "ours 1024": the same with another number of tokens in a pass
            room.CACHED_TOKENS = int(name.removeprefix(OURS))
        model: Any = Backbone(CHANNELS, PATCH, WIDTH, DEPTH, HEADS, TEXT)
        denoise = room.Passes(model, torch.get_num_threads())
        compile_backbone(model, denoise.lanes)

        def predict(x_t: Any, t: Any, emb: Any, mask: Any) -> Any:
            return denoise(x_t, t, (emb, mask)).pred

    else:
        from diffusers import PRXTransformer2DModel

        half = WIDTH // HEADS // 2
        model = PRXTransformer2DModel(
            in_channels=CHANNELS,
            patch_size=PATCH,
            context_in_dim=TEXT,
            hidden_size=WIDTH,
            num_heads=HEADS,
            depth=DEPTH,
            axes_dim=[half, half],
        )
        call = torch.compile(model) if "compiled" in name else model

        def predict(x_t: Any, t: Any, emb: Any, mask: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in name):
                return call(x_t, t, emb, attention_mask=mask).sample

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            parameter.normal_(std=0.05, generator=generator)
    return model, predict


def contestant(name: str, tokens: int, threads: int, keep_heap: bool, pipe: Connection) -> None:
    import torch

    from fulcrum.training.dist.machine import keep_freed_memory

    if keep_heap:
        keep_freed_memory()

    torch.set_num_threads(threads)
    model, predict = build(name)
    data, taken = batches(tokens), 0
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-15, weight_decay=0, fused=True
    )

    def step() -> float:
        nonlocal taken
        x_t, t, emb, mask, target = data[taken % BATCHES]
        taken += 1
        loss = (predict(x_t, t, emb, mask).float() - target).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    while (order := pipe.recv()) != "stop":
        if order == "warm":
            first = [step() for _ in range(BATCHES + 1)]
            resident = reset_peak()
            pipe.send(first)
        elif order == "step":
            start = time.perf_counter()
            step()
            pipe.send(time.perf_counter() - start)
        elif order == "memory":
            pipe.send((peak() - resident) / 2**20)
        elif order == "products":
            pipe.send(own_products(model, data[0]))


def own_products(model: Any, batch: tuple[Any, ...]) -> tuple[float, float]:
    """Seconds of the products of one step, and the best rate seen."""
    from products import products

    from fulcrum.training.model.passes import Passes

    x_t, t, emb, mask, target = batch
    denoise = Passes(model)
    seconds_and_rate = products(
        lambda: (denoise(x_t, t, (emb, mask)).pred - target).square().mean().backward()
    )
    model.zero_grad()
    return seconds_and_rate


def reset_peak() -> int:
    """Give unused memory back, forget the kernel's high-water mark, and say what stays resident, in
    bytes."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def peak() -> int:
    return status("VmHWM")


def status(field: str) -> int:
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(field)
    )
    return int(line.split()[1]) * 1024


# ---- the parent


def measure(
    tokens: int, rounds: int, threads: int, keep_heap: bool, names: list[str]
) -> dict[str, Any]:
    from fulcrum.spec.flops import Sizes, training_flops

    spawn = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    workers = []
    for name in names:
        pipes[name], there = spawn.Pipe()
        workers.append(
            spawn.Process(
                target=contestant, args=(name, tokens, threads, keep_heap, there), daemon=True
            )
        )
        workers[-1].start()

    def ask(name: str, order: str) -> Any:
        pipes[name].send(order)
        return pipes[name].recv()

    losses = {name: ask(name, "warm") for name in names}
    taken: dict[str, list[float]] = {name: [] for name in names}
    playing, order = list(names), random.Random(0)
    for done in range(rounds):
        if done == 3:
            best = min(statistics.median(taken[name]) for name in names if name in PEERS)
            playing = [
                n for n in names if n not in PEERS or statistics.median(taken[n]) <= HOPELESS * best
            ]
        for name in order.sample(playing, len(playing)):
            taken[name].append(ask(name, "step"))
    memory = {name: ask(name, "memory") for name in names}
    products_seconds, peak_rate = ask(OURS, "products")
    for name, worker in zip(names, workers, strict=True):
        pipes[name].send("stop")
        worker.join()

    rival = min(
        (name for name in playing if name in PEERS), key=lambda name: statistics.median(taken[name])
    )
    ratio, low, high = ratio_of_medians(taken[rival], taken[OURS])
    seconds = statistics.median(taken[OURS])
    counts = [n for batch in lengths() for n in batch]
    flops = BATCH * training_flops(
        Sizes(CHANNELS, PATCH, WIDTH, DEPTH, TEXT, 3.5), tokens, statistics.mean(counts)
    )
    return {
        "tokens": tokens,
        "rounds": rounds,
        "threads": threads,
        "fastest_peer": rival,
        "ratio": ratio,
        "low": low,
        "high": high,
        "target": TARGET.get(tokens),
        "seconds": {name: statistics.median(values) for name, values in taken.items()},
        "images_per_second": {
            name: BATCH / statistics.median(values) for name, values in taken.items()
        },
        "rounds_taken": {name: len(values) for name, values in taken.items()},
        "memory_mib": memory,
        "over_own_products": seconds / products_seconds,
        "share_of_peak": flops / seconds / peak_rate,
        "peak_gflops": peak_rate / 1e9,
        "first_losses": losses,
    }


def ratio_of_medians(
    peer: list[float], ours: list[float], draws: int = 4000
) -> tuple[float, float, float]:
    """Ratio of medians with its 95 % interval: rounds are drawn again with replacement, the same
    for both sides."""
    order, count = random.Random(1), len(ours)
    found = []
    for _ in range(draws):
        rows = order.choices(range(count), k=count)
        found.append(
            statistics.median(peer[i] for i in rows) / statistics.median(ours[i] for i in rows)
        )
    found.sort()
    return (
        statistics.median(peer) / statistics.median(ours),
        found[draws // 40],
        found[-draws // 40],
    )


def show(result: dict[str, Any]) -> None:
    print(
        f"\n{result['tokens']} image tokens, batch {BATCH}, width {WIDTH}, {result['threads']}"
        " threads"
    )
    print(f"  {'':22}{'ms/step':>10}{'images/s':>10}{'rounds':>8}{'step memory':>14}")
    for name, seconds in result["seconds"].items():
        print(
            f"  {name:22}{1e3 * seconds:10.1f}{BATCH / seconds:10.1f}"
            f"{result['rounds_taken'][name]:8d}"
            f"{result['memory_mib'][name]:10.0f} MiB"
        )
    print(
        f"  ratio to {result['fastest_peer']}: {result['ratio']:.3f} [{result['low']:.3f},"
        f" {result['high']:.3f}], target {result['target']}"
    )
    print(
        f"  our step over the sum of its own products: {result['over_own_products']:.2f};"
        f" {100 * result['share_of_peak']:.0f} % of the measured peak of"
        f" {result['peak_gflops']:.0f} GFLOP/s",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[16, 64, 256], help="image tokens, square numbers"
    )
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--modes", nargs="+", default=list(PEERS), choices=PEERS, help="peer modes to measure"
    )
    parser.add_argument(
        "--passes", type=int, nargs="+", default=[], help="also ours with so many tokens in a pass"
    )
    parser.add_argument(
        "--keep-heap", action="store_true", help="keep freed memory in every process (both sides)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # read by every contestant when it starts
    results = []
    for tokens in options.tokens:
        names = [OURS, *(f"{OURS} {size}" for size in options.passes), *options.modes]
        results.append(measure(tokens, options.rounds, options.threads, options.keep_heap, names))
        show(results[-1])
    if options.json:
        print(json.dumps({"results": results}))


if __name__ == "__main__":
    main()
