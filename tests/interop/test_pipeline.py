"""A run that leaves as a whole pipeline: a process without fulcrum draws its pictures, and it comes
back bit for bit."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image

from fulcrum import phrase, put
from fulcrum.cli import main
from fulcrum.spec.edit import read
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training.build import Context
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights

pytestmark = pytest.mark.long

pytest.importorskip("diffusers"), pytest.importorskip("transformers"), pytest.importorskip("ftfy")
PROMPT = "a large red circle at the top left."
RUNS = {  # random heads: after so few steps a fresh one would draw its noise and nothing else
    "latent": ("spark", "sample.steps=5", "sample.shift=2.0", "optim.lr=0.02"),
    "pixel": ("pocket_pixels", "sample.steps=5", "flow.noise_scale=2.0", "optim.lr=0.02"),
}
# What the card prints, run where fulcrum cannot be imported; a second picture with the scheduler's
# own grid.
ELSEWHERE = """
import os, sys
sys.modules["fulcrum"] = None
for folder in sys.argv[1:]:
    os.chdir(folder)
    code = open("README.md", encoding="utf-8").read().split("```python")[1].split("```")[0]
    exec(code, {})
"""


def command(capsys, *words):
    """Exit code, stdout and stderr of a command."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    return end.value.code or 0, printed.out, printed.err


def trained(tiny, out, phrase, *settings):
    result = perform(
        Order(tiny(phrase, *settings), 0, phrase, out, System(), quiet=True), lambda text: None
    )
    return RunFolder(out / result["key"])


@pytest.fixture(scope="module")
def runs(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return {name: trained(tiny, out, *words) for name, words in RUNS.items()}


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    """Name -> folder, exported by the command."""
    place = tmp_path_factory.mktemp("pipelines")
    for name, folder in runs.items():
        with pytest.raises(SystemExit) as end:
            main(["export", str(folder.path), str(place / name), "--seeds", "2", "--json"])
        assert not end.value.code
    return {name: place / name for name in runs}


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def test_a_process_without_fulcrum_draws_the_same_pictures(runs, exported, tmp_path, capsys):
    """Both kinds, by the very lines that stand on their cards."""
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *map(str, exported.values())],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    warned = re.findall(
        r"Expected types for text_encoder: .*\.(\w+)'>,\), got .*\.(\w+)'>", done.stderr
    )
    cards = {
        name: (folder / "README.md").read_text(encoding="utf-8")
        for name, folder in exported.items()
    }
    assert warned == [("T5GemmaEncoder", "ModernBertModel")], "of latents alone"
    assert "expected a T5GemmaEncoder as text_encoder and got a ModernBertModel" in cards["latent"]
    assert "T5GemmaEncoder" not in cards["pixel"]
    for name, folder in runs.items():
        code, out, _ = command(
            capsys, "sample", folder.path, PROMPT, "--scale", 1, "--to", tmp_path / name, "--json"
        )
        assert code == 0
        ours, theirs = pixels(json.loads(out)["files"][0]), pixels(exported[name] / "picture.png")
        assert ours.std() > 10, "a picture that shows nothing compares nothing"
        assert np.abs(ours - theirs).max() <= 1, name
        (exported[name] / "picture.png").unlink()


def test_the_pipelines_own_grid_and_noise_draw_another_picture(exported, runs):
    """Why the card passes both; and it can be seen that the comparison above could fail."""
    from diffusers import DiffusionPipeline
    from safetensors.torch import load_file

    pipeline = DiffusionPipeline.from_pretrained(exported["latent"])
    pipeline.set_progress_bar_config(disable=True)
    noise = load_file(exported["latent"] / "noise.safetensors")
    usual = {
        "guidance_scale": 2.0,
        "use_resolution_binning": False,
        "output_type": "np",
        "num_inference_steps": 5,
    }
    own_grid, other_seed = (
        pipeline(PROMPT, latents=noise[seed], **usual).images[0] for seed in ("0", "1")
    )
    painter_run = read(runs["latent"].about()["run"], _fillers())
    times = [1000 * 2 * (5 - i) / (5 + (5 - i)) for i in range(5)]
    ours = pipeline(
        PROMPT, latents=noise["0"], **{**usual, "num_inference_steps": 5}, timesteps=times
    ).images[0]
    assert painter_run.sample.shift == 2.0
    assert np.abs(own_grid - ours).max() > 2 / 255 and np.abs(other_seed - ours).max() > 2 / 255


