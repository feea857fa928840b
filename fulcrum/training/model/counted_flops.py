"""FLOPs that a function really spends, counted while it runs, attention on the CPU included.

B batch, H heads, S queries, T keys, d head width.  A multiply-add counts as two, as in `flops`.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

aten = torch.ops.aten
Shape = tuple[int, int, int, int]  # (B, H, S or T, d)


def attention_forward(q: Shape, k: Shape, v: Shape, *_: Any, **__: Any) -> int:
    """q k' and the sum of values: 2 B H S T (d_q + d_v). Keys that a mask hides are computed, so
    they count."""
    (batch, heads, queries, width), keys, out = q, k[2], v[3]
    return 2 * batch * heads * queries * keys * (width + out)


def attention_backward(grad: Shape, q: Shape, k: Shape, v: Shape, *_: Any, **__: Any) -> int:
    """Two products for each of the forward's two. The scores that a fused kernel computes again are
    not counted: that is memory saved, not work asked for; `flops` counts the same way, and torch's
    own formulas (5 products) do not."""
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


REGISTRY = flop_registry | {
    operation: shape_wrapper(formula)  # type: ignore[no-untyped-call]
    for operation, formula in FORMULAS.items()
}


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the formulas of what is dispatched. torch's FlopCounterMode finds the same sum in
    three times as long: it follows the modules as well, and tries to take every operation apart
    that it has no formula for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs, formula = kwargs or {}, REGISTRY.get(func._overloadpacket)
        # in inference mode such operations arrive whole
        if formula is None and _made_of_others(func):
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        if formula is not None:
            self.total += formula(*args, **kwargs, out_val=out)
        return out


@cache
def _made_of_others(func: Any) -> bool:
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return func.namespace == "aten" and bool(
        func.has_kernel_for_dispatch_key(composite)
    )  # others ask for no device's kernel


def counted(function: Callable[[], Any]) -> float:
    """FLOPs of everything that runs in `function()`, forward and backward: matrix products,
    convolutions, attention."""
    with Counter() as counter:
        function()
    return float(counter.total)
