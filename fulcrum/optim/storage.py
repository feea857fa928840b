"""Stored numbers: what precision weights and gradients keep, and how many updates that precision swallows.

Weights stored in bf16 are held as fp32 tensors whose values are exactly representable in bf16. A bf16 parameter would
force bf16 gradients too (torch ties the two dtypes), and gradient accumulation, clipping and reduction would change
with the lever: two decisions at once. This way only the storage differs, and compute and compile stay as they are.
What it does not do here is save memory in training: 4 bytes a weight, as before. A checkpoint may write such weights
as bf16 without loss (2 bytes), and real bf16 parameters would save 4 bytes a weight (weight and gradient).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fulcrum.optim.optimizer_state import first_element, gradient, local
from fulcrum.optim.rounding import keys, round_at_random

STORED = (torch.float32, torch.bfloat16)


def require_storable(dtype: torch.dtype, what: str) -> None:
    if dtype not in STORED:
        raise ValueError(f"{what} is {dtype}; expected torch.float32 or torch.bfloat16")


class StoredWeights(NamedTuple):
    """How weights are kept: the precision, and how an update is rounded to it."""

    dtype: torch.dtype = torch.float32
    seed: int | None = None  # of rounding up or down at random; None rounds to nearest, ties to even

    @torch.no_grad()
    def start(self, parameters: Mapping[str, Tensor]) -> None:
        """The weights that a run begins from must be storable as well: to nearest, however updates are rounded."""
        require_storable(self.dtype, "precision.storage")
        self._replace(seed=None).keep(parameters, at=0)

    @torch.no_grad()
    def keep(self, parameters: Mapping[str, Tensor], at: int) -> None:
        """Round this rank's part of fp32 weights in place; `at` is the step, in images seen before it."""
        if self.dtype == torch.float32:
            return
        for name, parameter in parameters.items():
            weight = local(parameter)
            if self.seed is None:
                weight.copy_(weight.to(self.dtype))
            else:
                round_at_random(weight, keys(self.seed, at, name), first_element(name, parameter))


@torch.no_grad()
def keep_gradients(parameters: Iterable[Tensor], dtype: torch.dtype) -> None:
    """Round gradients in place to what the dtype can hold, once, when all parts of a batch are in them: a model whose
    weights are bf16 tensors gets such gradients from its backward pass, and how often they are rounded would otherwise
    depend on how many parts and processes a batch is shared among."""
    if dtype == torch.float32:
        return
    for parameter in parameters:
        if (whole := gradient(parameter)) is not None:
            whole.copy_(whole.to(dtype))


@torch.no_grad()
def count_stalled(
    before: Sequence[Tensor], after: Sequence[Tensor], update: Sequence[Tensor], held_by: Sequence[int] | None = None
) -> Tensor:
    """(2,) [elements whose non-zero update left the stored weight as it was, elements with a non-zero update].

    Rounded to nearest, such an update is lost. Rounded at random, it is not: others of its size moved by a whole step.
    `held_by` says how many processes hold, and count, each of the tensors: all of them together count it once.
    """
    counts = torch.zeros(2, dtype=torch.float64, device=after[0].device if after else None)
    for old, new, change, times in zip(before, after, update, held_by or [1] * len(after), strict=True):
        moving = change != 0
        counts[0] += (moving & (old == new)).sum().double() / times
        counts[1] += moving.sum().double() / times
    return counts


def stalled_share(counts: Iterable[float] | Tensor) -> float:
    """The watchdog's number: the share of updates that rounded to nothing (0 if nothing was to be updated)."""
    stalled, moving = map(float, counts)
    return stalled / moving if moving else 0.0
