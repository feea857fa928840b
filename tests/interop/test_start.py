"""Starting from a PRX folder in diffusers' format: the same outputs before the first step, and
refusals with reasons."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from fulcrum.cli import main
from fulcrum.spec.edit import key
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training.build import Context, build
from fulcrum.training.interop.diffusers import export
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights

PRX = pytest.importorskip("diffusers").PRXTransformer2DModel
SHORT = ("data.source.count=16", "budget.images=16", "model.depth=2")


def require_fit(run):
    run.start.require_fit(run)


@pytest.fixture
def folder(tmp_path, tiny):
    """Written by diffusers itself, in several shards."""
    torch.manual_seed(1)
    backbone = build(tiny("spark", *SHORT)).backbone
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.normal_(std=0.1)
    PRX.from_pretrained(export(backbone, tmp_path / "ours")).save_pretrained(
        tmp_path / "prx", max_shard_size="40KB"
    )
    assert (tmp_path / "prx" / "diffusion_pytorch_model.safetensors.index.json").is_file()
    return tmp_path / "prx"


def test_it_begins_as_the_folder_ends(folder, tiny, tmp_path):
    run = tiny("spark", *SHORT, f"start=diffusers(path='{folder}')")
    run.start.require_fit(run)
    ours, theirs = (
        build(run, start=run.start.build(Context(run, 0, System()))).backbone,
        PRX.from_pretrained(folder),
    )
    x_t, t, text = torch.randn(2, 8, 8, 8), torch.rand(2), torch.randn(2, 5, 96)
    with torch.no_grad():
        expected = theirs(x_t, t, text).sample
        assert (
            ours(x_t, t, (text, None)).pred - expected
        ).abs().max() <= 1e-5 * expected.abs().max()
    result = perform(Order(run, 0, "test", tmp_path / "out", System(), quiet=True), print)
    assert result["images"] == 16
    from fulcrum.training.run_folder import RunFolder

    weights, before = (
        trained_weights(RunFolder(tmp_path / "out" / result["key"])),
        ours.state_dict(),
    )
    moved = max(float((weights[name] - before[name]).abs().max()) for name in before)
    assert 0 < moved < 0.1  # two steps away from there, not from a fresh start


def test_its_bytes_are_in_the_key_and_its_place_is_not(folder, tiny):
    run = tiny("spark", *SHORT, f"start=diffusers(path='{folder}')")
    before = key(run, 0)
    assert before != key(tiny("spark", *SHORT), 0)
    moved = folder.rename(folder.with_name("elsewhere"))
    run = tiny("spark", *SHORT, f"start=diffusers(path='{moved}')")
    assert key(run, 0) == before
    shard = sorted(moved.glob("*.safetensors"))[0]
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    assert key(run, 0) != before


def test_what_does_not_fit_is_named_with_both_shapes(folder, tiny, tmp_path):
    run = tiny("spark", *SHORT, "model.width=64", f"start=diffusers(path='{folder}')")
    with pytest.raises(
        BadInput, match=r"'\S+' is of shape \(.*32.*\) in .*, of shape \(.*64.*\) in this model"
    ):
        perform(Order(run, 0, "test", tmp_path / "out", System(), quiet=True), print)
    assert not (tmp_path / "out").exists()  # refused before anything was made
    with pytest.raises(BadInput, match=r"blocks.2.\S+ is missing in .*, of shape"):
        require_fit(tiny("spark", *SHORT, "model.depth=3", f"start=diffusers(path='{folder}')"))
    with pytest.raises(
        BadInput,
        match="num_heads = 2, this model has 4: equal shapes|norm_added_k.* is of shape .16",
    ):
        require_fit(tiny("spark", *SHORT, "model.heads=4", f"start=diffusers(path='{folder}')"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "theta": 500}))
    with pytest.raises(BadInput, match="theta = 500, this model has 10000"):
        require_fit(tiny("spark", *SHORT, f"start=diffusers(path='{folder}')"))


def test_a_missing_shard_is_named(folder, tiny):
    sorted(folder.glob("*.safetensors"))[1].unlink()
    with pytest.raises(BadInput, match="names .*safetensors, which is not there; looked at"):
        require_fit(tiny("spark", *SHORT, f"start=diffusers(path='{folder}')"))


def test_weights_that_are_not_finite_are_refused_before_the_first_step(folder, tiny, tmp_path):
    """Else the first loss is no number, and the learning rate is blamed."""
    shard = sorted(folder.glob("*.safetensors"))[0]
    weights = load_file(shard)
    name = sorted(weights)[0]
    weights[name].view(-1)[0] = float("nan")
    save_file(weights, shard, {"format": "pt"})
    run = tiny("spark", *SHORT, f"start=diffusers(path='{folder}')")
    with pytest.raises(
        BadInput, match=f"begin from are not finite: '{name}' in .* holds nan or infinity"
    ):
        perform(Order(run, 0, "test", tmp_path / "out", System(), quiet=True), print)
    assert not list((tmp_path / "out").glob("*/about.json"))


def test_a_dry_run_refuses_weights_that_cannot_be_read(folder, capsys):
    sorted(folder.glob("*.safetensors"))[0].write_bytes(b"\xff" * 7 + b"\x7f{}")
    settings = [
        word
        for setting in ("model.width=32", "model.heads=2", "budget.batch=8", *SHORT)
        for word in ("--set", setting)
    ]
    with pytest.raises(SystemExit) as end:
        main(["train", "spark", *settings, "--start", str(folder), "--dry-run"])
    assert end.value.code == 2 and "cannot be read" in capsys.readouterr().err


def test_the_command_line_takes_a_folder(folder, tmp_path):
    from typer.testing import CliRunner

    from fulcrum.cli import app

    small = ("model.width=32", "model.heads=2", "budget.batch=8", "sample.steps=2")
    settings = [word for setting in (*small, *SHORT) for word in ("--set", setting)]
    done = CliRunner().invoke(
        app,
        [
            "train",
            "spark",
            *settings,
            "--start",
            str(folder),
            "--out",
            str(tmp_path / "out"),
            "--quiet",
            "--json",
            "--threads",
            "1",
        ],
    )
    assert done.exit_code == 0, done.output
    about = json.loads(next((tmp_path / "out").glob("*/about.json")).read_text())
    assert about["run"]["start"] == {"kind": "diffusers", "path": str(folder)}
