"""Several processes write a checkpoint together, and any mesh reads it; a process that fails is
named on all."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fulcrum.training import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from checkpoint_world import tensors  # noqa: E402

SCRIPT = Path(__file__).with_name("checkpoint_world.py")


@pytest.fixture(scope="module", params=[2, 4])
def world(request, tmp_path_factory):
    """What each process of a world saw, and where they wrote."""
    out, size = tmp_path_factory.mktemp("together"), request.param
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    about = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(out)],
            env={
                **os.environ,
                **about,
                "OMP_NUM_THREADS": "1",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=180)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    for process, text in zip(running, said, strict=True):
        assert process.returncode == 0, text
    return out, [json.loads((out / f"{rank}.json").read_text()) for rank in range(size)]


def test_every_mesh_reads_what_every_mesh_wrote(world):
    _, seen = world
    for one in seen:
        assert len(one["read"]) in (6, 12) and all(one["read"].values()), one["read"]


def test_one_process_reads_what_several_wrote(world):
    out, seen = world
    for mesh in ("fsdp", "ddp", *(["2x2"] if len(seen) == 4 else [])):
        saved = checkpoint.load(checkpoint.place(out / mesh, 8))
        for part, held in tensors(0).items():
            assert saved.parts[part].keys() == held.keys()
            assert all(torch.equal(saved.parts[part][name], one) for name, one in held.items())


def test_each_process_writes_its_own_rows_once(world):
    """No file has a whole sharded matrix of several rows, and what all hold is written once."""
    out, seen = world
    names = [f"{rank + 1:05d}-of-{len(seen):05d}" for rank in range(len(seen))]
    for mesh in ("fsdp", "ddp"):
        found = checkpoint.verified(checkpoint.place(out / mesh, 8))
        assert list(found.files) == [
            f"{part}-{name}" for part in sorted(checkpoint.PARTS) for name in names
        ]
        held = [piece.name for piece in checkpoint.pieces(found) if piece.part == "model"]
        pieces = len(seen) if mesh == "fsdp" else 1
        assert held.count("even") == held.count("odd") == pieces
        assert held.count("few") == held.count("vector") == held.count("number") == 1


def test_a_process_that_fails_is_named_on_all_and_nothing_half_written_is_left(world):
    out, seen = world
    for one in seen:
        for rank in range(len(seen)):
            assert one["said"][f"writing {rank}"] == (
                "RunFailed: could not save the checkpoint at 16 images:"
                f" rank {rank}: [Errno 28] No space left on device"
            )
            assert one["said"][f"reading {rank}"].startswith(f"Damaged: rank {rank}: {out}")
        assert "at 8 images: rank 0: [Errno" in one["said"]["opening"]
    assert [path.name for path in (out / "fsdp").iterdir()] == [f"{8:012d}"]
    assert (out / "a_file").read_text() == "no folder"


def test_a_save_in_a_thread_does_not_mix_with_the_messages_of_the_training(world):
    out, seen = world
    assert all(one["right"] for one in seen)
    assert [int(path.name) for path in checkpoint.listing(out / "beside")] == [24, 32]
    for path in checkpoint.listing(out / "beside"):
        assert torch.equal(checkpoint.load(path).parts["model"]["odd"], tensors(0)["model"]["odd"])
