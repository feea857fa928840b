"""The public API: a Step in one's own loop; train, sample, measure and study as their docstrings
show them."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
import torch

import fulcrum
from fulcrum import (
    Card,
    Lever,
    __version__,
    build,
    feed,
    measure,
    phrase,
    put,
    sample,
    study,
    train,
)
from fulcrum.cli import app, main
from fulcrum.measure import evaluation as run_evaluation
from fulcrum.measure import preview as plain_training
from fulcrum.notebook import FinishedRun
from fulcrum.old_paths import FORMER_PATHS
from fulcrum.spec.edit import key
from fulcrum.spec.errors import BadInput
from fulcrum.training import trained_run
from tests.cells_here import all_here
from tools.pages.command_pages import every_command

ROOT = Path(__file__).parents[1]
TINY = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "data.source.count=64",
)


def test_the_readme_loop_learns(cache):
    run = phrase("spark + tread", *TINY)
    step, data = build(run), feed(run, cache=cache)
    optimizer = torch.optim.AdamW(step.parameters(), lr=run.optim.lr)
    losses = []
    for images in range(0, 80 * run.budget.batch, run.budget.batch):
        loss = step(*data.at(images)).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10])


def test_the_lines_of_the_readme_run(cache):
    lines = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    small = lines.replace('phrase("spark + tread")', f'phrase("spark + tread", *{TINY})').replace(
        "feed(run)", f"feed(run, cache={str(cache)!r})"
    )
    assert small.count("model.width") == small.count("cache=") == 1
    names = {}
    exec(small, names)
    assert names["losses"].total.item() > 0 and all(
        p.grad is not None for p in names["step"].backbone.blocks.parameters()
    )


def test_parameter_counts_of_the_published_models():
    from fulcrum.spec.run import System
    from fulcrum.training.build import Context, backbone_of

    with torch.device("meta"):
        for name, expected in (("prx_256", 1_170_691_648), ("prx_pixels_1024", 1_177_215_744)):
            backbone = backbone_of(Context(phrase(name), 0, System()))
            assert sum(p.numel() for p in backbone.parameters()) == expected


SMALL = (*TINY, "budget.images=16", "sample.steps=2")
RECIPE = """from fulcrum import phrase
from fulcrum.spec.run import RunSpec

def small() -> RunSpec:
    return phrase("spark", {settings})
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tiny run, trained by its phrase with a recipe of one's own."""
    out = tmp_path_factory.mktemp("api")
    (out / "small.py").write_text(RECIPE.format(settings=", ".join(map(repr, SMALL))))
    return out, train("small + muon", seed=1, out=out, files=[out / "small.py"], threads=1)


def test_training_gives_a_handle_and_is_not_done_twice(trained):
    out, run = trained
    assert (
        run.folder == out / run.key
        and run.result["images"] == 16
        and run.result["images_per_second"] > 0
    )
    heard = []
    again = train(
        "small + muon", seed=1, out=out, files=[out / "small.py"], threads=1, say=heard.append
    )
    assert again == run and "finished already" in heard[-1]


def test_a_run_and_its_phrase_and_the_command_line_have_one_key(trained, capsys):
    out, run = trained
    by_value = train(phrase("small + muon", files=[out / "small.py"]), seed=1, out=out, threads=1)
    assert by_value.key == run.key
    with pytest.raises(SystemExit):
        main(
            [
                "train",
                "small + muon",
                "--seed",
                "1",
                "--out",
                str(out),
                "--with",
                str(out / "small.py"),
                "--json",
            ]
        )
    assert (
        json.loads(capsys.readouterr().out.splitlines()[-1])["weights_sha256"]
        == run.result["weights_sha256"]
    )


