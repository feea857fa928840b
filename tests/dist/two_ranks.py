"""One rank of two, run as a script by test_two_ranks.py: trains, and writes what it saw.

python two_ranks.py OUT_DIR     with torchrun's variables in the environment; alone without them
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn

from fulcrum.spec.errors import RunFailed
from fulcrum.training.dist import shard as cpu_exchange
from fulcrum.training.dist.collectives import (
    average_gradients,
    clip,
    device_mesh,
    local,
    mean,
    total,
    whole,
)
from fulcrum.training.dist.matrix_owners import Owners
from fulcrum.training.dist.ranks import Ranks, start
from fulcrum.training.dist.shard import GatherParts, SumParts, held_gathered, prepare, sum_gradients
from fulcrum.training.model.parameters import roles
from fulcrum.training.model.transformer import Backbone, compile_blocks, recompute_blocks
from fulcrum.training.optim import muon as muon_room
from fulcrum.training.optim.muon import Muon, orthogonalise, undealt
from fulcrum.training.optim.optimizers import AdamW, Joint, groups

warnings.simplefilter("error")
# Dynamo looks itself
warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
graphs: list[int] = []  # sizes of what Dynamo handed to the compiler
ROWS, RULE = 8, {"matrix": "muon", "embed": "adamw", "head": "adamw", "vector": "adamw"}


class Toy(nn.Module):
    """A root like the training step: the model is a child, and the loss is inside."""

    def __init__(self, compute: torch.dtype = torch.float32) -> None:
        super().__init__()
        # Odd on purpose: 61 rows of the MLP and 15 of the head are shared unevenly by two ranks.
        self.backbone = Backbone(
            channels=15,
            patch=1,
            width=20,
            depth=2,
            heads=1,
            text_width=6,
            mlp_ratio=3.05,
            compute=compute,
        )

    def forward(self, x: Tensor, t: Tensor, text: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        out = self.backbone(x, t, (text, mask))
        return (out.pred - target).square().flatten(1).mean(1)  # (B,)


def initial(name: str, shape: torch.Size) -> Tensor:
    """Random everywhere, the zero-initialised parts too: a zero gate would hide half of the
    gradients."""
    generator = torch.Generator().manual_seed(sum(name.encode()) * 7919)
    return torch.randn(shape, generator=generator) * 0.2 + (
        1.0 if name.endswith("norm.weight") else 0.0
    )


def data(step: int) -> list[Tensor]:
    g = torch.Generator().manual_seed(step)
    mask = torch.arange(5)[None] < torch.randint(1, 6, (ROWS, 1), generator=g)
    return [
        torch.randn(ROWS, 15, 3, 3, generator=g),
        torch.rand(ROWS, generator=g),
        torch.randn(ROWS, 5, 6, generator=g),
        mask,
        torch.randn(ROWS, 15, 3, 3, generator=g),
    ]


def build(
    ranks: Ranks,
    gather: torch.dtype = torch.float32,
    compute: torch.dtype = torch.float32,
    **options,
) -> Toy:
    with torch.device("meta"):
        toy = Toy(compute)

    def traced(graph, inputs):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    given = {
        "recompute": lambda: recompute_blocks(toy.backbone),
        "compile": lambda: compile_blocks(toy.backbone, backend=traced),
    }
    chosen = {key: given[key] for key in options if options[key]}
    prepare(toy, toy.backbone.blocks, ranks, initial, **chosen, gather=gather)
    return toy


def backward(toy: Toy, ranks: Ranks, step: int, micro: int = 1) -> Tensor:
    """Mean loss of the global batch; its gradient in the parameters."""
    mine = [part[ranks.rows(ROWS)] for part in data(step)]
    losses = []
    for i, chunk in enumerate(zip(*(part.chunk(micro) for part in mine), strict=True)):
        sum_gradients(toy, i == micro - 1)
        loss = toy(*chunk).mean() / micro
        loss.backward()
        losses.append(loss.detach())
    average_gradients(toy.parameters(), ranks)
    return mean(torch.stack(losses).sum(), ranks)


def collect(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": whole(tensor).clone() for name, tensor in tensors.items()}


def gradients(toy: Toy) -> dict[str, Tensor]:
    return {name: p.grad for name, p in toy.named_parameters()}


def train(ranks: Ranks, seen: dict[str, Tensor], facts: dict) -> None:
    """Step one's gradients, then three updates of Muon and AdamW."""
    toy = build(ranks)
    calls: list[list[str]] = []

    def counted(matrices, dtype, steps):
        calls.append(list(matrices))
        return orthogonalise(matrices, dtype, steps)

    muon_room.orthogonalise = counted
    dealt = groups(toy.named_parameters(), roles(toy), RULE)
    deal = Owners(ranks) if ranks.size > 1 else undealt
    # smooth
    rule = Joint(
        [Muon(dealt["muon"], lr=1e-2, deal=deal), AdamW(dealt["adamw"], lr=1e-2, eps=1e-5)]
    )
    seen |= collect("start", dict(toy.named_parameters()))
    for step in range(3):
        loss = backward(toy, ranks, step)
        if step == 0:
            facts["loss"] = loss.item()
            seen |= collect("gradient", gradients(toy))
        norm = clip(toy.parameters(), 0.05)
        if step == 0:
            facts["norm"] = norm.item()
            facts["clipped"] = clip(toy.parameters(), float("inf")).item()
        rule.step(watch=True)
        if step == 0:
            seen |= collect("weight1", dict(toy.named_parameters()))
        rule.zero_grad()
    seen |= collect("weight3", dict(toy.named_parameters()))
    facts["stalled"] = total(rule.stalled, ranks).tolist()
    facts["calls"], facts["matrices"] = calls, list(dealt["muon"])
    seen |= collect("state", rule.state())
    if ranks.size > 1:
        facts["local_elements"] = sum(local(p).numel() for p in toy.parameters())
        facts["all_elements"] = sum(p.numel() for p in toy.parameters())


