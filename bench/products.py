"""The matrix products of one training step, each timed alone: what the rest of the step is held against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def products(model: Any, batch: tuple[Any, ...]) -> tuple[float, float]:
    """Seconds of all matrix products of one step, each timed alone on its own shapes, and the best rate seen.

    The shapes are caught by running one step uncompiled. Attention's products are timed as torch.bmm: two forward, five
    backward (a fused kernel forms the scores again), on one copy of the inputs per head.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from fulcrum.model.passes import Passes

    counts: dict[tuple[Any, ...], int] = {}
    attention: dict[tuple[int, ...], int] = {}

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._overloadpacket.__name__
            if name in ("mm", "addmm"):
                left, right = args[-2:]
                key = (tuple(left.shape), left.stride(), tuple(right.shape), right.stride())
                counts[key] = counts.get(key, 0) + 1
            elif name == "_scaled_dot_product_flash_attention_for_cpu":
                key = (args[0].shape[0] * args[0].shape[1], args[0].shape[2], args[1].shape[2], args[0].shape[3])
                attention[key] = attention.get(key, 0) + 1
            return func(*args, **(kwargs or {}))

    blocks = [block for block in model.blocks]
    compiled = [block._compiled_call_impl for block in blocks]
    for block in blocks:
        block._compiled_call_impl = None
    x_t, t, emb, mask, target = batch
    with Watch():
        (Passes(model)(x_t, t, (emb, mask)).pred - target).square().mean().backward()  # a watch sees its own thread only
    model.zero_grad()
    for block, call in zip(blocks, compiled, strict=True):
        block._compiled_call_impl = call

    seconds, best = 0.0, 0.0
    for (shape, stride, other, other_stride), count in counts.items():
        left, right = strided(shape, stride), strided(other, other_stride)
        took = fastest(lambda left=left, right=right: torch.mm(left, right))
        seconds, best = seconds + count * took, max(best, 2 * shape[0] * shape[1] * other[1] / took)
    for (heads, queries, keys, width), count in attention.items():
        q, k, p = torch.randn(heads, queries, width), torch.randn(heads, keys, width), torch.randn(heads, queries, keys)
        scores = fastest(lambda q=q, k=k: torch.bmm(q, k.mT))  # twice forward and backward, and once for values
        summed = fastest(lambda p=p, k=k: torch.bmm(p, k))
        turned = fastest(lambda p=p, q=q: torch.bmm(p.mT, q))
        seconds += count * (3 * scores + 2 * summed + 2 * turned)
    square = torch.randn(1024, 1024)
    best = max(best, 2 * 1024**3 / fastest(lambda: torch.mm(square, square)))
    return seconds, best


def strided(shape: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    import torch

    return torch.randn(sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) + 1).as_strided(shape, stride)


def fastest(work: Callable[[], Any], repeats: int = 7) -> float:
    """The median after one warm-up."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