def test_training_takes_what_the_command_takes(trained, monkeypatch):
    """Every option of `fulcrum train` has its keyword; those that should change speed alone are
    part of no key."""
    out, run = trained
    options = {option.name for option in every_command(app)["train"].params}
    elsewhere = {
        "phrase": "run",
        "levers": "files",
        "compile_blocks": "compile",
        "images": "settings",
    }
    of_a_terminal = {"quiet", "as_json", "price", "dry_run", "start"}
    assert {elsewhere.get(name, name) for name in options - of_a_terminal} | {"say"} == set(
        signature(train).parameters
    )
    held = {}
    monkeypatch.setattr(
        plain_training,
        "train_run",
        lambda order, *more: (held.update(order=order, more=more[1:]), 0),
    )
    monkeypatch.setattr(FinishedRun, "of", lambda result, files: result)
    asked = dict(
        mesh="ddp", microbatch=4, recompute="full", save_every=8, threads=1, on_alarm="stop"
    )
    looks = dict(
        track=["tensorboard"],
        preview_prompts=["a ring"],
        preview_every=8,
        keep_checkpoints=2,
        timeout=60,
    )
    train("spark", 0, out, **asked, **looks, most_skipped=0.5)
    assert {name: getattr(held["order"].system, name) for name in asked} == asked and held[
        "order"
    ].most_skipped == 0.5
    assert held["more"] == (["tensorboard"], (("a ring",), 8), 2, 60)
    assert key(held["order"].run, 0) == key(phrase("spark"), 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"mesh": "3d"}, "--mesh: must be ddp, fsdp, or replicas x shards such as 2x4, found '3d'"),
        ({"mesh": "2x4"}, "8 processes"),
        ({"microbatch": 0}, "--microbatch: "),
        ({"recompute": "some"}, "--recompute: "),
        ({"timeout": 0}, "timeout must be from 1 to 1e+06, found 0"),
        ({"preview_every": -1}, "preview_every must be 0 or more, found -1"),
        ({"most_skipped": float("nan")}, "most_skipped must be from 0 to 1, found nan"),
        ({"preview_prompts": "a ring"}, "preview_prompts is one text, expected several"),
    ],
)
def test_options_out_of_their_range_are_refused(words, says, tmp_path):
    assert says in refused(train, "spark", out=tmp_path, **words) and not list(tmp_path.iterdir())


def test_pictures_are_arrays_by_handle_folder_and_key(trained):
    out, run = trained
    prompts = ["a large red circle at the top left.", "a small blue square."]
    pictures = sample(run, prompts, guidance=3.0)
    assert pictures.shape == (2, 32, 32, 3) and pictures.dtype == np.uint8 and pictures.std() > 0
    assert np.array_equal(sample(run.folder, prompts, guidance=3.0), pictures)
    assert np.array_equal(sample(run.key[:8], prompts[:1], out=out, guidance=3.0), pictures[:1])
    assert sample(run, prompts[:1], size=(16, 48), steps=1).shape == (1, 16, 48, 3)
    # as --size: the width first
    assert sample(run, prompts[:1], size="48x16", steps=1).shape == (1, 16, 48, 3)
    for wrong in ("48", "48x", 48, (48,), (1.5, 16), ("48", "16"), (0, 16), (16, 9999)):
        with pytest.raises(
            BadInput, match="a picture's size is a width and a height, such as 48x32"
        ):
            sample(run, prompts[:1], size=wrong)
    with pytest.warns(UserWarning, match="1 prompt is longer than 63 words"):
        sample(run, "red " * 64, steps=1)
    with pytest.raises(BadInput, match="no run under"):
        sample("ffff", prompts, out=out)


def test_measured_values_carry_their_cards(trained, monkeypatch):
    monkeypatch.setattr(run_evaluation, "REFERENCE", 512)
    monkeypatch.setattr(run_evaluation, "VALIDATION", 128)
    out, run = trained
    values = measure(run, samples=64, out=out)
    assert values["mmd"].low <= values["mmd"].value <= values["mmd"].high
    assert (
        values["mmd"].card.n == 64
        and values["mmd"].card.better == "lower"
        and "validation_loss" in values
    )


def test_the_other_lines_of_the_readme_run(trained, monkeypatch):
    monkeypatch.setattr(run_evaluation, "REFERENCE", 512)
    monkeypatch.setattr(run_evaluation, "VALIDATION", 128)
    out, run = trained
    lines = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    small = lines.replace(
        '"spark + muon", seed=1',
        f'"small + muon", seed=1, out={str(out)!r}, files=["{out}/small.py"]',
    )
    names = {}
    exec(small.replace("measure(run)", f"measure(run, samples=64, out={str(out)!r})"), names)
    assert (
        names["run"].key == run.key
        and names["pictures"].shape == (1, 32, 32, 3)
        and "mmd" in names["values"]
    )


