"""What token routing saves: step time and memory of a dense model, TREAD and SPRINT, beside what
the FLOP count predicts.

    python bench/routing.py                        16, 64, 256 and 1,024 tokens on one thread, about
                                                   five minutes
    python bench/routing.py --tokens 256 --rounds 3
    python bench/routing.py --compile              blocks compiled, as long trainings are

Sixteen blocks; TREAD drops 50 % of the tokens and SPRINT 75 %, both in blocks 2 to 12. Every
contestant lives in a process of its own and waits; the parent lets one of them take one step at a
time (forward, backward, clipping, fused AdamW), in a new random order each round, so that whatever
else the machine does falls on all alike. With one thread, the time is the processor's, which leaves
out what other programs took, and the ratio of the fastest steps stands beside that of the medians:
on a busy machine the two differ, and the fastest steps are those that were disturbed least.

Three predictions: by FLOPs alone; by FLOPs for forward and backward, while clipping and the
optimizer, which see every weight whatever the route, take what they take in the dense step
("step"); and by FLOPs with those of attention weighed by what they cost beside the others in this
same run (attention's kernel timed alone; the rest of a dense step belongs to the rest of its
FLOPs).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from step import peak, ratio_of_medians, reset_peak

WIDTH, DEPTH, HEADS, PATCH, CHANNELS, TEXT, WORDS = 128, 16, 2, 2, 8, 96, 24
TOKENS_PER_BATCH = 1024
SPAN = (2, 12)
DROP = {"dense": 0.0, "tread": 0.5, "sprint": 0.75}
TARGET = {"tread": 1.35, "sprint": 1.7}  # times dense, at 1,024 tokens
BATCHES = 3


# ---- one contestant, in its own process


def model_of(name: str) -> Any:
    """The same random weights for all, none of them zero: a gate that is shut would let arithmetic
    be skipped."""
    import torch

    from fulcrum.training.model.fillers import Carry
    from fulcrum.training.model.transformer import Backbone, FuseRoute

    routes = {
        "dense": lambda: None,
        "tread": lambda: Carry(start=SPAN[0], end=SPAN[1]),
        "sprint": lambda: FuseRoute(*SPAN, WIDTH),
    }
    model = Backbone(CHANNELS, PATCH, WIDTH, DEPTH, HEADS, TEXT, route=routes[name]())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, parameter in sorted(model.named_parameters()):
            parameter.normal_(std=0.03, generator=generator)
    return model


def kept(name: str, tokens: int) -> int | None:
    return None if name == "dense" else round(tokens * (1 - DROP[name]))


def batches(name: str, tokens: int) -> list[tuple[Any, ...]]:
    import torch

    torch.manual_seed(0)
    side, rows, few = (
        round(tokens**0.5) * PATCH,
        max(1, TOKENS_PER_BATCH // tokens),
        kept(name, tokens),
    )
    made = []
    for _ in range(BATCHES):
        x_t, target = torch.randn(2, rows, CHANNELS, side, side)
        keep = None if few is None else torch.rand(rows, tokens).argsort(1)[:, :few].sort(1).values
        made.append((x_t, torch.rand(rows), torch.randn(rows, WORDS, TEXT), keep, target))
    return made


def contestant(name: str, tokens: int, threads: int, compiled: bool, pipe: Connection) -> None:
    import torch

    from fulcrum.training.model.passes import Passes
    from fulcrum.training.model.transformer import compile_backbone

    torch.set_num_threads(threads)
    model, data, taken = model_of(name), batches(name, tokens), 0
    denoise = Passes(model)
    if compiled:
        compile_backbone(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-15, weight_decay=0, fused=True
    )

    def step() -> float:
        """A step; the processor's seconds of clipping and the optimizer alone."""
        nonlocal taken
        x_t, t, emb, keep, target = data[taken % BATCHES]
        taken += 1
        (denoise(x_t, t, (emb, None), keep=keep).pred - target).square().mean().backward()
        start = time.process_time()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - start

    while (order := pipe.recv()) != "stop":
        if order == "warm":
            for _ in range(2):
                step()
            resident = reset_peak()
            pipe.send(None)
        elif order == "step":
            wall, own = time.perf_counter(), time.process_time()
            update = step()
            pipe.send((time.perf_counter() - wall, time.process_time() - own, update))
        elif order == "memory":
            pipe.send((peak() - resident) / 2**20)
        elif order == "moves":
            pipe.send(moves(model, data[0], tokens))
        elif order == "attention":
            pipe.send(attention(len(data[0][0]), tokens, tokens + WORDS))


