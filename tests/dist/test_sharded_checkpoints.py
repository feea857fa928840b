"""Checkpoints of many processes: in pieces, each with its hash, and any number of processes goes on
from them."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from fulcrum.cli import main
from fulcrum.files.sealed import sealed
from fulcrum.spec.edit import key
from fulcrum.training import checkpoint
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import perform
from fulcrum.training.start_weights import trained_weights

sys.path.insert(0, str(Path(__file__).parent))
from mesh_world import order  # noqa: E402
from test_meshes import NEAR, apart, parts, spawn  # noqa: E402

STOPPED = 24  # of 40 images


def checkpoints(out):
    return checkpoint.listing(RunFolder(out / key(order(out).run, 0)).checkpoints)


def quiet(text):
    pass


def begin(out, size):
    """One process's run, and one that several began, saved at every step and stopped."""
    perform(order(out / "alone"), quiet)
    shutil.copytree(out / "alone" / "cache", out / "begun" / "cache")
    seen = spawn(out, size, [f"saving:begun:{STOPPED}"])
    for one in seen:
        assert (
            one["begun"]["error"] == "Interrupted"
            and "everything is saved" in one["begun"]["message"]
        )
    return seen


def require_pieces(out, size):
    """No file holds a whole matrix, together they hold each row once, and no pickle is there."""
    newest = checkpoints(out)[-1]
    files = sorted(path.name for path in newest.iterdir())
    assert files == sorted(
        [
            "state.json",
            *(
                f"{part}-{n + 1:05d}-of-{size:05d}.safetensors"
                for part in checkpoint.PARTS
                for n in range(size)
            ),
        ]
    )
    held = {}
    for path in newest.glob("model-*.safetensors"):
        with safe_open(path, framework="pt") as stream:
            rows = checkpoint.rows_of(stream.metadata())
            for name in stream.keys():  # noqa: SIM118
                held.setdefault(name, []).append(
                    (stream.get_slice(name).get_shape(), rows.get(name))
                )
    for name, value in checkpoint.load(newest).parts["model"].items():
        if value.dim() > 1:
            assert sum(shape[0] for shape, _ in held[name]) == len(value) and len(held[name]) > 1, (
                name
            )
        else:
            assert len(held[name]) == 1, name


@pytest.mark.slow
def test_a_checkpoint_of_four_goes_on_at_one_two_and_four(tmp_path):
    begin(tmp_path, 4)
    assert [int(path.name) for path in checkpoints(tmp_path / "begun")] == [16, 24]
    require_pieces(tmp_path / "begun", 4)
    for size in (1, 2, 4):
        shutil.copytree(tmp_path / "begun", tmp_path / f"on_{size}")
    heard = []
    perform(order(tmp_path / "on_1"), heard.append)
    assert (
        any("processes: 4 -> 1" in line for line in heard)
        and f"resumed at {STOPPED} images" in heard
    )
    for size, mesh in ((2, "ddp"), (4, "hsdp")):
        seen = spawn(tmp_path, size, [f"{mesh}:on_{size}"])
        assert f"resumed at {STOPPED} images" in seen[0][f"on_{size}"]["said"], seen[0]
    for size in (1, 2, 4):
        far = apart(
            parts(tmp_path / f"on_{size}", "fsdp")["model"],
            parts(tmp_path / "alone", "fsdp")["model"],
            "fsdp",
        )
        print(f"begun by 4, finished by {size}: {far:.1e} of the way apart")
        assert far < NEAR, (size, far)


@pytest.mark.slow
def test_a_checkpoint_of_two_is_in_pieces_and_a_damaged_one_is_named(tmp_path):
    """Two go on from it twice: with a damaged shard, and with a newest one that belongs to another
    run. Besides, a disk that is full for one of them."""
    begin(tmp_path, 2)
    begun = tmp_path / "begun"
    older, newer = checkpoints(begun)
    require_pieces(begun, 2)
    for name in ("damaged", "foreign"):
        shutil.copytree(begun, tmp_path / name)
    shard = (
        next((tmp_path / "damaged").glob(f"*/checkpoints/{newer.name}"))
        / "optimizer-00002-of-00002.safetensors"
    )
    shard.write_bytes(shard.read_bytes()[:-4] + b"oops")
    state = next((tmp_path / "foreign").glob(f"*/checkpoints/{newer.name}")) / "state.json"
    about = json.loads(state.read_text())
    state.write_text(
        json.dumps(sealed({**{n: v for n, v in about.items() if n != "check"}, "key": "0" * 16}))
    )
    shutil.copytree(begun / "cache", tmp_path / "full" / "cache")
    seen = spawn(tmp_path, 2, ["fsdp:damaged", "fsdp:foreign", "full_disk:full"])
    for one in seen:  # what one process could not write, all are told of
        assert (
            one["full"]["error"] == "RunFailed"
            and "at 16 images: rank 1: [Errno 28] No space" in one["full"]["message"]
        )
    assert [path.name for path in checkpoints(tmp_path / "full")[0].parent.iterdir()] == [
        f"{8:012d}"
    ]
    for name, fault in (
        ("damaged", f"{shard.name} is damaged"),
        ("foreign", "belongs to the run 0000"),
    ):
        said = seen[0][name]["said"]
        assert any(
            fault in line and f"set aside as damaged-{newer.name}" in line for line in said
        ), said
        assert f"resumed at {int(older.name)} images" in said
        assert (
            apart(
                parts(tmp_path / name, "fsdp")["model"],
                parts(tmp_path / "alone", "fsdp")["model"],
                "fsdp",
            )
            < NEAR
        )
    folder = RunFolder(tmp_path / "damaged" / key(order(tmp_path).run, 0))
    weights = trained_weights(folder)  # what draws, measures and exports: whole, in one process
    averaged = parts(tmp_path / "damaged", "fsdp")["average"]
    with pytest.raises(SystemExit) as ended:
        main(["export", str(folder.path), str(tmp_path / "weights.safetensors")])
    assert ended.value.code == 0
    exported = load_file(tmp_path / "weights.safetensors")
    assert exported.keys() == weights.keys() and all(
        torch.equal(exported[name], value) for name, value in weights.items()
    )
    assert all(torch.equal(value, averaged[name]) for name, value in weights.items())