def _fillers():
    from fulcrum.levers.catalog import CATALOG

    return CATALOG.fillers


def test_it_comes_back_bit_for_bit(runs, exported, tiny):
    from fulcrum.training.start_weights import begun_from, pipeline_index

    for name, folder in runs.items():
        index = pipeline_index(str(exported[name]))
        run = begun_from(tiny("pocket", "budget.images=8"), str(exported[name]), index)
        run.start.require_fit(run)
        before = read(folder.about()["run"], _fillers())
        kept = trained_weights(folder)
        weights = run.start.build(Context(run, 0, System()))
        assert weights.keys() == kept.keys() and all(
            torch.equal(weights[part], kept[part]) for part in kept
        )
        assert (
            run.flow.predict == before.flow.predict
            and run.flow.noise_scale == before.flow.noise_scale
        )
        assert run.model == before.model
        same_text(run.encode.text.build(None).network, before.encode.text.build(None))
        if name == "latent":
            same_text(run.encode.codec.build(None).network, before.encode.codec.build(None))
        else:
            assert run.encode.codec == before.encode.codec


def same_text(theirs, ours):
    """Names and bits of two state dicts."""
    theirs, ours = theirs.state_dict(), ours.state_dict()
    assert theirs.keys() == ours.keys() and all(
        torch.equal(theirs[name], ours[name]) for name in ours
    )


def test_a_run_begins_from_a_pipeline_and_says_what_it_took(
    exported, tmp_path, capsys, monkeypatch
):
    from fulcrum.measure import evaluation as run_evaluation

    monkeypatch.setattr(run_evaluation, "VALIDATION", 16)  # the same acts, fewer pictures
    small = ["--set", "budget.batch=8", "--set", "data.source.count=16", "--set", "sample.steps=2"]
    words = (
        "train",
        "spark",
        "--images",
        8,
        *small,
        "--start",
        exported["latent"],
        "--out",
        tmp_path,
        "--threads",
        1,
    )
    code, out, err = command(capsys, *words, "--quiet", "--json")
    assert code == 0, err
    assert "from the PRXPipeline" in err and "model.width=32" in err
    about = json.loads(next(tmp_path.glob("*/about.json")).read_text())
    assert about["run"]["encode"]["codec"]["kind"] == "pretrained_codec"
    assert about["run"]["encode"]["text"]["kind"] == "pretrained_text"
    assert about["run"]["start"] == {"kind": "diffusers", "path": str(exported["latent"])}
    line = command(capsys, "runs", "list", "--out", tmp_path)[1]
    assert (
        ", start=latent; data " in line
        and "text of latent" in line
        and str(exported["latent"]) not in line
    )


def test_what_a_person_set_stays(exported, tiny):
    from fulcrum.training.start_weights import begun_from, pipeline_index

    path = str(exported["latent"])
    run = begun_from(
        tiny("spark"), path, pipeline_index(path), ["encode.codec.asset", "model.depth"]
    )
    assert run.encode.codec.kind == "kl_codec" and run.encode.text.kind == "pretrained_text"


