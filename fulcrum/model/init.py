"""Keyed initialisation: each parameter from (seed, its name) alone, whatever else the model holds."""

import hashlib
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn


class InitialValue(NamedTuple):
    """Uniform between two bounds; equal bounds are a constant."""

    low: float
    high: float


ZERO, ONE = InitialValue(0.0, 0.0), InitialValue(1.0, 1.0)


def fan_in(inputs: int) -> InitialValue:
    """Uniform within 1/sqrt(inputs): torch's own rule for linears, weights and biases, which PRX keeps."""
    bound = 1 / math.sqrt(inputs)
    return InitialValue(-bound, bound)


def starts(module: nn.Module) -> dict[str, InitialValue]:
    """How every parameter begins, as the modules declare it in `parameter_starts`; raises where one does not."""
    values: dict[str, InitialValue] = {}
    for prefix, part in module.named_modules():
        declared: Mapping[str, InitialValue] = getattr(part, "parameter_starts", {})
        values |= {f"{prefix}.{name}" if prefix else name: start for name, start in declared.items()}
    names = [name for name, _ in module.named_parameters()]
    if lost := [name for name in names if name not in values]:
        raise ValueError(f"no start for {', '.join(lost)}: name each in `parameter_starts` of the module that makes it")
    return {name: values[name] for name in names}


def draw(name: str, shape: torch.Size, start: InitialValue, seed: int) -> Tensor:
    """The whole parameter `name` of seed `seed`, fp32 on the CPU; no other parameter has a say in it."""
    if start.low == start.high:
        return torch.full(shape, start.low, dtype=torch.float32)
    key = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "little")
    generator = torch.Generator().manual_seed(key >> 1)  # 63 bits: torch's seeds are signed
    return torch.empty(shape, dtype=torch.float32).uniform_(start.low, start.high, generator=generator)


@torch.no_grad()
def initialise(module: nn.Module, seed: int) -> None:
    """Fill every parameter in place, one at a time; sharded ones are `fulcrum.dist.shard`'s."""
    how = starts(module)
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            raise ValueError(f"parameter '{name}' is on the meta device: call `to_empty(device=...)` before initialise")
        parameter.copy_(draw(name, parameter.shape, how[name], seed))
