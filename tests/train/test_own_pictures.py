"""The user's own pictures from import to measures, with the embedded networks: encoded once,
trained, drawn, judged."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fulcrum.cli import main
from fulcrum.data.fillers import Folder
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.evaluation import can_measure, prompts, require_measurable
from fulcrum.spec.edit import key, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse
from fulcrum.spec.run import System
from fulcrum.studies.plan import Plan
from fulcrum.studies.plan_file import from_person
from fulcrum.studies.proof import with_primary
from fulcrum.studies.study import run as run_study
from fulcrum.training.feed import Feed
from fulcrum.training.run_folder import open_folder
from fulcrum.training.session import Order, perform
from tests.cells_here import all_here

COLOURS = {"red": (200, 30, 30), "blue": (30, 40, 200), "green": (40, 160, 60)}


def command(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    return end.value.code


def write(folder, count, worded="a large {} square in the centre"):
    folder.mkdir(parents=True)
    for number in range(count):
        name, colour = list(COLOURS.items())[number % 3]
        pixels = np.random.default_rng(number).integers(0, 50, (40, 36, 3)) + np.array(colour)
        stream = io.BytesIO()
        Image.fromarray(pixels.astype(np.uint8)).save(stream, "PNG")
        (folder / f"{number:04d}.png").write_bytes(stream.getvalue())
        (folder / f"{number:04d}.json").write_text(
            json.dumps({"long": worded.format(name), "short": name})
        )
    return folder


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    place = tmp_path_factory.mktemp("own")
    words = ("--size", 32, "--hold-out", 0.27, "--quiet")
    assert command("data", "import", write(place / "given", 240), place / "store", *words) == 0
    return place / "store"


def folder_run(tiny, path, *settings):
    return put(tiny("spark", *settings), "data.source", Folder(path=str(path)))


def test_from_the_command_line_to_measures(own, tmp_path, capfd):
    out, small = (
        tmp_path / "runs",
        ("model.width=32", "model.depth=2", "model.heads=2", "budget.batch=8", "sample.steps=2"),
    )
    words = ["train", "spark", "--images", 16, "--out", out, "--no-compile", "--quiet", "--json"]
    words += [
        word
        for setting in (f"data.source=folder(path='{own}')", *small)
        for word in ("--set", setting)
    ]
    assert command(*words) == 0
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert command("sample", result["key"], "a large red square in the centre", "--out", out) == 0
    assert len(list(Path(result["run"]).glob("samples/*.png"))) == 2
    capfd.readouterr()
    assert (
        command("measure", result["key"], "--samples", 64, "--out", out, "--quiet", "--json") == 0
    )
    found = json.loads(capfd.readouterr().out.splitlines()[-1])["metrics"]
    assert set(found) == {"frechet", "frechet_limit", "mmd", "mmd_published", "validation_loss"}
    assert all(np.isfinite(one["value"]) for one in found.values())
    assert list(Path(result["run"]).glob("previews/*.png"))


def test_a_moved_folder_is_the_same_run_and_another_caption_another(own, tiny, tmp_path):
    moved = shutil.copytree(own, tmp_path / "moved")
    run, same = folder_run(tiny, own), folder_run(tiny, moved)
    assert (
        key(run, 0)
        == key(same, 0)
        != key(put(run, "data.source", Folder(path=str(own), count=5)), 0)
    )
    assert Path(run.data.source.path).is_absolute()


@pytest.mark.parametrize(
    "source",
    [
        "mix(paths=('{0}', '{0}'), weights=(1.0, 2.0))",
        "folder(path='{0}', judged='{0}')",
        "folder(path='{0}')",
    ],
)
def test_a_run_is_known_again_wherever_its_pictures_lie(source, own, tiny, tmp_path):
    """Going on with a mix failed: its identity has the contents that its description does not
    name."""
    moved = shutil.copytree(own, tmp_path / "moved")
    here, there = (tiny("spark", f"data.source={source.format(path)}") for path in (own, moved))
    first = open_folder(tmp_path / "runs", here, 0, "spark", {})
    assert open_folder(tmp_path / "runs", here, 0, "spark", {}) == first
    assert open_folder(tmp_path / "runs", there, 0, "spark", {}) == first
    assert str(moved) in json.dumps(first.about()["run"]), "drawn from where they lie now"
    other = put(here, "optim.lr", 1e-4)
    (tmp_path / "runs" / key(other, 0)).mkdir()
    shutil.copy(first.path / "about.json", tmp_path / "runs" / key(other, 0))
    with pytest.raises(BadInput, match="holds another run"):
        open_folder(tmp_path / "runs", other, 0, "spark", {})


def test_what_is_trained_on_is_what_lies_there(own, tiny, cache):
    """Pixels straight from the store, in the global order, with their own captions."""
    run = folder_run(tiny, own, "encode.codec=pixels", "model.patch=8", "flow.predict=x")
    feed = Feed(run, 3, cache)
    batch, _ = feed.at(8, 8)
    source = feed.source_at(8)
    wanted = source.read(batch.ids.numpy()).images
    assert np.abs(batch.x0.numpy() - (wanted / 127.5 - 1)).max() < 1e-6
    assert feed.prompts_at(8, 8) == [
        source.store.captions(int(source.numbers[n]))["long"][0] for n in batch.ids
    ]


def test_captions_that_the_embedded_encoder_cannot_read(tiny, tmp_path, cache):
    cases = (
        ("{} zebra wardrobe quixotically", "does not know 75%.*zebra"),
        ("日本語", "no word it can read"),
        ("red " * 70, "70 words, the most is 63"),
    )
    for number, (worded, words) in enumerate(cases):
        assert (
            command(
                "data",
                "import",
                write(tmp_path / f"given{number}", 6, worded),
                tmp_path / f"store{number}",
                "--size",
                32,
                "--hold-out",
                0.2,
                "--quiet",
            )
            == 0
        )
        with pytest.raises(BadInput, match=words) as error:
            Feed(folder_run(tiny, tmp_path / f"store{number}"), 0, cache).at(0, 4)
        assert "pretrained_text" in error.value.hint
    said = []
    write(tmp_path / "some", 6, "a large {} zebra in the centre")
    assert (
        command("data", "import", tmp_path / "some", tmp_path / "readable", "--size", 32, "--quiet")
        == 0
    )
    Feed(folder_run(tiny, tmp_path / "readable"), 0, cache, said.append).at(0, 4)
    assert any("all read alike, as 'unknown': zebra" in line for line in said)


def test_what_cannot_be_judged_is_refused_before_training(own, tiny, tmp_path):
    run = folder_run(tiny, own)
    assert len(prompts(run, 100).texts) == 100 and prompts(run, 100).scenes is None
    assert (
        can_measure(run, "mmd")
        and not can_measure(run, "shape_accuracy")
        and can_measure(tiny(), "shape_accuracy")
    )
    for primary in (
        "attribute_f1",
        "attribute_f1_second",
        "attribute_precision",
        "attribute_accuracy",
    ):
        assert not can_measure(run, primary) and can_measure(tiny(), primary)
        with pytest.raises(
            BadInput,
            match=f"'{primary}' asks what is seen where, which only the embedded world knows",
        ):
            require_measurable(run, primary)
    plan = {
        "title": "own",
        "baseline": "spark",
        "arms": ("muon",),
        "seeds": (0, 1),
        "images": 32,
        "samples": 64,
        "settings": (f"data.source=folder(path='{own}')",),
    }
    with pytest.raises(BadInput, match="only the embedded"):
        run_study(
            Plan(**plan, primary="attribute_accuracy"), CATALOG, tmp_path, "", lambda text: None
        )
    assert not list(tmp_path.iterdir())
    unnamed = with_primary(Plan(**plan), run)
    # 0.02 of MMD² is half of what a baseline has
    assert unnamed.primary == "mmd" and unnamed.smallest_effect is None
    assert unnamed.hash == Plan(**plan, primary="mmd", smallest_effect=None).hash
    assert with_primary(Plan(**plan, smallest_effect=0.5), run).smallest_effect == 0.5
    assert with_primary(Plan(**plan), tiny()) == Plan(**plan)
    assert (
        command(
            "data",
            "import",
            write(tmp_path / "given", 30),
            tmp_path / "few",
            "--size",
            32,
            "--quiet",
        )
        == 0
    )
    with pytest.raises(BadInput, match="at least 64"):
        require_measurable(folder_run(tiny, tmp_path / "few"))
    assert (
        command(
            "data",
            "import",
            tmp_path / "given",
            tmp_path / "none",
            "--size",
            32,
            "--hold-out",
            0,
            "--quiet",
        )
        == 0
    )
    order = Order(folder_run(tiny, tmp_path / "none"), 0, "spark", tmp_path / "runs", System())
    from fulcrum.measure.preview import previews

    with pytest.raises(BadInput, match="no pictures of the split"):
        perform(order, lambda text: None, previews)


def test_a_study_of_ones_own_pictures_needs_no_word_about_its_metric(own, tmp_path, monkeypatch):
    all_here(monkeypatch)
    small = ("model.width=32", "model.depth=2", "model.heads=2", "budget.batch=8", "sample.steps=2")
    plan = {
        "title": "own",
        "baseline": "spark",
        "arms": ["muon"],
        "seeds": [0, 1],
        "images": 16,
        "samples": 64,
        "compile": False,
    }
    asked = from_person(
        {**plan, "settings": [f"data.source=folder(path='{own}')", *small]}, "the plan"
    )
    result, _ = run_study(asked, CATALOG, tmp_path, "", lambda text: None)
    (effect,) = [
        row
        for row in result.effects
        if row.metric == result.plan.primary_metric and row.unit == "images"
    ]
    assert (
        effect.metric == "mmd"
        and effect.n == 2
        and effect.margin == result.plan.smallest_effect > 0
    )
    # the frozen plan is found again
    again, _ = run_study(asked, CATALOG, tmp_path, "", lambda text: None)
    assert again.plan == result.plan and len(list(tmp_path.glob("study-*"))) == 1


def test_two_folders_are_mixed_in_training(own, tiny, tmp_path, cache):
    assert (
        command(
            "data",
            "import",
            write(tmp_path / "given", 20, "a small {} circle at the top"),
            tmp_path / "other",
            "--size",
            32,
            "--quiet",
        )
        == 0
    )
    mix = f"data.source=mix(paths=('{own}', '{tmp_path / 'other'}'), weights=(3.0, 1.0))"
    run = put(tiny(), "data.source", parse("spark", CATALOG, [mix]).run.data.source)
    feed = Feed(run, 0, cache)
    told = [text for at in range(0, 1024, 64) for text in feed.prompts_at(at, 64)]
    assert sum("circle" in text for text in told) == 256
    assert feed.at(0, 8)[0].x0.shape[0] == 8


def test_the_commands_say_what_is_wrong(own, tmp_path, capfd):
    assert command("data", "check", own) == 0 and "sound: 240 samples" in capfd.readouterr().out
    assert command("data", "card", own, "--json") == 0
    assert json.loads(capfd.readouterr().out)["captions"] == {"long": 240, "short": 240}
    assert command("data", "show", tmp_path / "sheet.png", "--of", own) == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width == 6 * 152 and len(sheet.convert("RGB").getcolors(1 << 20)) > 50, (
            "pictures and words, not white"
        )
    capfd.readouterr()
    assert (
        command("data", "import", own, tmp_path / "x") == 2
        and "imported already" in capfd.readouterr().err
    )
    assert command("data", "import", tmp_path / "no", tmp_path / "x") == 2
    assert command("data", "import", own.parent / "given", tmp_path / "x", "--caption", "long") == 2
    assert "NAME=FIELD" in capfd.readouterr().err
    assert (
        command("data", "check", own.parent / "given") == 2
        and "fulcrum data import" in capfd.readouterr().err
    )
    copy = shutil.copytree(own, tmp_path / "copy")
    shard = next((copy / "shards").iterdir())
    data = bytearray(shard.read_bytes())
    data[600] ^= 1
    shard.write_bytes(data)
    assert command("data", "check", copy) == 1 and "a bit has changed" in capfd.readouterr().err
    assert command("data", "check", copy, "--json") == 1
    assert not json.loads(capfd.readouterr().out.splitlines()[-1])["sound"]
