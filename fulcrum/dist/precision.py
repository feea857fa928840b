"""Dtypes of a run: from the spec's words to torch, and how and how fast this machine multiplies bf16."""

from __future__ import annotations

import statistics
import time
from functools import cache
from typing import TYPE_CHECKING

import torch

from fulcrum.spec.run import Products, System

if TYPE_CHECKING:
    from torch.distributed.fsdp import MixedPrecisionPolicy

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WORTH_IT = 1.2  # a smaller speed-up is not worth the precision


def shard_policy(reduce: torch.dtype, gather: torch.dtype = torch.float32) -> MixedPrecisionPolicy:
    """What FSDP2 does to dtypes: sum gradients in the reduce dtype, gather weights in `gather`, and cast no input.

    Cast inputs would be every floating input of a block, the time and the rotary table included. Matrices of a block are
    cast to the compute dtype by every linear that uses them, so gathering them in it changes no bit and sends half;
    vectors (norm gains, biases) are not: `prepare` leaves them out of the sharding.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy  # 1.2 s to import; one process does without

    return MixedPrecisionPolicy(
        param_dtype=None if gather == torch.float32 else gather, reduce_dtype=reduce, cast_forward_inputs=False
    )


def bf16_products(system: System) -> Products:
    """How products in bf16 are computed: as the system says, else natively where the device has units for them."""
    if system.bf16 != "auto":
        return system.bf16
    return "native" if has_bf16_units(system.device) else "emulated"


@cache
def has_bf16_units(device: str) -> bool:
    """By what the device says of itself, so that one machine always answers the same."""
    if device != "cpu":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.9 does not tell
    return any(there for name, there in capabilities.items() if name.endswith("bf16"))


@cache
def bf16_speedup(device: str = "cpu", size: int = 384, rounds: int = 5) -> float:
    """How many times faster bf16 multiplies here, below one: slower. Square products in turn, medians; under a second."""
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    inputs = {kind: torch.ones(size, size, device=device, dtype=kind) for kind in seconds}
    for _ in range(rounds + 1):
        for kind, x in inputs.items():
            begin = time.perf_counter()
            x @ x
            if x.is_cuda:
                torch.cuda.synchronize()
            seconds[kind].append(time.perf_counter() - begin)
    exact, short = (statistics.median(spent[1:]) for spent in seconds.values())
    return exact / short


def has_fast_bf16(device: str = "cpu") -> bool:
    """Whether computing in bf16 pays on this machine, by measurement."""
    return bf16_speedup(device) > WORTH_IT
