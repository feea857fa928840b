"""Whole matrices from shards: each is gathered to one owner, worked on there once, and sent back in
parts.

Legend: S ranks that share one replica of the model; a matrix of R rows is sharded by rows as
torch.chunk does, ceil(R / S) to each rank, the last fewer.
"""

from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from fulcrum.training.dist.collectives import ShardGroup, is_row_shard, shard_group
from fulcrum.training.dist.ranks import Ranks

Whole = Callable[[Mapping[str, Tensor]], dict[str, Tensor]]


class Owners:
    """Deals matrices round-robin, so that the ranks of a replica together work on each matrix once;
    two all-to-alls a call.

    Matrices are dealt shape by shape: every rank gets its share of the large ones, and equal shapes
    to batch.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def __call__(
        self, parts: Mapping[str, Tensor], parameters: Mapping[str, Parameter], work: Whole
    ) -> dict[str, Tensor]:
        """This rank's parts of the matrices -> this rank's parts of `work` on the whole
        matrices."""
        if self.ranks.size == 1 or not parts:
            return work(parts)
        for name in parts:
            require_row_shard(name, parameters[name])
        shapes = {name: (parameters[name].shape[0], parameters[name].shape[1]) for name in parts}
        sharing = shard_group(parameters[next(iter(parts))])
        if sharing.size == 1:  # every process holds the whole matrices
            return work(parts)
        owned = deal(shapes, sharing.size)
        mine, everyone = owned[sharing.rank], range(sharing.size)
        like = next(iter(parts.values()))  # a rank that owns nothing must still know the dtype

        arrived = exchange(
            [[parts[name] for name in owned[rank]] for rank in everyone],
            [[_part(shapes[name], rank, sharing.size) for name in mine] for rank in everyone],
            like,
            sharing,
        )
        results = work(
            {name: torch.cat(pieces) for name, *pieces in zip(mine, *arrived, strict=True)}
        )
        cut = [
            torch.split(
                results[name], [_part(shapes[name], rank, sharing.size)[0] for rank in everyone]
            )
            for name in mine
        ]
        returned = exchange(
            [[pieces[rank] for pieces in cut] for rank in everyone],
            [
                [_part(shapes[name], sharing.rank, sharing.size) for name in owned[rank]]
                for rank in everyone
            ],
            like,
            sharing,
        )
        back = {
            name: part
            for rank in everyone
            for name, part in zip(owned[rank], returned[rank], strict=True)
        }
        return {name: back[name] for name in parts}


def _part(shape: tuple[int, int], rank: int, size: int) -> tuple[int, int]:
    share = -(-shape[0] // size)
    return max(0, min(share, shape[0] - rank * share)), shape[1]


def deal(shapes: Mapping[str, tuple[int, int]], size: int) -> list[list[str]]:
    """Names by owner: sorted by shape (largest first, then as given), then round-robin."""
    order = sorted(shapes, key=lambda name: (-shapes[name][0] * shapes[name][1], shapes[name]))
    return [order[rank::size] for rank in range(size)]


def exchange(
    outgoing: list[list[Tensor]],
    incoming: list[list[tuple[int, int]]],
    like: Tensor,
    sharing: ShardGroup,
) -> list[list[Tensor]]:
    """Send the r-th list to rank r of the group; get from each the tensors of the shapes announced.
    One all-to-all."""
    sent = [sum(tensor.numel() for tensor in tensors) for tensors in outgoing]
    got = [sum(rows * columns for rows, columns in shapes) for shapes in incoming]
    flat = torch.cat(
        [
            like.new_empty(0),
            *(tensor.reshape(-1).to(like) for tensors in outgoing for tensor in tensors),
        ]
    )
    buffer = like.new_empty(sum(got))
    dist.all_to_all_single(buffer, flat, got, sent, group=sharing.group)
    return [
        unpack(block, shapes)
        for block, shapes in zip(torch.split(buffer, got), incoming, strict=True)
    ]


def unpack(flat: Tensor, shapes: list[tuple[int, int]]) -> list[Tensor]:
    """One flat tensor -> matrices of these shapes, one after the other."""
    matrices, start = [], 0
    for rows, columns in shapes:
        matrices.append(flat[start : start + rows * columns].view(rows, columns))
        start += rows * columns
    return matrices


def require_row_shard(name: str, parameter: Tensor) -> None:
    if not is_row_shard(parameter):
        layout = list(getattr(parameter, "placements", ())) or "a plain tensor"
        raise ValueError(
            f"matrix {name!r} must be sharded by rows (FSDP2's default) to be dealt to owners,"
            f" found {layout}; prepare the model with fulcrum.training.dist.shard.prepare before"
            " the optimizer is built"
        )