def test_a_pipelines_encoder_counts_with_what_it_reads(exported, tiny, capsys):
    """Its folder says 64 tokens and the captions have some 24: not the 256 of a slot that nobody
    filled in."""
    from fulcrum.data.fillers import Folder
    from fulcrum.spec.memory import rank_memory
    from fulcrum.training.estimate import layout_of, require_memory, text_tokens
    from fulcrum.training.start_weights import begun_from, pipeline_index

    given = ("train", "spark", "--images", 320, "--dry-run", "--json")
    code, out, err = command(capsys, *given, "--start", exported["latent"])
    assert code == 0 and "at most 64 tokens" in err and "256" not in err, err
    begun, plain = json.loads(out), json.loads(command(capsys, *given)[1])
    assert begun["tokens"]["text"] == plain["tokens"]["text"] < 30
    assert begun["disk"]["cache"]["texts"] == plain["disk"]["cache"]["texts"]
    path = str(exported["latent"])
    run = begun_from(tiny("spark"), path, pipeline_index(path))
    assert run.encode.text.most_tokens() == 64
    # captions that nobody has counted
    pictures = put(run, "data.source", Folder.model_construct(path="pictures"))
    assert text_tokens(pictures) == 64
    assert text_tokens(put(pictures, "encode.text.max_tokens", 9)) == 9
    layout = layout_of(System(), 1)
    needed = sum(rank_memory(run, plain["tokens"]["text"], layout).values())
    require_memory(run, System(), free=1.05 * needed)
    assert needed < 0.7 * sum(rank_memory(run, 256, layout).values())


def test_a_hub_id_goes_the_same_way(exported, tiny, tmp_path, monkeypatch):
    """The hub's own cache on this disk; nothing is asked over the network."""
    from fulcrum.spec.edit import key
    from fulcrum.training.start_weights import begun_from, pipeline_index

    snapshot = (
        tmp_path / "models--some--prx" / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    )
    shutil.copytree(exported["latent"], snapshot)
    (tmp_path / "models--some--prx" / "refs").mkdir()
    (tmp_path / "models--some--prx" / "refs" / "main").write_text(snapshot.name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    places = ("hub:some/prx", str(exported["latent"]))
    runs = [begun_from(tiny("spark"), place, pipeline_index(place)) for place in places]
    assert runs[0].start.path == "hub:some/prx" and key(runs[0], 0) == key(runs[1], 0)
    assert pipeline_index("hub:some/prx/transformer") is None, (
        "a part of it brings its weights alone"
    )


def test_another_family_is_refused(exported, tmp_path):
    from fulcrum.training.start_weights import pipeline_index

    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "FluxPipeline"}))
    with pytest.raises(BadInput, match="FluxPipeline, another family") as error:
        pipeline_index(str(tmp_path))
    assert "PRXPixelPipeline" in error.value.hint
    assert pipeline_index(str(exported["latent"] / "transformer")) is None


@pytest.mark.parametrize(
    "change",
    [{"vae": 5}, {"text_encoder": "x"}, {"noise_scale": [], "_class_name": "PRXPixelPipeline"}],
)
def test_an_index_that_was_changed_by_hand_is_refused(exported, tiny, change):
    from fulcrum.training.start_weights import begun_from, pipeline_index

    path = str(exported["latent"])
    index = {**pipeline_index(path), **change}
    with pytest.raises(
        BadInput, match=f"model_index.json says {next(iter(change))} = .*, expected"
    ):
        begun_from(tiny("spark"), path, index)


def test_a_folder_that_is_not_new_and_a_run_that_is_not_finished_are_refused(
    runs, tiny, tmp_path, capsys
):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    code, _, err = command(capsys, "export", runs["latent"].path, tmp_path / "mine")
    assert code == 2 and "not an empty folder" in err and os.listdir(tmp_path / "mine") == ["file"]
    half = tmp_path / runs["latent"].path.name
    half.symlink_to(runs["latent"].path)
    from fulcrum.training.run_folder import description

    lost = tmp_path / "0123456789abcdef"
    lost.mkdir()
    (lost / "about.json").write_text(json.dumps(description(tiny(), 0, "spark", {})))
    code, _, err = command(capsys, "export", lost, tmp_path / "new")
    assert code == 2 and "not finished" in err and not (tmp_path / "new").exists()
    assert "finish it first: start its command again" in err  # its phrase does not say what it is
    run = put(phrase("spark + muon", "data.source.count=16"), "budget.images", 320)
    (lost / "about.json").write_text(
        json.dumps(description(run, 3, "spark + muon --set data.source.count=16", {}))
    )
    code, _, err = command(capsys, "export", lost, tmp_path / "new")
    assert (
        'finish it first: fulcrum train "spark + muon" --seed 3 --images 320 --set'
        " data.source.count=16" in err
    )


