"""Bring a model to life on one or many processes: the one place that knows the order.

    meta -> activation checkpointing -> compile blocks -> shard blocks -> shard root -> to_empty -> initialise

Each step needs the one before: compile must see the checkpointed block, FSDP2 must wrap what is compiled, and no rank
may ever hold the whole model, so memory comes after sharding and values come one parameter at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fulcrum.dist.cpu_exchange import suit_cpu
from fulcrum.dist.mesh import device_mesh
from fulcrum.dist.precision import shard_policy
from fulcrum.dist.processes.start import Ranks, is_sharded

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Init = Callable[[str, torch.Size], Tensor]
"""(parameter name, full shape) -> its full initial value."""
SMALL = 10_000_000  # parameters of a model whose weights, 40 MB, a process may as well hold whole for a step


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
    """Make `root`, built on the meta device, ready to train in place; build the optimizer after this.

    `recompute` and `compile` change the model's blocks when called (e.g. `lambda: compile_blocks(backbone)`). Matrices are
    sharded over `mesh` (none: all ranks share one model), those of blocks gathered in `gather`. Vectors stay whole and in
    fp32 on every rank: they are few, and their gradients are averaged by `reduce.average_gradients`.
    """
    real = [name for name, p in root.named_parameters() if not p.is_meta]
    if real:
        raise ValueError(
            f"parameter {real[0]!r} already has memory; build the model under torch.device('meta'), "
            "so that no process ever holds all of it"
        )
    buffers = {name: buffer.clone() for name, buffer in root.named_buffers()}
    empty = [name for name, buffer in buffers.items() if buffer.is_meta]
    if empty:
        raise ValueError(
            f"buffer {empty[0]!r} is on the meta device and nothing would fill it; create it with an explicit device='cpu'"
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
        # The root too lets go of its weights after a forward: one without a backward (a witness) must leave no trace.
        # Not all of its matrices are multiplied in the compute dtype (terms, conditions): they are gathered as they are.
        fully_shard(root, mesh=mesh, mp_policy=shard_policy(reduce), reshard_after_forward=True, ignored_params=vectors)
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
    """Copy a full value, known to every rank, into a tensor that may be sharded; no communication."""
    if is_sharded(target):
        target.to_local().copy_(_cut(value, target).to_local())  # type: ignore[attr-defined]
    else:
        target.copy_(value)


def forget(module: nn.Module) -> None:
    """Send the parameters of a small part that was born with memory to the meta device; its buffers stay."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad))


def cut(values: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Full tensors, known to every rank, sharded as their namesakes are; what has no sharded namesake stays as it is."""
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
    """Keep what a forward gathered until its backward, where processes on CPUs share a small model: gathered again it cost
    a twelfth of a step. Only for forwards that have a backward: weights that were kept are not those of the next update."""
    few = ranks.size > 1 and ranks.device.type == "cpu" and sum(p.numel() for p in root.parameters()) <= SMALL
    blocks: list[Any] = [part for part in root.modules() if part is not root and _gathers(part)] if few else []
    for block in blocks:
        block.set_reshard_after_forward(False, recurse=False)
    try:
        yield
    finally:
        for block in blocks:
            block.set_reshard_after_forward(True, recurse=False)


def _gathers(part: nn.Module) -> bool:
    """Is it a block that fully_shard has wrapped, and learns? What does not learn has no backward to let go in."""
    return hasattr(part, "set_reshard_after_forward") and any(p.requires_grad for p in part.parameters())


def sum_gradients(root: nn.Module, on: bool) -> None:
    """Gradient accumulation: turn the sum over ranks off for all backward passes of a step but the last."""
    switch: Callable[[bool], None] | None = getattr(root, "set_requires_gradient_sync", None)
    if switch is not None:  # only what fully_shard has wrapped has one
        switch(on)
