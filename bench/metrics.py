"""Our metrics against the computations of other libraries, on the same features, in one run.

    python bench/metrics.py                 everything, about five minutes
    python bench/metrics.py --only frechet  or few, mmd, memory: frechet takes a minute
    python bench/metrics.py --threads 2     of torch and of OpenBLAS alike; one unless told
    python bench/metrics.py --peers         also pytorch-fid, clean-fid and torch-fidelity, wherever
                                            they import

Contestants take turns; a ratio is the median over rounds of theirs over ours, by the clock and by
processor time, which a busy neighbour moves less; sqrtm takes so long that one round must do.
`pytorch-fid` and `clean-fid` compute scipy's sqrtm of the product of the covariances; torchmetrics
its eigenvalues; the textbook MMD is three full kernel matrices in fp32, as CMMD's reference code
has them. Memory is the peak of a process of its own, data included, less what it held when torch
was loaded.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Container
from typing import Any, NamedTuple

# Before numpy and torch are loaded: OpenBLAS reads it once.
os.environ["OMP_NUM_THREADS"] = dict(zip(sys.argv, sys.argv[1:], strict=False)).get(
    "--threads", "1"
)

import numpy as np
import torch
from torch import Tensor

D, N, FEW = 2048, 5000, 900
PAIRS, WIDTH = 10_000, 768
SQRTM = "scipy sqrtm (pytorch-fid)"


def features(seed: int, n: int, d: int, scale: float = 1.0) -> Tensor:
    """Correlated, with a spectrum that falls as that of pooled activations does."""
    generator = torch.Generator().manual_seed(seed)
    mix = (
        torch.randn(d, d, generator=torch.Generator().manual_seed(0))
        / d**0.5
        * torch.arange(1, d + 1) ** -0.5
    )
    return torch.randn(n, d, generator=generator) @ mix.T * scale + 0.1


# ---- what the others compute


def by_torchmetrics(a: Any, b: Any) -> float:
    try:
        from torchmetrics.image.fid import _compute_fid
    except ImportError:

        def _compute_fid(mu1, sigma1, mu2, sigma2):  # its three lines
            return (
                (mu1 - mu2).square().sum()
                + sigma1.trace()
                + sigma2.trace()
                - 2 * torch.linalg.eigvals(sigma1 @ sigma2).sqrt().real.sum()
            )

    return float(_compute_fid(a.mean, a.cov, b.mean, b.cov))


def by_sqrtm(a: Any, b: Any) -> float:
    import scipy.linalg

    root = scipy.linalg.sqrtm((a.cov @ b.cov).numpy())
    return float((a.mean - b.mean).square().sum() + a.cov.trace() + b.cov.trace()) - 2 * float(
        np.trace(root).real
    )


def textbook(x: Tensor, y: Tensor, sigma: float) -> float:
    """Unbiased MMD^2 by three full matrices."""
    gamma, n, m = 1 / (2 * sigma**2), len(x), len(y)
    xx, yy = x.square().sum(1), y.square().sum(1)
    k_xx = torch.exp(-gamma * (-2 * x @ x.T + xx[:, None] + xx[None]))
    k_xy = torch.exp(-gamma * (-2 * x @ y.T + xx[:, None] + yy[None]))
    k_yy = torch.exp(-gamma * (-2 * y @ y.T + yy[:, None] + yy[None]))
    return float(
        (k_xx.sum() - n) / (n * (n - 1)) + (k_yy.sum() - m) / (m * (m - 1)) - 2 * k_xy.mean()
    )


def our_mmd(x: Tensor, y: Tensor, sigma: float, fast: bool = True) -> float:
    from fulcrum.measure.metrics.distances import kernel_sums, self_sum, unbiased

    return unbiased(kernel_sums(x, y, self_sum(y, sigma, fast), sigma, 32, fast))


# ---- timing


class Taken(NamedTuple):
    clock: float
    processor: float  # seconds of all threads


Times = dict[str, list[Taken]]


def rounds(
    contestants: dict[str, Callable[[], float]], count: int, once: Container[str] = ()
) -> tuple[Times, dict[str, float]]:
    """Everyone in turn, `count` times; those in `once` only in the first round."""
    taken: Times = {name: [] for name in contestants}
    values: dict[str, float] = {}
    for turn in range(count):
        for name, compute in contestants.items():
            if turn and name in once:
                continue
            clock, processor = time.perf_counter(), time.process_time()
            values[name] = compute()
            taken[name].append(Taken(time.perf_counter() - clock, time.process_time() - processor))
            print(
                f"  {name}: {taken[name][-1].clock:.2f} s ({taken[name][-1].processor:.2f} s of"
                f" processor), {values[name]:.10g}",
                file=sys.stderr,
                flush=True,
            )
    return taken, values


def report(title: str, taken: Times, values: dict[str, float], targets: dict[str, float]) -> None:
    print(f"\n{title}, {torch.get_num_threads()} thread(s)\n")
    print(
        "| contestant | seconds | theirs / ours | by processor time | target | value, relative"
        " difference |"
    )
    print("|---|---|---|---|---|---|")
    for name, times in taken.items():
        first = name == "ours"
        clock, processor = (
            (
                ""
                if first
                else spread(
                    [
                        theirs[k] / ours[k]
                        for theirs, ours in zip(times, taken["ours"], strict=False)
                    ]
                )
            )
            for k in range(2)
        )
        target = f"{targets[name]:g}" if name in targets else ""
        apart = abs(values[name] - values["ours"]) / abs(values["ours"])
        print(
            f"| {name} | {statistics.median(one.clock for one in times):.2f} | {clock} |"
            f" {processor} | {target} | {values[name]:.10g}"
            + ("" if first else f", {apart:.1e}")
            + " |"
        )


def spread(ratios: list[float]) -> str:
    """Median, and the least and the greatest of several."""
    return f"{statistics.median(ratios):.2f}" + (
        f" [{min(ratios):.2f}, {max(ratios):.2f}]" if len(ratios) > 1 else ""
    )


def frechet_case(count: int, peers: bool) -> None:
    from fulcrum.measure.features.extractor import Moments
    from fulcrum.measure.metrics.frechet import frechet

    a, b = Moments.of(features(1, N, D)).compute(), Moments.of(features(2, N, D, 1.05)).compute()
    contestants = {
        "ours": lambda: frechet(a, b),
        "torchmetrics": lambda: by_torchmetrics(a, b),
        SQRTM: lambda: by_sqrtm(a, b),
    }
    others = peer_contestants(a, b) if peers else {}
    report(
        f"Fréchet distance of two Gaussians, {D} dimensions, regular (N = {N:,})",
        *rounds(contestants | others, count, once=(SQRTM, *others)),
        {"torchmetrics": 2.5, SQRTM: 5},
    )


def few_case(count: int) -> None:
    from fulcrum.measure.features.extractor import Moments
    from fulcrum.measure.metrics.frechet import frechet_of_rows

    x, y = features(1, FEW, D), features(2, FEW, D, 1.05)
    a, b = Moments.of(x).compute(), Moments.of(y).compute()
    contestants = {
        "ours": lambda: frechet_of_rows(x, y),
        "torchmetrics": lambda: by_torchmetrics(a, b),
        SQRTM: lambda: by_sqrtm(a, b),
    }
    report(
        f"Fréchet distance, N = {FEW} rows in {D} dimensions: ours from the rows, theirs from ready"
        " covariances",
        *rounds(contestants, count, once=(SQRTM,)),
        {"torchmetrics": 10, SQRTM: 10},
    )


def mmd_case(count: int) -> None:
    unit = torch.nn.functional.normalize
    x, near, far = (
        unit(features(seed, PAIRS, WIDTH, scale), dim=1)
        for seed, scale in ((1, 1.0), (2, 1.0), (3, 1.6))
    )
    from fulcrum.measure.metrics.distances import median_bandwidth

    sigma = median_bandwidth(near)
    contestants = {
        "ours": lambda: our_mmd(x, near, sigma),
        "textbook, fp32": lambda: textbook(x, near, sigma),
    }
    taken, values = rounds(contestants, count)
    report(
        f"MMD², {PAIRS:,} x {PAIRS:,} rows of {WIDTH}, median bandwidth",
        taken,
        values,
        {"textbook, fp32": 2},
    )
    print("\nagainst fp64:\n\n| sets | fp64 | ours | difference | bound |\n|---|---|---|---|---|")
    for name, other in (("alike", near), ("apart", far)):
        exact, ours = our_mmd(x, other, sigma, fast=False), our_mmd(x, other, sigma)
        large = abs(exact) >= 1e-3
        gap = abs(ours - exact) / (abs(exact) if large else 1)
        print(
            f"| {name} | {exact:.9g} | {ours:.9g} | {gap:.1e} {'relative' if large else 'absolute'}"
            f" | {'1e-5' if large else '1e-8'} |"
        )


def memory_case() -> None:
    print("\nPeak memory\n\n| what | MiB |\n|---|---|")
    print(f"| MMD {PAIRS:,} x {PAIRS:,}, features included | {alone('mmd'):.0f} (target 200) |")
    print(f"| the textbook's, features included | {alone('textbook'):.0f} |")
    for n in (10_000, 30_000, 100_000):
        print(f"| moments of {n:,} rows of 1,024 | {alone('moments', n):.0f} |")


def alone(what: str, n: int = 0) -> float:
    """Peak of a fresh process beyond what torch itself takes."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", what, str(n)],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def child(what: str, n: int) -> None:
    """One piece of work, its data included."""
    torch.set_num_threads(1)
    from fulcrum.measure.features.kept import GroupedMoments
    from fulcrum.measure.metrics.distances import kernel_sums  # noqa: F401  before the work

    peak()
    torch.randn(64, 64) @ torch.randn(64, 64)
    before = peak()
    if what == "moments":
        moments = GroupedMoments(1024, 8)
        for start in range(0, n, 500):
            rows = torch.randn(500, 1024, generator=torch.Generator().manual_seed(start))
            moments.update(rows, np.arange(start, start + 500))
        moments.moments()
    else:
        x, y = (
            torch.randn(PAIRS, WIDTH, generator=torch.Generator().manual_seed(seed))
            for seed in (1, 2)
        )
        x.div_(x.norm(dim=1, keepdim=True))
        y.div_(y.norm(dim=1, keepdim=True))
        (our_mmd if what == "mmd" else textbook)(x, y, 1.4)
    print(json.dumps(peak() - before))