def clock() -> Callable[[], float]:
    """The processor's time with one thread, the wall's with more."""
    import torch

    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def took(work: Callable[[], Any], repeats: int = 9) -> float:
    """The median after a warm-up, by the same clock for all that is compared."""
    now, seconds = clock(), []
    work()
    for _ in range(repeats):
        start = now()
        work()
        seconds.append(now() - start)
    return statistics.median(seconds)


def moves(model: Any, batch: tuple[Any, ...], tokens: int) -> float:
    """Seconds of gathering and scattering in one step, forward and backward: split, merge, the
    rotary rows.

    The products of a route that fuses are counted as FLOPs: timed alone, on the same shapes, they
    are taken off.
    """
    import torch

    from fulcrum.training.model.transformer import Tokens, gather_rows, rotary_table

    rows, keep, side, route = len(batch[0]), batch[3], round(tokens**0.5), model.route
    if keep is None:
        return 0.0
    before, inner = (
        torch.randn(rows, tokens, WIDTH, requires_grad=True),
        torch.randn(rows, keep.shape[1], WIDTH),
    )
    table, grad = (
        rotary_table(side, side, model.axes, model.theta, before.device),
        torch.randn(rows, tokens, WIDTH),
    )

    def move() -> None:
        stream = Tokens(before * 1.0)
        part = route.split(stream, keep)
        gather_rows(table.expand(rows, -1, -1), keep)
        route.merge(stream, part, None).h.backward(grad)

    def only_the_rest() -> None:
        stream = before * 1.0
        if not route.fuses:
            stream.backward(grad)
            return
        other = inner.detach().requires_grad_()
        torch.autograd.backward(
            (route.dense(stream), route.sparse(other)), (grad, torch.ones_like(inner))
        )

    return max(0.0, took(move) - took(only_the_rest))