def test_two_sets_of_pictures_are_measured_by_path_or_as_arrays(tmp_path, capsys):
    numbers = np.random.default_rng(0)
    one, other = (numbers.integers(0, 256, (96, 32, 32, 3), np.uint8) // scale for scale in (1, 2))
    np.savez(tmp_path / "one.npz", one)
    np.savez(tmp_path / "other.npz", other)
    values = measure(one, other, out=tmp_path)
    assert measure(tmp_path / "one.npz", str(tmp_path / "other.npz"), out=tmp_path) == values
    with pytest.raises(SystemExit):
        main(
            [
                "measure",
                str(tmp_path / "one.npz"),
                str(tmp_path / "other.npz"),
                "--out",
                str(tmp_path),
                "--json",
            ]
        )
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])["metrics"]
    assert {name: value.value for name, value in values.items()} == {
        name: row["value"] for name, row in printed.items()
    }
    with pytest.raises(BadInput, match="expected a run, found ndarray"):
        measure(one, out=tmp_path)
    with pytest.raises(BadInput, match="a run is measured by its own metrics"):
        measure(trained_run.TrainedRun("x", tmp_path, {}), features=["clip"], out=tmp_path)


def test_a_study_gives_effects(tmp_path, monkeypatch):
    all_here(monkeypatch)
    plan = {
        "title": "api",
        "baseline": "spark",
        "arms": ["muon"],
        "seeds": [0, 1],
        "settings": list(TINY),
        "images": 16,
        "samples": 64,
        "primary": "validation_loss",
        "compile": False,
    }
    result = study(plan, out=tmp_path)
    effects = {(effect.arm, effect.metric): effect for effect in result.effects}
    assert effects["muon", "validation_loss"].n == 2 and list(tmp_path.glob("study-*/report.html"))


def refused(call, *given, **settings):
    with pytest.raises(BadInput) as error:
        call(*given, **settings)
    return str(error.value)


@pytest.mark.parametrize("seed", [-1, 10**19, "a", True, 1.5])
def test_seeds_are_refused_as_the_command_refuses_them(seed, tmp_path, capsys):
    run = phrase("spark", *SMALL)
    refusal = refused(train, run, seed=seed, out=tmp_path)
    assert refusal.startswith("the seed: ") and refusal == refused(build, run, seed) == refused(
        feed, run, seed
    )
    if type(seed) is int:
        with pytest.raises(SystemExit) as end:
            main(["train", "spark", "--seed", str(seed), "--out", str(tmp_path), "--quiet"])
        assert end.value.code == 2 and refusal in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_what_is_no_run_is_refused_in_words(trained, tmp_path):
    for call in (train, build, feed):
        for wrong, name in ((3, "int"), (None, "NoneType"), (trained[1], "FinishedRun")):
            assert f"expected the description of a run, found {name}" in refused(call, wrong)


def test_one_prompt_is_one_picture_and_no_prompt_is_refused(trained):
    _, run = trained
    prompt = "a red circle."
    assert np.array_equal(sample(run, prompt), sample(run, [prompt])) and sample(
        run, prompt
    ).shape == (1, 32, 32, 3)
    for wrong in ([], (), [3], 3, None, [prompt, None]):
        assert f"expected one prompt or more, as text, found {wrong!r}" in refused(
            sample, run, wrong
        )


@pytest.mark.parametrize(
    "text", ["a = 1", 'title = "t"', 'title = "t"\nseeds = 3', 'title = 3\nbaseline = "spark"']
)
def test_a_mapping_is_refused_in_the_words_for_a_plan_file(text, tmp_path):
    (tmp_path / "plan.toml").write_text(text)
    by_file = refused(study, tmp_path / "plan.toml", out=tmp_path)
    assert refused(study, tomllib.loads(text), out=tmp_path) == by_file.replace(
        str(tmp_path / "plan.toml"), "the plan"
    )


