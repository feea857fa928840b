"""FLOPs that a function really spends, counted while it runs, attention on the CPU included.

B batch, H heads, S queries, T keys, d head width.  A multiply-add counts as two, as in `flops`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

aten = torch.ops.aten
Shape = tuple[int, int, int, int]  # (B, H, S or T, d)


def attention_forward(q: Shape, k: Shape, v: Shape, *_: Any, **__: Any) -> int:
    """q k' and the sum of values: 2 B H S T (d_q + d_v). Keys that a mask hides are computed, so they count."""
    (batch, heads, queries, width), keys, out = q, k[2], v[3]
    return 2 * batch * heads * queries * keys * (width + out)


def attention_backward(grad: Shape, q: Shape, k: Shape, v: Shape, *_: Any, **__: Any) -> int:
    """Two products for each of the forward's two. The scores that a fused kernel computes again are not counted:
    that is memory saved, not work asked for; `flops` counts the same way, and torch's own formulas (5 products) do not."""
    return 2 * attention_forward(q, k, v)


FORWARD = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
FORMULAS: Mapping[Any, Callable[..., int]] = {
    **{getattr(aten, name): attention_forward for name in FORWARD},
    **{getattr(aten, f"{name}_backward"): attention_backward for name in FORWARD},
}  # torch 2.13 has no formula for the CPU's kernel


def counted(function: Callable[[], Any]) -> float:
    """FLOPs of everything that runs in `function()`, forward and backward: matrix products, convolutions, attention."""
    with FlopCounterMode(display=False, custom_mapping=dict(FORMULAS)) as counter:
        function()
    return float(counter.get_total_flops())
