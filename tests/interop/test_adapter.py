"""What lora learned leaves by itself: peft puts it beside the exported base, and a process without
fulcrum draws."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from fulcrum.cli import main
from fulcrum.spec.edit import put
from fulcrum.spec.run import System
from fulcrum.training.fillers import DiffusersStart, Trunk
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform

pytestmark = pytest.mark.long

for package in ("diffusers", "transformers", "ftfy", "peft"):
    pytest.importorskip(package)
PROMPT = "a large red circle at the top left."
# random heads, as in test_pipeline: after so few steps a fresh one would draw its noise and nothing
# else
RUNS = {
    "latent": ("spark", "sample.steps=5", "sample.shift=2.0", "optim.lr=0.02"),
    "pixel": ("pocket_pixels", "sample.steps=5", "flow.noise_scale=2.0", "optim.lr=0.02"),
}
LORA = {
    "latent": "lora(rank=4, alpha=6, targets=[matrix, embed, head])",
    "pixel": "lora(rank=2, targets=[matrix, head])",
}
ELSEWHERE = """
import os, sys
sys.modules["fulcrum"] = None
for folder in sys.argv[1:]:
    os.chdir(folder)
    code = open("README.md", encoding="utf-8").read().split("```python")[1].split("```")[0]
    code = code.replace('base = "FOLDER"', 'base = "base"')  # as the line asks
    exec(code, {})
    code = code.replace("pipeline.transformer = ", "_ = ")
    code = code.replace("(pipeline.transformer, folder)", ".__name__")
    exec(code.replace("picture.png", "without.png"), {})
"""


def told(*words):
    """Exit code of a command."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code or 0


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def trained(run, out, phrase):
    result = perform(Order(run, 0, phrase, out, System(), quiet=True), lambda text: None)
    return RunFolder(out / result["key"]), result


@pytest.fixture(scope="module")
def tuned(tiny, tmp_path_factory):
    """Name -> the run with lora, and its adapter's folder with the base in it; the pixel run begins
    from a folder."""
    out, place, done = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("folders"), {}
    for name, (recipe, *settings) in RUNS.items():
        base, result = trained(tiny(recipe, *settings), out, recipe)
        assert told("export", base.path, place / f"{name} base", "--seeds", 1) == 0
        starts = {
            "latent": Trunk(run=result["key"], weights_sha256=result["weights_sha256"]),
            "pixel": DiffusersStart(path=str(place / f"{name} base")),
        }
        phrase = f"{recipe} + {LORA[name]}"
        run, _ = trained(put(tiny(phrase, *settings), "start", starts[name]), out, phrase)
        assert told("export", run.path, place / name, "--adapter", "--seeds", 1, "--json") == 0
        shutil.copytree(place / f"{name} base", place / name / "base")
        (place / name / f"{name} base").symlink_to("base")
        done[name] = run, place / name
    return done


def test_a_process_without_fulcrum_draws_the_same_pictures(tuned, tmp_path, capsys):
    """Both kinds of pipeline, by the very lines on the adapter's card; without the adapter they are
    others."""
    folders = [str(folder) for _, folder in tuned.values()]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *folders], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, (run, folder) in tuned.items():
        capsys.readouterr()
        assert (
            told("sample", run.path, PROMPT, "--scale", 1, "--to", tmp_path / name, "--json") == 0
        )
        ours = pixels(json.loads(capsys.readouterr().out)["files"][0])
        assert ours.std() > 10, "a picture that shows nothing compares nothing"
        assert np.abs(ours - pixels(folder / "picture.png")).max() <= 1, name
        assert np.abs(ours - pixels(folder / "without.png")).max() > 5, name


def test_the_loader_of_diffusers_takes_the_same_file(tuned):
    """PRXTransformer2DModel of diffusers 0.42.1 has none; a class with one reads rank and alpha
    from the file."""
    from diffusers import PRXTransformer2DModel
    from diffusers.loaders import PeftAdapterMixin
    from peft import PeftModel

    class Adaptable(PRXTransformer2DModel, PeftAdapterMixin):
        pass

    _, folder = tuned["latent"]
    place = folder / "base" / "transformer"
    theirs = Adaptable.from_pretrained(place)
    theirs.load_lora_adapter(
        str(folder), prefix="base_model.model", weight_name="adapter_model.safetensors"
    )
    beside = PeftModel.from_pretrained(PRXTransformer2DModel.from_pretrained(place), folder)
    inputs = torch.randn(2, 8, 8, 8), torch.rand(2), torch.randn(2, 5, 96)
    with torch.no_grad():
        assert torch.equal(theirs(*inputs).sample, beside(*inputs).sample)
        assert not torch.equal(
            theirs(*inputs).sample, PRXTransformer2DModel.from_pretrained(place)(*inputs).sample
        )


