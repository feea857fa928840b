"""Shard a model: compute dtypes, the exchange between CPU processes, and the order of steps."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from fulcrum.spec.run import Products, System
from fulcrum.training.dist.collectives import device_mesh, is_sharded
from fulcrum.training.dist.ranks import Ranks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy


# --------------------------------------------------------------------------------------------------
# Dtypes of a run: from the spec's words to torch, and how and how fast this machine multiplies
# bf16.


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WORTH_IT = 1.2  # a smaller speed-up is not worth the precision


def shard_policy(reduce: torch.dtype, gather: torch.dtype = torch.float32) -> MixedPrecisionPolicy:
    """What FSDP2 does to dtypes: sum gradients in the reduce dtype, gather weights in `gather`, and
    cast no input.

    Cast inputs would be every floating input of a block, the time and the rotary table included.
    Matrices of a block are cast to the compute dtype by every linear that uses them, so gathering
    them in it changes no bit and sends half; vectors (norm gains, biases) are not: `prepare` leaves
    them out of the sharding.
    """
    # 1.2 s to import; one process does without
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return MixedPrecisionPolicy(
        param_dtype=None if gather == torch.float32 else gather,
        reduce_dtype=reduce,
        cast_forward_inputs=False,
    )


def bf16_products(system: System) -> Products:
    """How products in bf16 are computed: as the system says, else natively where the device has
    units for them."""
    if system.bf16 != "auto":
        return system.bf16
    return "native" if has_bf16_units(system.device) else "emulated"


@cache
def has_bf16_units(device: str) -> bool:
    """By what the device says of itself, so that one machine always answers the same."""
    if device != "cpu":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # torch 2.9 does not tell
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(there for name, there in capabilities.items() if name.endswith("bf16"))


@cache
def bf16_speedup(device: str = "cpu", size: int = 384, rounds: int = 5) -> float:
    """How many times faster bf16 multiplies here, below one: slower. Square products in turn,
    medians; under a second."""
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


# --------------------------------------------------------------------------------------------------
# How processes on CPUs exchange weights and gradients under FSDP2: no byte is sent that nobody
# needs, none is held twice.
#
# gloo has no reduce-scatter of its own: torch copies the whole gradient of a block, sums all of it
# on every process, and lets each keep its part. And what gloo gathers goes into a buffer of its own
# first. Both hold a block once more, the first sends it twice. Here each process sends every other
# one its part, in rounds: to the next process, to the one after it, and so on.


# elements that are received before they are added: little memory, and they are still in the cache
PIECE = 2**20


class _Exchange:
    """What FSDP2 asks of any way to exchange."""

    def allocate(
        self, size: tuple[int, ...], *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class GatherParts(_Exchange):
    """Every process gets the parts of all, each where it belongs."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
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
    """Each process gets the sum, or the mean, of its own part over all; a part is always summed in
    the same order."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
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
    """Set what FSDP2 has just wrapped for processes on CPUs. By itself it gathers the weights of
    the next block before its turn, which pays on devices that copy while they compute; gloo is
    waited for, so here that costs memory alone."""
    sharded: Any = module
    sharded.set_custom_all_gather(GatherParts())
    sharded.set_custom_reduce_scatter(SumParts())
    # itself, which is there already: an empty list means the next one
    sharded.set_modules_to_backward_prefetch([sharded])


# --------------------------------------------------------------------------------------------------
# Bring a model to life on one or many processes: the one place that knows the order.
#
#     meta -> activation checkpointing -> compile blocks -> shard blocks -> shard root
#          -> to_empty -> initialise
#
# Each step needs the one before: compile must see the checkpointed block, FSDP2 must wrap what is
# compiled, and no rank may ever hold the whole model, so memory comes after sharding and values
# come one parameter at a time.


Init = Callable[[str, torch.Size], Tensor]
"""(parameter name, full shape) -> its full initial value."""
# parameters of a model whose weights, 40 MB, a process may as well hold whole for a step
SMALL = 10_000_000


def prepare(
    root: nn.Module,
    blocks: Iterable[nn.Module],
    ranks: Ranks,
    init: Init,
    reduce: torch.dtype = torch.float32,
    recompute: Callable[[], None] | None = None,
    compile: Callable[[], None] | None = None,
    mesh: DeviceMesh | None = None,
    gather: torch.dtype = torch.float32,
) -> None:
    """Make `root`, built on the meta device, ready to train in place; build the optimizer after
    this.

    `recompute` and `compile` change the model's blocks when called (e.g. `lambda:
    compile_blocks(backbone)`). Matrices are sharded over `mesh` (none: all ranks share one model),
    those of blocks gathered in `gather`. Vectors stay whole and in fp32 on every rank: they are
    few, and their gradients are averaged by `collectives.average_gradients`.
    """
    real = [name for name, p in root.named_parameters() if not p.is_meta]
    if real:
        raise ValueError(
            f"parameter {real[0]!r} already has memory; build the model under torch.device('meta'),"
            " so that no process ever holds all of it"
        )
    buffers = {name: buffer.clone() for name, buffer in root.named_buffers()}
    empty = [name for name, buffer in buffers.items() if buffer.is_meta]
    if empty:
        raise ValueError(
            f"buffer {empty[0]!r} is on the meta device and nothing would fill it; create it with"
            " an explicit device='cpu'"
        )
    if recompute is not None:
        recompute()
    if compile is not None:
        compile()
    if ranks.size > 1:
        from torch.distributed.fsdp import fully_shard  # 1.2 s to import; one process does without

        mesh = device_mesh("fsdp", ranks) if mesh is None else mesh
        vectors = {parameter for parameter in root.parameters() if parameter.ndim < 2}
        policy = shard_policy(reduce, gather)
        blocks = list(blocks)
        for block in blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy, ignored_params=vectors)
        # The root too lets go of its weights after a forward: one without a backward (a witness)
        # must leave no trace. Not all of its matrices are multiplied in the compute dtype (terms,
        # conditions): they are gathered as they are.
        fully_shard(
            root,
            mesh=mesh,
            mp_policy=shard_policy(reduce),
            reshard_after_forward=True,
            ignored_params=vectors,
        )
        if ranks.device.type == "cpu":
            for part in (*blocks, root):
                suit_cpu(part)
    root.to_empty(device=ranks.device)
    for name, buffer in root.named_buffers():
        buffer.copy_(buffers[name])
    initialise(root, init)


@torch.no_grad()
def initialise(root: nn.Module, init: Init) -> None:
    """Give every named parameter its value, one at a time, keeping the local slice."""
    for name, parameter in root.named_parameters():
        value = init(name, parameter.shape)
        if value.shape != parameter.shape:
            raise ValueError(
                f"init gave {tuple(value.shape)} for parameter {name!r}, expected "
                f"{tuple(parameter.shape)}; it must return the full tensor"
            )
        place(parameter, value)


@torch.no_grad()
def place(target: Tensor, value: Tensor) -> None:
    """Copy a full value, known to every rank, into a tensor that may be sharded; no
    communication."""
    if is_sharded(target):
        target.to_local().copy_(_cut(value, target).to_local())  # type: ignore[attr-defined]
    else:
        target.copy_(value)


def forget(module: nn.Module) -> None:
    """Send the parameters of a small part that was born with memory to the meta device; its buffers
    stay."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            setattr(
                part,
                name,
                nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad),
            )


def cut(values: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Full tensors, known to every rank, sharded as their namesakes are; what has no sharded
    namesake stays as it is."""
    return {
        name: _cut(value, like[name]) if name in like and is_sharded(like[name]) else value
        for name, value in values.items()
    }


def _cut(value: Tensor, like: Tensor) -> Tensor:
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    return distribute_tensor(value.to(like.device), mesh, placements, src_data_rank=None)


@contextlib.contextmanager
def held_gathered(root: nn.Module, ranks: Ranks) -> Iterator[None]:
    """Keep what a forward gathered until its backward, where processes on CPUs share a small model:
    gathered again it cost a twelfth of a step. Only for forwards that have a backward: weights that
    were kept are not those of the next update."""
    few = (
        ranks.size > 1
        and ranks.device.type == "cpu"
        and sum(p.numel() for p in root.parameters()) <= SMALL
    )
    blocks: list[Any] = (
        [part for part in root.modules() if part is not root and _gathers(part)] if few else []
    )
    for block in blocks:
        block.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for block in blocks:
            block.set_reshard_after_forward(True, recurse=False)


def _gathers(part: nn.Module) -> bool:
    """Is it a block that fully_shard has wrapped, and learns? What does not learn has no backward
    to let go in."""
    return hasattr(part, "set_reshard_after_forward") and any(
        p.requires_grad for p in part.parameters()
    )


def sum_gradients(root: nn.Module, on: bool) -> None:
    """Gradient accumulation: turn the sum over ranks off for all backward passes of a step but the
    last."""
    switch: Callable[[bool], None] | None = getattr(root, "set_requires_gradient_sync", None)
    if switch is not None:  # only what fully_shard has wrapped has one
        switch(on)
