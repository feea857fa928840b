"""How processes on CPUs exchange weights and gradients under FSDP2: no byte is sent that nobody needs, none is held twice.

gloo has no reduce-scatter of its own: torch copies the whole gradient of a block, sums all of it on every process, and lets
each keep its part. And what gloo gathers goes into a buffer of its own first. Both hold a block once more, the first sends
it twice. Here each process sends every other one its part, in rounds: to the next process, to the one after it, and so on.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

PIECE = 2**20  # elements that are received before they are added: little memory, and they are still in the cache


class _Exchange:
    """What FSDP2 asks of any way to exchange."""

    def allocate(self, size: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class GatherParts(_Exchange):
    """Every process gets the parts of all, each where it belongs."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> None:
        parts = output_tensor.view(group.size(), -1)
        own = parts[group.rank()]
        if own.data_ptr() != input_tensor.data_ptr():
            own.copy_(input_tensor.view(-1))
        for to, source in _rounds(group):
            sent = dist.isend(own, group=group, group_dst=to)
            dist.recv(parts[source], group=group, group_src=source)
            _wait(sent)


class SumParts(_Exchange):
    """Each process gets the sum, or the mean, of its own part over all; a part is always summed in the same order."""

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: object, async_op: bool = False
    ) -> None:
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise ValueError(f"gradients are summed or averaged over processes, found {op}")
        parts = input_tensor.view(group.size(), -1)
        total = output_tensor.view(-1).copy_(parts[group.rank()])
        received = torch.empty_like(total[:PIECE])
        for to, source in _rounds(group):
            sent = [dist.isend(piece, group=group, group_dst=to) for piece in _pieces(parts[to])]
            for piece in _pieces(total):
                dist.recv(received[: len(piece)], group=group, group_src=source)
                piece.add_(received[: len(piece)])
            for one in sent:
                _wait(one)
        if op == dist.ReduceOp.AVG:
            total.div_(group.size())


def _pieces(numbers: Tensor) -> Iterator[Tensor]:
    return (numbers[begin : begin + PIECE] for begin in range(0, len(numbers), PIECE))


def _rounds(group: dist.ProcessGroup) -> Iterator[tuple[int, int]]:
    """To whom this process sends in each round, and from whom it receives."""
    rank, size = group.rank(), group.size()
    return (((rank + distance) % size, (rank - distance) % size) for distance in range(1, size))


def _wait(sent: dist.Work | None) -> None:
    assert sent is not None  # it is none for a process outside of the group
    sent.wait()


def suit_cpu(module: nn.Module) -> None:
    """Set what FSDP2 has just wrapped for processes on CPUs. By itself it gathers the weights of the next block before its
    turn, which pays on devices that copy while they compute; gloo is waited for, so here that costs memory alone."""
    sharded: Any = module
    sharded.set_custom_all_gather(GatherParts())
    sharded.set_custom_reduce_scatter(SumParts())
    sharded.set_modules_to_backward_prefetch([sharded])  # itself, which is there already: an empty list means the next one
