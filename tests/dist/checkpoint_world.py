"""One rank of two or four, run as a script by test_checkpoints_together.py: checkpoints of a few
tensors, without a training.

python checkpoint_world.py OUT     with torchrun's variables in the environment
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from fulcrum.spec.errors import FulcrumError
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training.checkpoint import Checkpoint, State
from fulcrum.training.dist.collectives import device_mesh, whole
from fulcrum.training.dist.ranks import Ranks, start

warnings.simplefilter("error")
SHAPES = {"even": (8, 3), "odd": (7, 2), "few": (1, 3), "vector": (5,), "number": ()}


def tensors(seed: int) -> dict[str, dict[str, torch.Tensor]]:
    made = torch.Generator().manual_seed(seed)
    model = {name: torch.randn(shape, generator=made) for name, shape in SHAPES.items()}
    halves = {name: value.bfloat16() for name, value in model.items()}
    return {"model": model, "optimizer": halves, "average": {}}


def on_mesh(parts, mesh: str, ranks: Ranks):
    """Matrices sharded as FSDP2 does it, the rest whole on every rank."""
    grid = device_mesh(mesh, ranks)
    placements = [Replicate()] * (grid.ndim - 1) + [Shard(0)]
    return {
        part: {
            name: distribute_tensor(value.clone(), grid, placements, src_data_rank=None)
            if value.ndim > 1
            else value.clone()
            for name, value in held.items()
        }
        for part, held in parts.items()
    }


def save(folder: Path, live, ranks: Ranks, group, images: int = 8) -> None:
    rows, spans = checkpoint.own_rows(live, ranks)
    about = Checkpoint(rows, "k" * 16, State(images), System(), spans)
    checkpoint.save(folder, about, ranks, group)


def same(live, parts) -> bool:
    return all(
        torch.equal(whole(live[part][name]), value)
        for part, held in parts.items()
        for name, value in held.items()
    )


def told(act) -> str:
    """The error that this rank raises, in words."""
    try:
        act()
    except FulcrumError as error:
        return f"{type(error).__name__}: {error.message}"
    return "nothing"


def every_mesh_reads_every_mesh(out: Path, meshes: list[str], ranks: Ranks, group) -> dict:
    if ranks.first:
        save(out / "alone", tensors(0), Ranks(), None)
    for mesh in meshes:
        save(out / mesh, on_mesh(tensors(0), mesh, ranks), ranks, group)
    ranks.barrier("all is written")
    read = {}
    for writer in ("alone", *meshes):
        found = checkpoint.verified(checkpoint.place(out / writer, 8))
        for reader in meshes:
            live = on_mesh(tensors(1), reader, ranks)
            checkpoint.require_same(found, live)
            checkpoint.load_into(found, live, ranks)
            read[f"{writer} -> {reader}"] = same(live, tensors(0))
    return read


def failures(out: Path, ranks: Ranks, group) -> dict[str, str]:
    """Each rank in turn cannot write, then cannot read; then the first cannot open the folder."""
    live = on_mesh(tensors(0), "fsdp", ranks)
    write, read = checkpoint.write_tensors, checkpoint.safe_open
    said = {}

    def full(path, tensors, rows):
        path.write_bytes(b"half a file")
        raise OSError(28, "No space left on device")

    def broken(path, framework):
        raise OSError(5, "Input/output error")

    found = checkpoint.verified(checkpoint.place(out / "fsdp", 8))
    for rank in range(ranks.size):
        if ranks.rank == rank:
            checkpoint.write_tensors = full
            checkpoint.safe_open = broken
        said[f"writing {rank}"] = told(lambda: save(out / "fsdp", live, ranks, group, 16))
        said[f"reading {rank}"] = told(lambda: checkpoint.load_into(found, live, ranks))
        checkpoint.write_tensors = write
        checkpoint.safe_open = read
    if ranks.first:
        (out / "a_file").write_text("no folder")
    said["opening"] = told(lambda: save(out / "a_file", live, ranks, group))
    return said


def beside_other_messages(out: Path, ranks: Ranks, group) -> bool:
    """A thread saves while this one sums: what one group sends must not reach the other."""
    live = on_mesh(tensors(0), "fsdp", ranks)
    right = True
    for images in (16, 24, 32):
        thread = threading.Thread(target=save, args=(out / "beside", live, ranks, group, images))
        thread.start()
        step = 0
        while step < 200:  # the same number on every rank
            step += 1
            summed = torch.full((50,), float(step))
            dist.all_reduce(summed)
            right &= bool((summed == step * ranks.size).all())
        thread.join()
    return right


def main(out: Path) -> None:
    torch.set_num_threads(1)
    with start(timeout=60.0) as ranks:
        group = dist.new_group(backend="gloo")
        meshes = ["fsdp", "ddp"] + (["2x2"] if ranks.size == 4 else [])
        facts = {
            "read": every_mesh_reads_every_mesh(out, meshes, ranks, group),
            "said": failures(out, ranks, group),
            "right": beside_other_messages(out, ranks, group),
        }
    (out / f"{ranks.rank}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
