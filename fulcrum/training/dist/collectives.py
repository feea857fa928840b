"""The device mesh, reductions over it, and the agreement of all ranks on what they train."""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from fulcrum.files.folders import Mark, leave_mark, unseen
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.training.dist.ranks import Ranks

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


# --------------------------------------------------------------------------------------------------
# Tensors of which each process holds a part.


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Is it a DTensor? Known by its `placements`: importing the class costs a second that one
    process can save."""
    return hasattr(tensor, "placements")


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor that lives on this rank, sharing its storage; a plain tensor is its own
    part."""
    part = tensor.detach()
    return part.to_local() if is_sharded(part) else part


def gradient(parameter: Tensor) -> Tensor | None:
    """The local part of a parameter's gradient."""
    return None if parameter.grad is None else local(parameter.grad)


def first_row(name: str, tensor: Tensor) -> int:
    """Index, in the whole tensor, of the first row that lives on this rank."""
    if not is_sharded(tensor):
        return 0
    if not is_row_shard(tensor):
        raise ValueError(
            f"tensor {name!r} must be sharded by rows (FSDP2's default), found {tensor.placements}"
        )
    sharing = shard_group(tensor)
    share = -(-tensor.shape[0] // sharing.size)  # rows of a rank, as torch.chunk deals them
    return min(sharing.rank * share, tensor.shape[0])


def first_element(name: str, parameter: Tensor) -> int:
    """Index, in the whole parameter, of the first element that lives on this rank."""
    row = first_row(name, parameter)
    return row * (parameter.numel() // parameter.shape[0]) if row else 0


# --------------------------------------------------------------------------------------------------
# The mesh of a run: replicas of the model, each shared among as many processes; and a tensor's
# place in it.
#
#     ddp    every process holds all weights           N x 1
#     fsdp   all processes share one model             1 x N
#     RxS    R replicas, each shared among S           R x S
#
# One mechanism for all three (FSDP2): a sum over replicas is only added to it, so one law covers
# them.


class MeshShape(NamedTuple):
    replicas: int
    shards: int  # processes that share one replica

    @property
    def processes(self) -> int:
        return self.replicas * self.shards


def mesh_shape(mesh: str, size: int) -> MeshShape:
    """What `--mesh` says, for a world of `size` processes; refused where it does not fill that
    world."""
    if mesh in ("ddp", "fsdp"):
        return MeshShape(size, 1) if mesh == "ddp" else MeshShape(1, size)
    shape = MeshShape(*map(int, mesh.split("x")))
    if shape.processes != size:
        raise BadInput(
            f"the mesh {mesh} is {shape.replicas} x {shape.shards} = {shape.processes} processes,"
            f" and there {'is 1' if size == 1 else f'are {size}'}",
            f"start as many, or choose a mesh of {size}: ddp, fsdp, or replicas x shards",
        )
    return shape


def device_mesh(mesh: str, ranks: Ranks) -> DeviceMesh:
    """For FSDP2: the last dimension is the one that shards; a first one, of replicas, is there if
    there are some."""
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
    return DeviceMesh.from_group(
        [replicate, shard], ranks.device.type, mesh=grid, mesh_dim_names=names
    )


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
    return (
        bool(placements)
        and placements[-1].is_shard(dim=0)
        and all(one.is_replicate() for one in placements[:-1])
    )


def copies(tensor: Tensor) -> int:
    """How many processes hold the same numbers as this one: the replicas of a shard, or all where
    it is whole."""
    if not is_sharded(tensor):
        return dist.get_world_size() if dist.is_initialized() else 1
    mesh: DeviceMesh = tensor.device_mesh
    return mesh.size() // mesh.size(mesh.ndim - 1)


# --------------------------------------------------------------------------------------------------
# Numbers that all ranks agree on: gradient norm, means, sums, whole tensors.


Word = TypeVar("Word")


@torch.no_grad()
def clip(parameters: Iterable[Parameter], max_norm: float) -> Tensor:
    """Scale all gradients in place so that their common norm is at most `max_norm`; the norm
    before, a 0-d tensor.

    Sharded gradients add up over the ranks, plain ones are the same on all ranks and count once. A
    non-finite norm is returned as it is: stop before the optimizer.
    """
    if not max_norm > 0:
        raise ValueError(
            f"clip expects a positive norm, found {max_norm}; use float('inf') to only measure"
        )
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        raise ValueError(
            "clip found no gradient at all; call it after backward() and before zero_grad()"
        )
    sharded = [g.to_local() for g in gradients if is_sharded(g)]
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
    """Mean over ranks, on every rank; of losses over equal shares of a batch it is the global
    mean."""
    return total(values, ranks) / ranks.size


@torch.no_grad()
def means(values: Sequence[Tensor], ranks: Ranks) -> list[Tensor]:
    """The mean over ranks of each tensor, in one exchange."""
    if ranks.size == 1:
        return list(values)
    flat = mean(torch.cat([value.detach().double().reshape(-1) for value in values]), ranks)
    parts = torch.split(flat, [value.numel() for value in values])
    return [
        part.view(value.shape).to(value.dtype) for part, value in zip(parts, values, strict=True)
    ]


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
    here = (p.to_local() if is_sharded(p) else p for p in parameters)
    return not ranks.any(any(not bool(p.isfinite().all()) for p in here))


def largest(values: Sequence[float], ranks: Ranks) -> list[float]:
    """The largest of each number over the ranks, on every rank."""
    if ranks.size == 1:
        return list(values)
    numbers = torch.tensor(values, dtype=torch.float64, device=ranks.device)
    dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
    most: list[float] = numbers.tolist()
    return most


def of_first(value: Word, ranks: Ranks, group: dist.ProcessGroup | None = None) -> Word:
    """What the first rank says, on every rank. `group` sends it, by default that of all."""
    values = [value]
    if ranks.size > 1:
        dist.broadcast_object_list(values, group=group)
    return values[0]


def of_all(value: Word, ranks: Ranks, group: dist.ProcessGroup | None = None) -> list[Word]:
    """What every rank says, in their order, on every rank. `group` sends it, by default that of
    all."""
    values = [value] * ranks.size
    if ranks.size > 1:
        dist.all_gather_object(values, value, group=group)
    return values


@contextmanager
def fail_together(
    ranks: Ranks, kind: type[Exception], group: dist.ProcessGroup | None = None
) -> Iterator[None]:
    """If the block fails on one rank, raise `kind` on every rank, with the rank and its reason.
    Alone, its error is raised as it is."""
    failure: BaseException | None = None
    reason: str | None = None
    try:
        yield
    except BaseException as error:
        if ranks.size == 1:
            raise
        failure = error
        words = error.message if isinstance(error, FulcrumError) else str(error)
        reason = f"rank {ranks.rank}: {words or type(error).__name__}"
    reasons = [one for one in of_all(reason, ranks, group) if one]
    if reasons:
        raise kind(reasons[0]) from failure


@torch.no_grad()
def gathered(tensors: Mapping[str, Tensor], ranks: Ranks) -> dict[str, Tensor]:
    """Whole tensors for the first rank to use, nothing for the others; all ranks must call it
    together."""
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
    """Whole tensors for every rank to use, of many ranks on their hosts; all ranks must call it
    together."""
    return {
        name: whole(tensor) if ranks.size == 1 else whole(tensor).cpu()
        for name, tensor in tensors.items()
    }


@torch.no_grad()
def rows_to_first(rows: Tensor, counts: Sequence[int], ranks: Ranks) -> list[Tensor]:
    """What each rank brings, in their order, on the first rank; nothing on the others. `rows` lie
    on the host, and `counts` are how many each rank has; all ranks must call it together."""
    if ranks.size == 1:
        return [rows]
    sent = torch.zeros(max(counts), *rows.shape[1:], dtype=rows.dtype)  # a gather takes equal parts
    sent[: len(rows)] = rows
    received = [torch.empty_like(sent) for _ in counts] if ranks.first else None
    dist.gather(sent, received, dst=0, group=ranks.of_hosts)
    return (
        [part[:count] for part, count in zip(received or (), counts, strict=True)]
        if ranks.first
        else []
    )


@torch.no_grad()
def whole(tensor: Tensor) -> Tensor:
    """The full tensor behind a shard, on every rank; all ranks must call it together."""
    return tensor.detach().full_tensor() if is_sharded(tensor) else tensor.detach()  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------------------
# Agreement: before anything is trained the processes of a run tell each other what they are about
# to do.


ROOT = Path(str(files("fulcrum")))  # the package, wherever this file is in it
PACKAGES = ("fulcrum-lab", "torch", "numpy", "safetensors")
NAMED = 6  # differences that one message tells
HINT = (
    "start all processes of a run with the same words, the same code and the same folder; nothing"
    " was trained"
)


def require_agreement(ranks: Ranks, about: str, facts: Mapping[str, Any]) -> None:
    """Every rank tells its facts; where one differs it is named, with what was expected and what it
    has, on all ranks."""
    if ranks.size == 1:
        return
    text = json.dumps({"host": platform.node(), "facts": facts}, sort_keys=True, default=str)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()
    digests = ranks.told(f"{about}, its hash", digest)
    if len(set(digests)) == 1:
        return
    reports = [json.loads(report) for report in ranks.told(about, text)]
    # of equal counts the first counted: the lowest rank's
    usual = Counter(digests).most_common(1)[0][0]
    model = digests.index(usual)
    words = [
        f"rank {rank} on {report['host']}: {_differences(reports[model]['facts'], report['facts'])}"
        for rank, report in enumerate(reports)
        if digests[rank] != usual
    ]
    more = f"; and {len(words) - NAMED} ranks more" if len(words) > NAMED else ""
    raise BadInput(
        f"the processes of the run do not agree ({about}): {'; '.join(words[:NAMED])}{more}", HINT
    )


def _differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    names = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    each = [
        f"{name} expected {_shown(expected.get(name))}, found {_shown(found.get(name))}"
        for name in names
    ]
    return ", ".join(each[:NAMED]) + (
        f", and {len(each) - NAMED} more" if len(each) > NAMED else ""
    )


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def require_shared(ranks: Ranks, folder: Path) -> None:
    """Every rank leaves a mark in the folder and looks for all: a folder that is only called the
    same is named."""
    if ranks.size == 1:
        return
    mark = leave_mark(folder)
    try:
        marks = [
            Mark(*json.loads(one))
            for one in ranks.told("the marks in the folder of runs", json.dumps(mark))
        ]
        answers = ranks.told(
            "the marks that were seen", json.dumps([platform.node(), unseen(folder, marks)])
        )
    finally:
        mark.remove(folder)
    blind = [(rank, *json.loads(one)) for rank, one in enumerate(answers)]
    words = [
        f"rank {rank} on {host} does not see what {_ranks(missing)} wrote"
        for rank, host, missing in blind
        if missing
    ]
    if words:
        raise BadInput(
            f"{folder} is not one folder for all processes of the run: {'; '.join(words[:NAMED])}",
            "give a folder with --out that all machines share; nothing was trained",
        )


def _ranks(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:NAMED])) + (" and more" if len(numbers) > NAMED else "")
    return f"rank{'s' if len(numbers) > 1 else ''} {shown}"


@cache
def code_hash() -> str:
    """Of every Python file of the package: two nodes may have two checkouts."""
    digest = hashlib.sha256()
    for path in sorted(ROOT.rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Of Python and of what computes and stores."""
    numbers = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            numbers[name] = "not installed"
    return numbers