def peak() -> float:
    from fulcrum.training.cost_record import peak_memory

    return peak_memory() / 2**20


def peer_contestants(a: Any, b: Any) -> dict[str, Callable[[], float]]:
    """Those that import; torchvision, which they need, has to fit the torch that is installed."""
    arrays = (a.mean.numpy(), a.cov.numpy(), b.mean.numpy(), b.cov.numpy())
    contestants: dict[str, Callable[[], float]] = {}
    for library, module, name in (
        ("pytorch-fid", "pytorch_fid.fid_score", "calculate_frechet_distance"),
        ("clean-fid", "cleanfid.fid", "frechet_distance"),
    ):
        try:
            function = getattr(importlib.import_module(module), name)
            contestants[library] = lambda function=function: float(function(*arrays))
        except Exception as error:
            print(
                f"  {library} does not import here: {type(error).__name__}: {error}",
                file=sys.stderr,
            )
    try:
        fidelity = importlib.import_module("torch_fidelity.metric_fid")
        pair = ({"mu": arrays[0], "sigma": arrays[1]}, {"mu": arrays[2], "sigma": arrays[3]})
        contestants["torch-fidelity"] = lambda: float(
            fidelity.fid_statistics_to_metric(*pair, False)["frechet_inception_distance"]
        )
    except Exception as error:
        print(
            f"  torch-fidelity does not import here: {type(error).__name__}: {error}",
            file=sys.stderr,
        )
    return contestants


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("frechet", "few", "mmd", "memory"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.child:
        return child(options.child[0], int(options.child[1]))
    if options.only in (None, "memory"):
        memory_case()
    if options.only in (None, "mmd"):
        mmd_case(options.rounds)
    if options.only in (None, "few"):
        few_case(options.rounds)
    if options.only in (None, "frechet"):
        frechet_case(options.rounds, options.peers)


if __name__ == "__main__":
    main()
