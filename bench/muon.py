"""Muon's update against torch.optim.Muon at pocket shapes, interleaved, and its share of a training
step.

    python bench/muon.py [--rounds 30] [--threads 2] [--share 16 64 256] [--recipes spark pocket]
                         [--large] [--json]

Arms, in turn within every round, on the same 42 matrices (width 128, depth 6, MLP ratio 3.5):
  ours     fulcrum.training.optim.muon, Newton-Schulz in --dtype (fp32 unless said), equal shapes in
           one batched product
  torch    torch.optim.Muon as it is: matrix by matrix, always in bf16
  fp32     torch's formula matrix by matrix in fp32: what is left of the gain when the dtype is the
           same
A ratio is the peer's median over ours, with a 95 % bootstrap interval over rounds.

--recipes trains a recipe with Muon and without, a step in turn, and times the bare products of
Newton-Schulz beside them: what a step with Muon takes over one without, and what it would take if
only those products were added;
--share measures Newton-Schulz's share of a step at pocket shapes against tokens per batch, beside
what FLOPs predict;
--large prints what FLOPs predict for the published models, which this machine cannot run.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import Parameter

from fulcrum.training.model.transformer import Cast
from fulcrum.training.optim.muon import EPS, MATCH_ADAMW, STEPS, A, B, C, Muon

WIDTH, DEPTH, RATIO = 128, 6, 3.5


def pocket() -> dict[str, Parameter]:
    """The matrices of pocket's blocks with a gradient each."""
    hidden, g = int(WIDTH * RATIO), torch.Generator().manual_seed(0)
    shapes = {
        "img_qkv": (3 * WIDTH, WIDTH),
        "txt_kv": (2 * WIDTH, WIDTH),
        "out": (WIDTH, WIDTH),
        "gate": (hidden, WIDTH),
        "up": (hidden, WIDTH),
        "down": (WIDTH, hidden),
        "modulation": (6 * WIDTH, WIDTH),
    }
    held = {
        f"{i}.{name}": Parameter(torch.randn(shape, generator=g))
        for i in range(DEPTH)
        for name, shape in shapes.items()
    }
    for parameter in held.values():
        parameter.grad = torch.randn(parameter.shape, generator=g)
    return held


@torch.no_grad()
def one_by_one(
    held: dict[str, Parameter], buffers: dict[str, torch.Tensor], lr: float = 1e-4
) -> None:
    """torch.optim.Muon's arithmetic with fp32 in place of bf16."""
    for name, parameter in held.items():
        buffer = buffers[name].lerp_(parameter.grad, 0.05)
        update = parameter.grad.lerp(buffer, 0.95)
        x = update.T if update.shape[0] > update.shape[1] else update
        x = x / x.norm().clamp(min=EPS)
        for _ in range(STEPS):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
        x = x.T if update.shape[0] > update.shape[1] else x
        parameter.add_(x, alpha=-lr * MATCH_ADAMW * max(parameter.shape) ** 0.5)


