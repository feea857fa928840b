"""Optimizer state by parameter name: the local part of a sharded tensor, strict loading.

A sharded tensor is a DTensor, known by its `placements`: importing the class costs a second that one process can save.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor

from fulcrum.dist.mesh import is_row_shard, shard_group
from fulcrum.spec.errors import BadInput

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    return hasattr(tensor, "placements")


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lives on this rank, sharing its storage; a plain tensor is its own part."""
    part = tensor.detach()
    return part.to_local() if is_sharded(part) else part


def gradient(parameter: Tensor) -> Tensor | None:
    """The local part of a parameter's gradient."""
    return None if parameter.grad is None else local(parameter.grad)


def first_element(name: str, parameter: Tensor) -> int:
    """Index, in the whole parameter, of the first element that lives on this rank."""
    if not is_sharded(parameter):
        return 0
    if not is_row_shard(parameter):
        raise ValueError(f"parameter {name!r} must be sharded by rows (FSDP2's default), found {parameter.placements}")
    sharing = shard_group(parameter)
    share = -(-parameter.shape[0] // sharing.size)  # rows of a rank, as torch.chunk deals them
    return min(sharing.rank * share, parameter.shape[0]) * (parameter.numel() // parameter.shape[0])


def require_same_names(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Refuse a saved state that lacks an entry or has one too many."""
    missing, unknown = sorted(expected.keys() - given.keys()), sorted(given.keys() - expected.keys())
    if missing or unknown:
        raise BadInput(
            f"the saved optimizer state does not belong to this run: {len(missing)} entries missing {missing[:3]}, "
            f"{len(unknown)} unknown {unknown[:3]}",
            "resume with the same model and the same optimizer, or start afresh",
        )


@torch.no_grad()
def load_strictly(into: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Copy saved tensors into the live ones, all or nothing; a full tensor is cut to the local shard."""
    require_same_names(into, given)
    for name, target in into.items():
        if given[name].shape != target.shape:
            raise BadInput(
                f"saved optimizer state {name!r} has shape {tuple(given[name].shape)}, this run needs "
                f"{tuple(target.shape)}",
                "resume with the model that wrote the checkpoint",
            )
        if given[name].dtype != target.dtype:
            raise BadInput(
                f"saved optimizer state {name!r} is {given[name].dtype}, this run keeps {target.dtype}",
                "set precision.optimizer to what the checkpoint was written with",
            )
    for name, target in into.items():
        source = given[name]
        if is_sharded(target) and not is_sharded(source):
            from torch.distributed.tensor import distribute_tensor

            # src_data_rank=None: every rank holds the full tensor already, so it cuts its own slice and nobody sends.
            source = distribute_tensor(
                source.to(target.device),
                target.device_mesh,
                target.placements,
                src_data_rank=None,
            )
        local(target).copy_(local(source))