@pytest.mark.parametrize(
    ("phrase", "words"),
    [
        ("spark + sprint", ("model.route", "sprint")),
        ("spark + tread + routed_guidance", ("sample.guide", "routed_guidance")),
        ("spark + x_prediction", ("flow.predict", "x_prediction")),
        ("spark + size_crop_condition", ("model.condition", "size_crop_condition")),
        ("spark + pixels", ("encode.codec", "pixels")),
    ],
)
def test_a_lever_without_a_place_in_diffusers_is_named(phrase, words):
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.spec.phrase import parse
    from fulcrum.training.interop.diffusers import require_slots

    read = parse(phrase, CATALOG, ["data.source.crop=0.25"])
    with pytest.raises(BadInput, match="no pipeline of diffusers draws this run") as error:
        require_slots(read.run, read.levers)
    assert f"({words[0]}, by {words[1]}" in error.value.message


def test_levers_that_leave_no_trace_are_no_reason_to_refuse():
    from fulcrum.levers.catalog import CATALOG
    from fulcrum.spec.phrase import parse
    from fulcrum.training.interop.diffusers import require_slots

    read = parse(
        "pocket + tread + repa + muon + ema + contrastive_flow + resolution_condition + bottleneck",
        CATALOG,
    )
    require_slots(read.run, read.levers)


def test_files_have_the_modes_that_the_umask_gives(exported):
    umask = os.umask(0)
    os.umask(umask)
    files = [path for path in exported["latent"].rglob("*") if path.is_file()]
    assert len(files) > 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}


def test_bf16_and_the_last_weights(tiny, tmp_path, capsys):
    from safetensors.torch import load_file

    folder = trained(tiny, tmp_path / "runs", "spark + ema(every=2)", "optim.lr=0.02")
    (tmp_path / "a").mkdir()  # an empty folder is as good as none
    code, out, _ = command(
        capsys, "export", folder.path, tmp_path / "a", "--weights", "last", "--dtype", "bf16"
    )
    assert code == 0 and re.search("rounded to bf16.* by up to [1-9][0-9]* of 255", out)
    weights = load_file(tmp_path / "a" / "transformer" / "diffusion_pytorch_model.safetensors")
    last, averaged = trained_weights(folder, averaged=False), trained_weights(folder)
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}
    assert all(torch.equal(weights[name], last[name].bfloat16()) for name in last)
    assert not all(torch.equal(last[name], averaged[name]) for name in last)
    assert "not averaged, bf16" in (tmp_path / "a" / "README.md").read_text()


def test_the_card_tells_what_was_measured_and_no_path(runs, tmp_path, capsys):
    from fulcrum.measure.evaluation import FILE, keep_metrics

    folder = runs["latent"]
    keep_metrics(
        folder,
        {"mmd": {"value": 0.25, "low": 0.2, "high": 0.3, "card": {"better": "lower", "n": 512}}},
    )
    words = ("export", folder.path, tmp_path / "a", "--licence", "mine | <b>only</b>")
    assert command(capsys, *words)[0] == 0
    card = (tmp_path / "a" / "README.md").read_text()
    assert "| mmd | 0.25 \\[0.2, 0.3\\] | lower is better | N = 512 |" in card
    assert "license: other" in card and "mine \\| \\<b\\>only\\</b\\>" in card
    assert json.loads((tmp_path / "a" / "metrics.json").read_text())["mmd"]["card"]["n"] == 512
    assert str(tmp_path) not in card + (tmp_path / "a" / "run.json").read_text()
    (folder.path / FILE).unlink()