def variants(ranks: Ranks, seen: dict[str, Tensor], facts: dict) -> None:
    """The gradients of step one again: accumulated, recomputed, compiled."""
    for name, options, micro in [
        ("accumulated", {}, 2),
        ("recomputed", {"recompute": True}, 1),
        ("compiled", {"compile": True}, 1),
        ("both", {"compile": True, "recompute": True}, 1),
        ("computed_in_bf16", {"compute": torch.bfloat16}, 1),
        ("gathered_in_bf16", {"compute": torch.bfloat16, "gather": torch.bfloat16}, 1),
        ("gathered_in_bf16_accumulated", {"compute": torch.bfloat16, "gather": torch.bfloat16}, 2),
        ("computed_in_bf16_accumulated", {"compute": torch.bfloat16}, 2),
    ]:
        toy = build(ranks, **options)
        loss = backward(toy, ranks, 0, micro)
        seen |= collect(name, gradients(toy)) | {f"loss/{name}": loss}
        if "compile" in options:  # captions of other lengths
            facts[f"words/{name}"] = [
                int(data(step)[3][ranks.rows(ROWS)].sum()) for step in (0, 3, 5)
            ]
            for step in (3, 5):
                backward(toy, ranks, step, micro)
        facts[f"graphs/{name}"] = len(graphs)
        graphs.clear()


def exchange(ranks: Ranks, facts: dict) -> None:
    """Parts of a sum as FSDP2 asks for them, ours and gloo's, and whether FSDP2 asks us."""
    size = cpu_exchange.PIECE + 1000  # more than is received at once
    mine = torch.randn(2 * size, generator=torch.Generator().manual_seed(ranks.rank))
    summed = mine.clone()
    dist.all_reduce(summed)
    summed = summed.view(2, -1)[ranks.rank]
    same = []
    for op, wanted in ((dist.ReduceOp.SUM, summed), (dist.ReduceOp.AVG, summed / 2)):
        ours = torch.empty(size)
        SumParts()(ours, mine, dist.group.WORLD, op)
        same.append(torch.equal(ours, wanted))
    gathered = [torch.empty(2 * size) for _ in range(2)]
    dist.all_gather(gathered, mine)
    ours = torch.empty(4 * size)
    GatherParts()(ours, mine, dist.group.WORLD)
    facts["same_parts"] = [*same, torch.equal(ours, torch.cat(gathered))]
    asked: dict[str, int] = {}
    for kind in (SumParts, GatherParts):
        kind.__call__ = counted_by(kind.__call__, kind.__name__, asked)
    toy = build(ranks)
    backward(toy, ranks, 0)
    facts["exchanged"] = asked | {
        "held": sum(local(p).numel() for p in toy.parameters() if p.ndim > 1)
    }
    before, gathered = {name: p.grad.clone() for name, p in toy.named_parameters()}, list[int]()
    for hold in (True, False):
        asked.clear()
        toy.zero_grad()
        with held_gathered(toy, ranks) if hold else nullcontext():
            backward(toy, ranks, 0)
        gathered.append(asked["GatherParts"])
        facts[f"same_gradients/{hold}"] = all(
            torch.equal(local(p.grad), local(before[n])) for n, p in toy.named_parameters()
        )
    facts["gathered"] = gathered


def counted_by(call, name: str, asked: dict[str, int]):
    def counted(self, output_tensor, input_tensor, *rest, **more):
        asked[name] = asked.get(name, 0) + min(len(output_tensor), len(input_tensor))
        return call(self, output_tensor, input_tensor, *rest, **more)

    return counted


def lonely_barrier(ranks: Ranks, facts: dict) -> None:
    """Rank 1 does not come: the others must say who is missing, and where."""
    impatient = Ranks(ranks.rank, ranks.size, ranks.device, timeout=1.0)
    ranks.barrier("before the lonely one")
    if ranks.first:
        try:
            impatient.barrier("saving the checkpoint")
        except RunFailed as error:
            facts["barrier"] = str(error)


def limits(ranks: Ranks) -> list[float]:
    """Seconds after which an exchange inside each dimension of a mesh of replicas gives up."""
    groups = device_mesh("ddp", ranks).get_all_groups()
    backends: list[Any] = [group._get_backend(ranks.device) for group in groups]
    return [backend.options._timeout.total_seconds() for backend in backends]


def main(out: Path) -> None:
    torch.set_num_threads(1)
    seen: dict[str, Tensor] = {}
    facts: dict = {}
    with start(timeout=60.0) as ranks:
        facts |= {"rank": ranks.rank, "size": ranks.size}
        train(ranks, seen, facts)
        variants(ranks, seen, facts)
        if ranks.size > 1:
            exchange(ranks, facts)
            facts["limits"] = limits(ranks)
            lonely_barrier(ranks, facts)
    facts["left"] = not torch.distributed.is_initialized()
    name = f"{facts['size']}_{facts['rank']}"
    save_file(
        {key: tensor.contiguous() for key, tensor in seen.items()}, out / f"{name}.safetensors"
    )
    (out / f"{name}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
