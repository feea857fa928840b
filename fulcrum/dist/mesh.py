"""The mesh of a run: replicas of the model, each shared among as many processes; and a tensor's place in it.

    ddp    every process holds all weights           N x 1
    fsdp   all processes share one model             1 x N
    RxS    R replicas, each shared among S           R x S

One mechanism for all three (FSDP2): a sum over replicas is only added to it, so one law covers them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from fulcrum.dist.processes.start import Ranks, is_sharded
from fulcrum.spec.errors import BadInput

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class MeshShape(NamedTuple):
    replicas: int
    shards: int  # processes that share one replica

    @property
    def processes(self) -> int:
        return self.replicas * self.shards


def mesh_shape(mesh: str, size: int) -> MeshShape:
    """What `--mesh` says, for a world of `size` processes; refused where it does not fill that world."""
    if mesh in ("ddp", "fsdp"):
        return MeshShape(size, 1) if mesh == "ddp" else MeshShape(1, size)
    shape = MeshShape(*map(int, mesh.split("x")))
    if shape.processes != size:
        raise BadInput(
            f"the mesh {mesh} is {shape.replicas} x {shape.shards} = {shape.processes} processes, and there "
            f"{'is 1' if size == 1 else f'are {size}'}",
            f"start as many, or choose a mesh of {size}: ddp, fsdp, or replicas x shards",
        )
    return shape


def device_mesh(mesh: str, ranks: Ranks) -> DeviceMesh:
    """For FSDP2: the last dimension is the one that shards; a first one, of replicas, is there if there are some."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    shape = mesh_shape(mesh, ranks.size)
    if shape.replicas == 1:  # all processes: their group is there, with its limit
        return init_device_mesh(ranks.device.type, (shape.shards,), mesh_dim_names=("shard",))
    # Groups that init_device_mesh made would wait as long as torch likes, not as `--timeout` says.
    grid, limit = torch.arange(shape.processes).view(shape), timedelta(seconds=ranks.timeout)
    split: Any = dist.new_subgroups_by_enumeration  # untyped
    shard, _ = split(grid.tolist(), timeout=limit)
    replicate, _ = split(grid.T.tolist(), timeout=limit)
    names = ("replicate", "shard")
    return DeviceMesh.from_group([replicate, shard], ranks.device.type, mesh=grid, mesh_dim_names=names)


class ShardGroup(NamedTuple):
    """The processes that share one replica, as one of them sees them."""

    rank: int
    size: int
    group: dist.ProcessGroup


def shard_group(tensor: Tensor) -> ShardGroup:
    """Of a sharded tensor."""
    mesh: DeviceMesh = tensor.device_mesh  # type: ignore[attr-defined]
    last = mesh.ndim - 1
    return ShardGroup(mesh.get_local_rank(last), mesh.size(last), mesh.get_group(last))


def is_row_shard(tensor: Tensor) -> bool:
    """Is it shared by rows, as FSDP2 does it, perhaps in several replicas?"""
    placements = list(getattr(tensor, "placements", ()))
    return bool(placements) and placements[-1].is_shard(dim=0) and all(one.is_replicate() for one in placements[:-1])


def copies(tensor: Tensor) -> int:
    """How many processes hold the same numbers as this one: the replicas of a shard, or all where it is whole."""
    if not is_sharded(tensor):
        return dist.get_world_size() if dist.is_initialized() else 1
    mesh: DeviceMesh = tensor.device_mesh  # type: ignore[attr-defined]
    return mesh.size() // mesh.size(mesh.ndim - 1)