def test_missing_packages_are_said(runs, tmp_path, capsys, monkeypatch):
    import importlib.util

    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "ftfy" else there(name, *more),
    )
    code, out, _ = command(capsys, "export", runs["latent"].path, tmp_path / "a")
    assert code == 0 and "ftfy must be installed" in out


class Api:
    """What huggingface_hub's HfApi is asked."""

    asked: list = []
    taken = False

    def create_repo(self, repo, **more):
        Api.asked.append(("create", repo, more["private"]))

    def file_exists(self, repo, name):
        return Api.taken

    def upload_folder(self, repo_id, folder_path, commit_message):
        Api.asked.append(("upload", repo_id, sorted(os.listdir(folder_path))))
        return f"https://hub/{repo_id}"


def test_push_sends_the_folder_once(runs, tmp_path, capsys, monkeypatch):
    fake = types.ModuleType("huggingface_hub")
    fake.HfApi = Api
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    monkeypatch.setattr(Api, "asked", [])
    words = ("export", runs["latent"].path)
    code, out, _ = command(capsys, *words, tmp_path / "a", "--push", "hub:me/mine")
    assert code == 0 and "sent to https://hub/me/mine" in out
    assert Api.asked[0] == ("create", "me/mine", True) and "model_index.json" in Api.asked[1][2]
    monkeypatch.setattr(Api, "taken", True)
    code, _, err = command(capsys, *words, tmp_path / "b", "--push", "hub:me/mine")
    assert code == 2 and "holds a pipeline already" in err and len(Api.asked) == 3
    code, _, err = command(capsys, *words, tmp_path / "c", "--push", "me/../etc")
    assert code == 2 and "hub:ORG/NAME" in err and not (tmp_path / "c").exists()


@pytest.mark.parametrize("text", ["bert", "t5gemma_encoder"])
def test_pretrained_parts_leave_as_they_came(text, part, tiny, tmp_path, capsys):
    from diffusers import DiffusionPipeline
    from safetensors.torch import load_file

    settings = (
        "data.source.count=16",
        "budget.images=24",
        "data.caption.style=short",
        "optim.lr=0.02",
        f"encode.codec=pretrained_codec(path='{part('kl')}')",
        f"encode.text=pretrained_text(path='{part(text)}',max_tokens=6)",
    )
    folder = trained(tiny, tmp_path / "runs", "spark", *settings)
    code, _, err = command(capsys, "export", folder.path, tmp_path / "a")
    assert code == 0, err
    code, out, err = command(
        capsys,
        "sample",
        folder.path,
        "a red circle and a blue square",
        "--scale",
        1,
        "--to",
        tmp_path / "p",
        "--json",
    )
    assert code == 0 and "1 prompt is longer than 6 tokens: the rest was cut, '" in err
    pipeline = DiffusionPipeline.from_pretrained(tmp_path / "a")
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(
        "a red circle and a blue square",
        timesteps=[1000.0, 500.0],
        guidance_scale=2.0,
        height=32,
        width=32,
        latents=load_file(tmp_path / "a" / "noise.safetensors")["0"],
        use_resolution_binning=False,
        tokenizer_max_length=6,
        skip_text_cleaning=True,
    ).images[0]
    assert np.abs(pixels(json.loads(out)["files"][0]) - np.asarray(theirs).astype(int)).max() <= 1
    told = "got a BertModel" in (tmp_path / "a" / "README.md").read_text(encoding="utf-8")
    assert told == (text == "bert"), "the card tells of a warning where there is one"
    assert not [
        path
        for path in (tmp_path / "a").rglob("*.json")
        if str(part("kl").parent) in path.read_text()
    ]