def test_the_merged_export_draws_what_the_run_draws(tuned, tmp_path):
    from fulcrum.training.interop.diffusers import load
    from fulcrum.training.model.adapter import merged
    from fulcrum.training.start_weights import trained_weights

    run, folder = tuned["latent"]
    assert told("export", run.path, tmp_path / "whole", "--seeds", 1) == 0
    written = load(tmp_path / "whole" / "transformer").state_dict()
    expected = merged(trained_weights(run))
    assert written.keys() == expected.keys() and all(
        torch.equal(written[name], expected[name]) for name in written
    )
    base = load_file(folder / "base" / "transformer" / "diffusion_pytorch_model.safetensors")
    assert any(not torch.equal(base[name], written[name]) for name in written)


def test_the_card_names_the_base_and_the_packages(tuned):
    run, folder = tuned["latent"]
    card = (folder / "README.md").read_text()
    trunk = json.loads((run.path / "about.json").read_text())["run"]["start"]["run"]
    assert "library_name: peft" in card and "ftfy, peft" in card and f"the run {trunk}" in card
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (4, 6) and len(config["target_modules"]) > 20
    assert "latent base" not in card and str(folder.parent) not in card
    assert (
        f'base = "FOLDER"  # change this: the folder that `fulcrum export {trunk[:8]} FOLDER`'
        " writes" in card
    )
    assert 'base = "pixel base"  # change this' in (tuned["pixel"][1] / "README.md").read_text()
    assert "You can ignore the diffusers warning about timesteps" in card and "`accelerate`" in card


def test_a_run_without_an_adapter_is_refused(tuned, tmp_path, capsys):
    run, folder = tuned["latent"]
    trunk = (
        run.path.parent / json.loads((run.path / "about.json").read_text())["run"]["start"]["run"]
    )
    assert told("export", trunk, tmp_path / "one", "--adapter") == 2
    assert "trained without lora" in capsys.readouterr().err
    assert told("export", run.path, tmp_path / "two", "--adapter", "--dtype", "bf16") == 2
    assert "an adapter is written in fp32" in capsys.readouterr().err and not any(
        tmp_path.iterdir()
    )


def test_the_command_adapts_a_pipeline_and_nothing_random(tuned, tmp_path, capsys, monkeypatch):
    from fulcrum.measure import evaluation as run_evaluation

    monkeypatch.setattr(run_evaluation, "VALIDATION", 16)  # the same acts, fewer pictures
    base = tuned["latent"][1] / "base"
    settings = (
        "budget.batch=8",
        "data.source.count=16",
        "sample.steps=2",
        "data.source.domain=synthetic",
    )
    words = [
        "train",
        "spark + lora(rank=4, targets=matrix)",
        "--images",
        "8",
        "--out",
        str(tmp_path),
        "--threads",
        "1",
    ]
    words += [word for setting in settings for word in ("--set", setting)]
    assert told(*words, "--quiet", "--json") == 2
    assert "--start RUN" in json.loads(capsys.readouterr().out)["error"] and not any(
        tmp_path.glob("*/about.json")
    )
    assert told(*words, "--start", base, "--quiet", "--json") == 0
    key = json.loads(capsys.readouterr().out)["key"]
    about = json.loads((tmp_path / key / "about.json").read_text())["run"]
    assert about["model"]["learned"] == {
        "kind": "low_rank",
        "rank": 4,
        "alpha": None,
        "targets": ["matrix"],
    }
    assert about["model"]["width"] == 32 and about["start"]["kind"] == "diffusers"
    code = told(
        *[word.replace("rank=4", "rank=32") for word in words], "--start", base, "--quiet", "--json"
    )
    assert (
        code == 2
        and "rank 32 is no less than the 32" in json.loads(capsys.readouterr().out)["error"]
    )
    assert told("export", tmp_path / key, tmp_path / "adapter", "--adapter", "--json") == 0
    assert json.loads(capsys.readouterr().out)["base"] == "the pipeline base"