def attention(rows: int, queries: int, keys: int) -> float:
    """Seconds of one block's attention, forward and backward."""
    import torch

    from fulcrum.training.model.transformer import attend

    q = torch.randn(rows, queries, HEADS, WIDTH // HEADS, requires_grad=True)
    k, v = (torch.randn(rows, keys, HEADS, WIDTH // HEADS, requires_grad=True) for _ in range(2))
    return took(lambda: attend(q, k, v, None).sum().backward())


# ---- the parent


def flops(name: str, tokens: int) -> Any:
    from fulcrum.spec.flops import Sizes, forward_flops

    sizes = Sizes(
        CHANNELS,
        PATCH,
        WIDTH,
        DEPTH,
        TEXT,
        3.5,
        span=None if name == "dense" else SPAN,
        fuses=name == "sprint",
    )
    return forward_flops(sizes, tokens, WORDS, kept(name, tokens))


def measure(tokens: int, rounds: int, threads: int, compiled: bool) -> dict[str, Any]:
    spawn, names = multiprocessing.get_context("spawn"), list(DROP)
    pipes: dict[str, Connection] = {}
    workers = []
    for name in names:
        pipes[name], there = spawn.Pipe()
        workers.append(
            spawn.Process(
                target=contestant, args=(name, tokens, threads, compiled, there), daemon=True
            )
        )
        workers[-1].start()

    def ask(name: str, order: str) -> Any:
        pipes[name].send(order)
        return pipes[name].recv()

    for name in names:
        ask(name, "warm")
    wall: dict[str, list[float]] = {name: [] for name in names}
    own: dict[str, list[float]] = {name: [] for name in names}
    updates: list[float] = []
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(names, len(names)):
            one, two, update = ask(name, "step")
            wall[name].append(one)
            own[name].append(two)
            updates.append(update)
    memory = {name: ask(name, "memory") for name in names}
    moved = {name: ask(name, "moves") for name in names}
    kernel = DEPTH * ask("dense", "attention")
    for name, worker in zip(names, workers, strict=True):
        pipes[name].send("stop")
        worker.join()

    used = own if threads == 1 else wall
    counts = {name: flops(name, tokens) for name in names}
    dense, seconds = counts["dense"], statistics.median(used["dense"])
    update = statistics.median(updates) / threads
    weight = (kernel / dense.attention) / (max(seconds - kernel, 1e-9) / dense.linears)
    rows = {}
    for name in names:
        ratio, low, high = ratio_of_medians(used["dense"], used[name])
        rows[name] = {
            "seconds": statistics.median(wall[name]),
            "processor_seconds": statistics.median(own[name]),
            "times_dense": ratio,
            "low": low,
            "high": high,
            "fastest_times_dense": min(used["dense"]) / min(used[name]),
            "times_dense_wall": statistics.median(wall["dense"]) / statistics.median(wall[name]),
            "by_flops": dense.total / counts[name].total,
            "by_step": seconds / (update + (seconds - update) * counts[name].total / dense.total),
            "by_weighed_flops": (
                (dense.linears + weight * dense.attention)
                / (counts[name].linears + weight * counts[name].attention)
            ),
            "moves_share": moved[name] / statistics.median(used[name]),
            "memory_mib": memory[name],
        }
    return {
        "tokens": tokens,
        "rounds": rounds,
        "threads": threads,
        "attention_weight": weight,
        "attention_share": kernel / seconds,
        "update_share": update / seconds,
        "rows": rows,
    }


def show(result: dict[str, Any]) -> None:
    tokens, rows = result["tokens"], result["rows"]
    print(
        f"\n{tokens} tokens, batch {max(1, TOKENS_PER_BATCH // tokens)}, width {WIDTH}, {DEPTH}"
        f" blocks, {result['threads']} thread(s), {result['rounds']} rounds; a FLOP of attention"
        f" costs {result['attention_weight']:.2f} others, attention is"
        f" {100 * result['attention_share']:.0f} % of a dense step, clipping and the optimizer"
        f" {100 * result['update_share']:.0f} %"
    )
    print(
        f"  {'':8}{'ms/step':>9}{'x dense':>9}{'interval':>15}{'fastest':>9}{'wall':>7}"
        f"{'FLOPs say':>11}{'off':>6}"
        f"{'step':>7}{'off':>6}{'weighed':>9}{'off':>6}{'moves':>8}{'memory':>11}"
    )
    for name, row in rows.items():
        bounds = ("by_flops", "by_step", "by_weighed_flops")
        off, off_step, off_weighed = (row["times_dense"] / row[by] - 1 for by in bounds)
        interval = f"[{row['low']:.2f}, {row['high']:.2f}]"
        print(
            f"  {name:8}{1e3 * row['processor_seconds']:9.0f}{row['times_dense']:9.2f}"
            f"{interval:>15}"
            f"{row['fastest_times_dense']:9.2f}{row['times_dense_wall']:7.2f}"
            f"{row['by_flops']:11.2f}{100 * off:+5.0f}%"
            f"{row['by_step']:7.2f}{100 * off_step:+5.0f}%"
            f"{row['by_weighed_flops']:9.2f}{100 * off_weighed:+5.0f}"
            f"%{100 * row['moves_share']:7.1f}%"
            f"{row['memory_mib']:7.0f} MiB",
            flush=True,
        )
    if tokens == 1024:
        for name, target in TARGET.items():
            reached = rows[name]["times_dense"] >= target
            print(
                f"  {name}: at least {target} times dense {'reached' if reached else 'MISSED'}; "
                f"moves under 3 % {'reached' if rows[name]['moves_share'] < 0.03 else 'MISSED'}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tokens",
        type=int,
        nargs="+",
        default=[16, 64, 256, 1024],
        help="image tokens, square numbers",
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="compile the blocks")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # read by every contestant when it starts
    results = []
    for tokens in options.tokens:
        results.append(measure(tokens, options.rounds, options.threads, options.compile))
        show(results[-1])
    if options.json:
        print(json.dumps({"results": results}))


if __name__ == "__main__":
    main()
