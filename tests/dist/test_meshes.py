"""Every mesh trains what one process trains: DDP, FSDP2 and replicas of shards, with Muon, EMA,
TREAD and REPA on."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fulcrum.spec.edit import key
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training import checkpoint
from fulcrum.training.build import build
from fulcrum.training.dist.choose_system import choose_system
from fulcrum.training.dist.collectives import MeshShape, mesh_shape
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import perform

sys.path.insert(0, str(Path(__file__).parent))
from mesh_world import order  # noqa: E402

SCRIPT = Path(__file__).with_name("mesh_world.py")
# of the way from the start, over all tensors; Newton-Schulz amplifies another order of sums a
# hundredfold
NEAR = 1e-4
# In bf16 a difference of the last bit of fp32 moves some products by a whole step, and Muon gives
# every direction of a gradient the same size, those too that are rounding.
NEAR_BF16 = 0.3


def test_a_mesh_is_replicas_of_shards():
    assert mesh_shape("ddp", 4) == MeshShape(4, 1) and mesh_shape("fsdp", 4) == MeshShape(1, 4)
    assert mesh_shape("2x4", 8) == MeshShape(2, 4) and mesh_shape("fsdp", 1) == MeshShape(1, 1)


@pytest.mark.parametrize("size", [1, 4, 12])
def test_a_mesh_that_does_not_fill_the_world_is_refused(size):
    with pytest.raises(BadInput, match="2x4 is 2 x 4 = 8 processes, and there"):
        choose_system(1, False, 1, "cpu", print, size, mesh="2x4")


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"mesh": "tp"}, "--mesh: must be ddp, fsdp"), ({"recompute": "some"}, "--rec")],
)
def test_unknown_words_are_refused(asked, said):
    with pytest.raises(BadInput, match=said):
        choose_system(1, False, 1, "cpu", print, **asked)


def test_a_checkpoint_of_before_says_recompute_as_it_did():
    assert System.model_validate({"recompute": True}).recompute == "full"
    assert System.model_validate({"recompute": False}).recompute == "none"


def spawn(out, size, names):
    """Processes that go through cases together, NAME[:FOLDER[:IMAGES]]; what each of them saw."""
    held = [socket.socket() for _ in names]
    for probe in held:
        probe.bind(("127.0.0.1", 0))
    cases = [[*name.split(":", 1), ""][:2] for name in names]
    asked = [
        f"{name}:{probe.getsockname()[1]}:{more}"
        for (name, more), probe in zip(cases, held, strict=True)
    ]
    for probe in held:
        probe.close()
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
    }
    running = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(out), *asked],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(size)
    ]
    try:
        said = [process.communicate(timeout=280)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    for process, text in zip(running, said, strict=True):
        assert process.returncode == 0, text
    return [json.loads((out / f"{size}_{rank}.json").read_text()) for rank in range(size)]


def parts(out, name):
    folder = RunFolder(out / key(order(out, name).run, 0))
    return checkpoint.load(checkpoint.listing(folder.checkpoints)[-1]).parts


def apart(found, expected, name):
    """How far the trained weights are from one process's, over the way that those have come from
    the start."""
    assert found.keys() == expected.keys()
    start = build(order(Path(), name).run).state_dict()
    off = sum((found[n] - value).square().sum() for n, value in expected.items()) ** 0.5
    return (
        off / sum((value - start[n]).square().sum() for n, value in expected.items()) ** 0.5
    ).item()


def require_equal(out, size, names):
    for name in ["fsdp", "bf16"] if "bf16" in names else ["fsdp"]:
        perform(order(out / "alone", name), lambda text: None)
    for name in names:
        shutil.copytree(out / "alone" / "cache", out / name / "cache")
    seen = spawn(out, size, names)
    for name in names:
        assert all("error" not in one[name] for one in seen), seen[0][name]
        assert len({one[name]["result"]["weights_sha256"] for one in seen}) == 1
        found, alone = parts(out / name, name), parts(out / "alone", name)
        far = apart(found["model"], alone["model"], name)
        print(f"{size} processes, {name}: {far:.1e} of the way apart")
        assert far < (NEAR_BF16 if name == "bf16" else NEAR), (name, far)
        for part in ("optimizer", "average"):
            assert {n: (v.shape, v.dtype) for n, v in found[part].items()} == {
                n: (v.shape, v.dtype) for n, v in alone[part].items()
            }
    return seen


def test_two_processes_train_what_one_does(tmp_path):
    seen = require_equal(tmp_path, 2, ["ddp"])
    assert "Shard(dim=0)" in seen[0]["ddp"]["kinds"]["backbone.blocks.0.gate_proj.weight"]
    assert seen[0]["ddp"]["kinds"]["backbone.blocks.0.modulation.lin.bias"] == "whole"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "names"),
    [(2, ["fsdp", "microbatch", "full", "bf16"]), (4, ["ddp", "fsdp", "hsdp", "microbatch"])],
)
def test_every_mesh_trains_what_one_process_does(tmp_path, size, names):
    seen = require_equal(tmp_path, size, names)
    if size == 4:
        kinds = seen[0]["hsdp"]["kinds"]["backbone.blocks.0.gate_proj.weight"]
        assert "Replicate" in kinds and "Shard(dim=0)" in kinds