def test_what_is_no_plan_is_refused_in_words(tmp_path):
    assert "expected a plan: a file, a mapping or a Plan, found int" in refused(
        study, 3, out=tmp_path
    )
    assert "a plan has no '1'" in refused(study, {1: 2}, out=tmp_path)


def test_errors_name_arrays_and_not_where_they_were_written(tmp_path):
    good = np.zeros((4, 32, 32, 3), np.uint8)
    for wrong in (good[:0], good[0, 0], good.astype(np.float32), good.astype(object)):
        for pictures, reference, name in (
            (wrong, good, "the pictures"),
            (good, wrong, "the reference"),
        ):
            refusal = refused(measure, pictures, reference, out=tmp_path)
            assert refusal.startswith(name) and "fulcrum-pictures" not in refusal, refusal


def test_a_lever_of_ones_own_is_built_from_public_names(tmp_path):
    class Slow(Lever):
        name = "slow"
        touches = ("optim.lr",)
        card = Card(says="smaller steps")

        def edit(self, run):
            return put(run, "optim.lr", run.optim.lr / 10)

    run = phrase("spark")
    assert Slow().edit(run).optim.lr == pytest.approx(run.optim.lr / 10)


def test_a_filler_that_stands_in_no_file_is_refused(tmp_path):
    from types import ModuleType

    from fulcrum.training.flow.fillers import EvenWeight

    module = ModuleType("typed_into_a_shell")
    sys.modules["typed_into_a_shell"] = module
    run = put(
        phrase("spark"),
        "flow.weight",
        type("Mine", (EvenWeight,), {"__module__": "typed_into_a_shell"})(),
    )
    try:
        with pytest.raises(BadInput, match="stand in no file"):
            train(run, out=tmp_path)
    finally:
        del sys.modules["typed_into_a_shell"]


IMPORTS = (
    "from fulcrum import study, train, measure",
    "import fulcrum.studies.plan, fulcrum.training.build, fulcrum.judge.card",
    "from fulcrum.studies.plan_file import load",
    "from fulcrum.train import fillers",
    "import importlib; importlib.import_module('fulcrum.judge.card')",
)


@pytest.mark.parametrize("first", IMPORTS)
def test_functions_keep_their_names_whatever_is_imported_first(first):
    """Rooms are called train, measure and study too: see docs/decisions/0020-public-api.md."""
    code = [
        first,
        *IMPORTS,
        "import fulcrum",
        "from types import FunctionType, ModuleType",
        "import sys",
    ]
    code += ["for name in ('train', 'measure'):"]
    code += ["    assert isinstance(getattr(fulcrum, name), FunctionType), name"]
    code += ["    assert isinstance(sys.modules['fulcrum.' + name], ModuleType), name"]
    code += [
        "from fulcrum import study as again",
        "assert again is fulcrum.study and callable(load) and callable(fillers.EMA)",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(code)], check=True, cwd=ROOT)


@pytest.mark.parametrize("former", FORMER_PATHS)
def test_a_former_path_is_the_module_of_today(former):
    assert importlib.import_module(former) is importlib.import_module(FORMER_PATHS[former])


def test_the_version_is_the_one_that_the_changelog_works_on():
    newest = re.search(r"^## (\S+)( \(in work\))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert version == newest[1] + (".dev0" if newest[2] else "")


def test_importing_costs_little():
    code = (
        "import sys, fulcrum; print(sorted({'torch', 'pydantic', 'numpy', 'typer'} &"
        " set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there_and_says_what_it_is():
    assert set(fulcrum.__all__) <= {*dir(fulcrum), "Card", "Lever", "put", "__version__"}
    assert re.fullmatch(r"\d+\.\d+.*", __version__) and (ROOT / "fulcrum" / "py.typed").is_file()
    assert all(getattr(fulcrum, name).__doc__ for name in fulcrum.__all__ if name != "__version__")
    assert trained_run.TrainedRun._fields == ("key", "folder", "result")
    with pytest.raises(AttributeError, match="no attribute 'tran'"):
        _ = fulcrum.tran
