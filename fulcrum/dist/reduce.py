"""Numbers that all ranks agree on: gradient norm, means, sums, whole tensors."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from fulcrum.dist.mesh import shard_group
from fulcrum.dist.processes.start import Ranks, is_sharded

Word = TypeVar("Word", str, None, str | None, bool, int)


@torch.no_grad()
def clip(parameters: Iterable[Parameter], max_norm: float) -> Tensor:
    """Scale all gradients in place so that their common norm is at most `max_norm`; the norm before, a 0-d tensor.

    Sharded gradients add up over the ranks, plain ones are the same on all ranks and count once. A non-finite norm
    is returned as it is: stop before the optimizer.
    """
    if not max_norm > 0:
        raise ValueError(f"clip expects a positive norm, found {max_norm}; use float('inf') to only measure")
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        raise ValueError("clip found no gradient at all; call it after backward() and before zero_grad()")
    sharded = [g.to_local() for g in gradients if is_sharded(g)]  # type: ignore[attr-defined]
    plain = [g for g in gradients if not is_sharded(g)]
    square = _square(sharded, gradients[0].device)
    if sharded:  # replicas hold the same
        dist.all_reduce(square, group=shard_group(next(filter(is_sharded, gradients))).group)
    norm = (square + _square(plain, gradients[0].device)).sqrt()
    if not norm.is_cpu:  # a pass by one costs less than a host that waits for the norm
        torch._foreach_mul_(sharded + plain, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    elif bool(norm + 1e-6 > max_norm):  # most steps of a run are below, and need no pass
        torch._foreach_mul_(sharded + plain, max_norm / (norm + 1e-6))
    return norm


def _square(tensors: list[Tensor], device: torch.device) -> Tensor:
    if not tensors:
        return torch.zeros((), device=device)
    return torch.stack(torch._foreach_norm(tensors)).square().sum()


@torch.no_grad()
def total(values: Tensor, ranks: Ranks) -> Tensor:
    """Sum over ranks, on every rank."""
    if ranks.size == 1:
        return values
    summed = values.detach().to(ranks.device, copy=True)
    dist.all_reduce(summed)
    return summed


@torch.no_grad()
def mean(values: Tensor, ranks: Ranks) -> Tensor:
    """Mean over ranks, on every rank; of losses over equal shares of a batch it is the global mean."""
    return total(values, ranks) / ranks.size


@torch.no_grad()
def means(values: Sequence[Tensor], ranks: Ranks) -> list[Tensor]:
    """The mean over ranks of each tensor, in one exchange."""
    if ranks.size == 1:
        return list(values)
    flat = mean(torch.cat([value.detach().double().reshape(-1) for value in values]), ranks)
    parts = torch.split(flat, [value.numel() for value in values])
    return [part.view(value.shape).to(value.dtype) for part, value in zip(parts, values, strict=True)]


@torch.no_grad()
def average_gradients(parameters: Iterable[Parameter], ranks: Ranks) -> None:
    """Average what FSDP2 does not: gradients of parameters that every rank holds whole."""
    if ranks.size == 1:
        return
    held = [p.grad for p in parameters if p.grad is not None and not is_sharded(p)]
    for gradient, averaged in zip(held, means(held, ranks) if held else [], strict=True):
        gradient.copy_(averaged)


@torch.no_grad()
def all_finite(parameters: Iterable[Parameter], ranks: Ranks) -> bool:
    """Whether every weight of every rank is a number."""
    here = (p.to_local() if is_sharded(p) else p for p in parameters)  # type: ignore[attr-defined]
    return not ranks.any(any(not bool(p.isfinite().all()) for p in here))


def largest(values: Sequence[float], ranks: Ranks) -> list[float]:
    """The largest of each number over the ranks, on every rank."""
    if ranks.size == 1:
        return list(values)
    numbers = torch.tensor(values, dtype=torch.float64, device=ranks.device)
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
    most: list[float] = numbers.tolist()
    return most


def of_first(value: Word, ranks: Ranks) -> Word:
    """What the first rank says, on every rank."""
    values = [value]
    if ranks.size > 1:
        dist.broadcast_object_list(values)
    return values[0]


def of_all(value: Word, ranks: Ranks) -> list[Word]:
    """What every rank says, in their order, on every rank."""
    values = [value] * ranks.size
    if ranks.size > 1:
        dist.all_gather_object(values, value)
    return values


@torch.no_grad()
def gathered(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Whole tensors for the first rank to use, nothing for the others; all ranks must call it together."""
    if ranks.size == 1:
        return {name: whole(tensor) for name, tensor in tensors.items()}
    tensors_here = {}
    for name, tensor in tensors.items():  # one at a time: only the first rank keeps them
        full = whole(tensor)
        if ranks.first:
            tensors_here[name] = full.cpu()
    return tensors_here


@torch.no_grad()
def whole_on_all(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Whole tensors for every rank to use, of many ranks on their hosts; all ranks must call it together."""
    return {name: whole(tensor) if ranks.size == 1 else whole(tensor).cpu() for name, tensor in tensors.items()}


@torch.no_grad()
def rows_to_first(rows: Tensor, counts: Sequence[int], ranks: Ranks) -> list[Tensor]:
    """What each rank brings, in their order, on the first rank; nothing on the others. `rows` lie on the host, and `counts`
    are how many each rank has; all ranks must call it together."""
    if ranks.size == 1:
        return [rows]
    sent = torch.zeros(max(counts), *rows.shape[1:], dtype=rows.dtype)  # a gather takes equal parts
    sent[: len(rows)] = rows
    received = [torch.empty_like(sent) for _ in counts] if ranks.first else None
    dist.gather(sent, received, dst=0, group=ranks.of_hosts)
    return [part[:count] for part, count in zip(received or (), counts, strict=True)] if ranks.first else []


@torch.no_grad()
def whole(tensor: Tensor) -> Tensor:
    """The full tensor behind a shard, on every rank; all ranks must call it together."""
    return tensor.detach().full_tensor() if is_sharded(tensor) else tensor.detach()  # type: ignore[attr-defined]
