"""The matrix products of one training step, each timed alone: what the rest of the step is held
against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def products(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of all matrix products of `work`, each timed alone on its own shapes, and the best
    rate seen.

    The shapes are caught by running it once uncompiled, in this thread: a watch sees its own thread
    only. The products of a fused attention are timed as torch.bmm: two forward, five backward (it
    forms the scores again), on one copy of the inputs per head.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    matrices: dict[tuple[Any, ...], int] = {}
    batched: dict[tuple[Any, ...], int] = {}
    fused: dict[tuple[int, ...], int] = {}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = func._overloadpacket.__name__
            if name in ("mm", "addmm", "bmm"):
                left, right = args[-2:]
                key = (tuple(left.shape), left.stride(), tuple(right.shape), right.stride())
                counts = batched if name == "bmm" else matrices
                counts[key] = counts.get(key, 0) + 1
            elif name == "_scaled_dot_product_flash_attention_for_cpu":
                sizes = (
                    args[0].shape[0] * args[0].shape[1],
                    args[0].shape[2],
                    args[1].shape[2],
                    args[0].shape[3],
                )
                fused[sizes] = fused.get(sizes, 0) + 1
            return func(*args, **(kwargs or {}))

    with torch.compiler.set_stance("force_eager"), Watch():
        work()

    seconds, best = 0.0, 0.0
    for (shape, stride, other, other_stride), count in matrices.items():
        left, right = strided(shape, stride), strided(other, other_stride)
        took = fastest(lambda left=left, right=right: torch.mm(left, right))
        seconds, best = seconds + count * took, max(best, 2 * shape[0] * shape[1] * other[1] / took)
    for (shape, stride, other, other_stride), count in batched.items():
        left, right = strided(shape, stride), strided(other, other_stride)
        seconds += count * fastest(lambda left=left, right=right: torch.bmm(left, right))
    for (heads, queries, keys, width), count in fused.items():
        q, k, p = (
            torch.randn(heads, queries, width),
            torch.randn(heads, keys, width),
            torch.randn(heads, queries, keys),
        )
        # twice forward and backward, and once for values
        scores = fastest(lambda q=q, k=k: torch.bmm(q, k.mT))
        summed = fastest(lambda p=p, k=k: torch.bmm(p, k))
        turned = fastest(lambda p=p, q=q: torch.bmm(p.mT, q))
        seconds += count * (3 * scores + 2 * summed + 2 * turned)
    square = torch.randn(1024, 1024)
    best = max(best, 2 * 1024**3 / fastest(lambda: torch.mm(square, square)))
    return seconds, best


def strided(shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    import torch

    return torch.randn(sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1).as_strided(
        shape, stride
    )


def fastest(work: Callable[[], Any], repeats: int = 15) -> float:
    """The median after two warm-ups; of the processor's time with one thread, which leaves out what
    other programs took."""
    import torch

    now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    work()
    work()
    taken = []
    for _ in range(repeats):
        start = now()
        work()
        taken.append(now() - start)
    return statistics.median(taken)