def interleave(arms: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for i in range(rounds + 1):  # the first round warms up and is not counted
        for name, arm in arms.items():
            begin = time.perf_counter()
            arm()
            if i:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def ratio(peer: list[float], ours: list[float], draws: int = 2000) -> tuple[float, float, float]:
    """(ratio of medians, low, high): rounds are resampled as pairs, since noise hits both arms of a
    round."""
    pick, n, found = random.Random(0), len(ours), []
    for _ in range(draws):
        rounds = [pick.randrange(n) for _ in range(n)]
        found.append(
            statistics.median(peer[i] for i in rounds) / statistics.median(ours[i] for i in rounds)
        )
    found.sort()
    return (
        statistics.median(peer) / statistics.median(ours),
        found[draws // 40],
        found[-draws // 40 - 1],
    )


def step_seconds(tokens: int, batch: int, rounds: int) -> float:
    """Median seconds of one forward and backward of pocket's denoiser, without the optimizer."""
    from fulcrum.training.model.parameters import initialise
    from fulcrum.training.model.passes import Passes
    from fulcrum.training.model.transformer import Backbone

    side = int(tokens**0.5)
    model = Backbone(
        channels=16, patch=1, width=WIDTH, depth=DEPTH, heads=4, text_width=128, mlp_ratio=RATIO
    )
    initialise(model, seed=0)
    x, t, text = torch.randn(batch, 16, side, side), torch.rand(batch), torch.randn(batch, 32, 128)
    mask = torch.ones(batch, 32, dtype=torch.bool)
    spent = interleave(
        {"step": lambda: Passes(model)(x, t, (text, mask)).pred.square().mean().backward()}, rounds
    )["step"]
    return statistics.median(spent)


def trained(text: str, cache: Path) -> tuple[Any, Callable[[], object]]:
    """A run and one step of it after the other, as a study's cell takes them; pictures from a small
    world."""
    from fulcrum import phrase
    from fulcrum.spec.edit import put
    from fulcrum.spec.run import System
    from fulcrum.training.build import assemble
    from fulcrum.training.checkpoint import State
    from fulcrum.training.feed import Feed
    from fulcrum.training.loop import after, train

    run = put(phrase(text), "data.source.count", 512)
    built = assemble(
        run, 0, System(threads=torch.get_num_threads(), compile=True), Feed(run, 0, cache)
    )
    state = [State()]

    def step() -> None:
        state[0] = train(built, state[0], (), after(1))

    return built, step


def products(shapes: list[tuple[int, int]]) -> Callable[[], object]:
    """The products of five steps and nothing else: no momentum, no polynomial, no memory asked
    for."""
    calls: list[tuple[torch.Tensor, torch.Tensor]] = []
    for small, large in (sorted(shape) for shape in shapes):
        square, x = torch.randn(1, small, small), torch.randn(1, small, large)
        gram, applied, chained = (x, x.mT), (square, x), (square, square.clone())
        calls += (
            [gram, applied, chained] * STEPS
            if large < 2 * small
            else [gram, applied] * 2 + [chained] * 14
        )
    outs = [torch.empty(1, left.shape[1], right.shape[2]) for left, right in calls]
    return lambda: [torch.bmm(*pair, out=out) for pair, out in zip(calls, outs, strict=True)]


def recipe_ratio(recipe: str, rounds: int) -> dict[str, Any]:
    """A step with Muon over one without, measured, and with the bare products added to the one
    without."""
    with tempfile.TemporaryDirectory() as folder:
        _, without = trained(recipe, Path(folder))
        built, with_muon = trained(f"{recipe} + muon", Path(folder))
        matrices = [tuple(p.shape) for p in built.optimizer.rules[0].parameters.values()]
        for step in (without, with_muon):  # compiles
            step()
        seconds = interleave(
            {"without": without, "muon": with_muon, "products": products(matrices)}, rounds
        )
    bare = [
        plain + added for plain, added in zip(seconds["without"], seconds["products"], strict=True)
    ]
    return {
        "median_seconds": {name: statistics.median(spent) for name, spent in seconds.items()},
        "ratio": ratio(seconds["muon"], seconds["without"]),
        "limit": ratio(bare, seconds["without"]),
    }


def predicted(recipe: str, tokens_per_batch: list[int]) -> dict[int, float]:
    """Newton-Schulz's share of a step's FLOPs for a recipe's model, by tokens per batch; text of 24
    tokens an image."""
    from fulcrum import phrase
    from fulcrum.spec.flops import newton_schulz_share

    run = phrase(recipe)
    # over the rest of the step, times its tokens
    fixed = newton_schulz_share(run) * run.tokens * run.budget.batch
    return {tokens: fixed / (fixed + tokens) for tokens in tokens_per_batch}


def flop_share(tokens: int, batch: int) -> float:
    """What FLOPs predict at pocket shapes for `tokens` an image."""
    from fulcrum import phrase
    from fulcrum.spec.edit import put
    from fulcrum.spec.flops import newton_schulz_share

    run = put(phrase("pocket"), "data.size", 8 * int(tokens**0.5))  # codec stride 4, patch 2
    run = put(put(put(run, "model.width", WIDTH), "model.depth", DEPTH), "model.mlp_ratio", RATIO)
    added = newton_schulz_share(run) * run.budget.batch / batch
    return added / (1 + added)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument(
        "--share", type=int, nargs="*", default=[], metavar="TOKENS", help="squares, e.g. 16 64 256"
    )
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--recipes", nargs="*", default=[], help="recipes to train with Muon and without"
    )
    parser.add_argument(
        "--large", action="store_true", help="extrapolate to the published models from FLOPs"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)

    ours = Muon(
        pocket(), compute=Cast({"fp32": torch.float32, "bf16": torch.bfloat16}[given.dtype])
    )
    theirs = torch.optim.Muon(
        pocket().values(), lr=1e-4, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    )
    plain = pocket()
    buffers = {name: torch.zeros_like(p) for name, p in plain.items()}
    seconds = interleave(
        {"ours": ours.step, "torch": theirs.step, "fp32": lambda: one_by_one(plain, buffers)},
        given.rounds,
    )
    median = {name: statistics.median(spent) for name, spent in seconds.items()}
    ratios = {name: ratio(seconds[name], seconds["ours"]) for name in ("torch", "fp32")}
    shares = {}
    for tokens in given.share:
        step = step_seconds(tokens, given.batch, rounds=3)
        shares[tokens] = {
            "tokens_per_batch": tokens * given.batch,
            "step_seconds": step,
            "share": median["ours"] / (step + median["ours"]),
            "by_flops": flop_share(tokens, given.batch),
        }
    recipes = {recipe: recipe_ratio(recipe, given.rounds) for recipe in given.recipes}
    # the published tokens an image x batch
    sizes = {"prx_256": 256 * 256, "prx_pixels_1024": 1024 * 256}
    large = (
        {
            recipe: predicted(recipe, [published // 4, published // 2, published, 2 * published])
            for recipe, published in sizes.items()
        }
        if given.large
        else {}
    )
    if given.json:
        print(
            json.dumps(
                {
                    "threads": given.threads,
                    "rounds": given.rounds,
                    "dtype": given.dtype,
                    "median_seconds": median,
                    "ratio": ratios,
                    "share": shares,
                    "recipes": recipes,
                    "large": large,
                }
            )
        )
        return
    print(
        f"{given.threads} threads, {given.rounds} rounds, 42 matrices, Newton-Schulz in"
        f" {given.dtype}"
    )
    for name, spent in median.items():
        against = (
            f"  {ratios[name][0]:5.2f}x [{ratios[name][1]:.2f}, {ratios[name][2]:.2f}]"
            if name in ratios
            else ""
        )
        print(f"  {name:6} {spent * 1e3:8.1f} ms{against}")
    for tokens, row in shares.items():
        print(
            f"  {row['tokens_per_batch']:7,} tokens a batch ({tokens} x {given.batch}): step"
            f" {row['step_seconds']:.3f} s, Muon {row['share']:.1%} of it, by FLOPs"
            f" {row['by_flops']:.1%}"
        )
    for recipe, row in recipes.items():
        spent, (middle, low, high), limit = row["median_seconds"], row["ratio"], row["limit"]
        print(
            f"  {recipe}: step {spent['without'] * 1e3:.1f} ms, with Muon {spent['muon'] * 1e3:.1f}"
            f" ms, {middle:.2f}x [{low:.2f}, {high:.2f}]; with its bare products alone"
            f" {limit[0]:.2f}x"
        )
    for recipe, by_tokens in large.items():
        print(
            f"  {recipe}, by FLOPs: "
            + ", ".join(
                f"{share:.1%} at {tokens:,} tokens a batch" for tokens, share in by_tokens.items()
            )
        )


if __name__ == "__main__":
    main()
