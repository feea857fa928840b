"""Trackers hear what the record says, grouped; are refused before training if they cannot be had;
and touch nothing."""

import importlib.util
import json
import shutil
import sys
import types

import pytest
from PIL import Image

from fulcrum.measure import evaluation as run_evaluation
from fulcrum.spec.errors import BadInput, install_extra
from fulcrum.spec.run import System
from fulcrum.training.session import Order, perform
from fulcrum.training.trackers import RunLabels, Trackers, require_trackers, together
from tests.fake_wandb import WANDB

PLACE = RunLabels("study-1 / a", "spark + muon(lr=1)", 3)


class Writer:
    """What torch's SummaryWriter is asked."""

    made: list["Writer"] = []

    def __init__(self, path, purge_step=None):
        self.path, self.purge_step, self.points, self.closed = path, purge_step, [], False
        self.pictures = []
        Writer.made.append(self)

    def add_scalar(self, name, value, step):
        self.points.append((name, value, step))

    def add_image(self, name, array, step, dataformats):
        self.pictures.append((name, array.shape, step, dataformats))

    def add_text(self, name, text):
        self.text = text

    def flush(self):
        pass

    def close(self):
        self.closed = True


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Stand-ins for the two packages, found by the import system as real ones are."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "wandb.py").write_text(WANDB)
    (folder / "tensorboard.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    for name in ("wandb", "tensorboard"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    fake = types.ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    Writer.made.clear()
    yield
    sys.modules.pop("wandb", None)


def tracked(run, out, names, *watchers):
    with Trackers(names, PLACE) as trackers:
        return perform(order(run, out), lambda text: None, together(*watchers, trackers.watch))


def order(run, out):
    return Order(run=run, seed=3, phrase="spark", out=out, system=System(), quiet=True)


@pytest.fixture(scope="module")
def plain(tiny, tmp_path_factory):
    """A run without trackers."""
    out = tmp_path_factory.mktemp("runs")
    return out, perform(order(tiny(), out), lambda text: None)


@pytest.fixture
def out(plain, tmp_path, monkeypatch):
    monkeypatch.setattr(run_evaluation, "VALIDATION", 16)  # previews look at the held-out loss too
    shutil.copytree(plain[0] / "cache", tmp_path / "runs" / "cache")
    return tmp_path / "runs"


def test_both_trackers_hear_what_the_record_says_and_change_nothing(packages, plain, tiny, out):
    result = tracked(tiny(), out, ("tensorboard", "wandb"))
    assert result["weights_sha256"] == plain[1]["weights_sha256"]
    record = [
        json.loads(line) for line in (out / result["key"] / "record.jsonl").read_text().splitlines()
    ]
    (writer,) = Writer.made
    assert writer.closed and writer.purge_step is None and result["key"] in writer.text
    assert writer.path == str(
        out / "tensorboard" / "study-1_a" / "spark_+_muon(lr=1)" / f"seed-3-{result['key'][:8]}"
    )
    assert [(value, step) for name, value, step in writer.points if name == "train/loss"] == [
        (line["loss"], line["images"]) for line in record
    ]
    told = json.loads((out / "wandb.json").read_text())
    assert (told["given"]["group"], told["given"]["job_type"], told["given"]["name"]) == (
        PLACE.group,
        PLACE.arm,
        f"{PLACE.arm}/3",
    )
    assert told["given"]["id"] == result["key"] and told["given"]["config"]["seed"] == 3
    assert [line["train/loss"] for line in told["lines"]] == [line["loss"] for line in record]
    assert {f"loss/{name}": value for name, value in record[-1]["parts"].items()}.items() <= told[
        "lines"
    ][-1].items()


def test_the_held_out_curve_is_told_once(packages, tiny, out):
    def curve(built, folder, state):
        def look(seen):
            with (folder.path / "curve.jsonl").open("a") as stream:
                stream.write(
                    json.dumps({"images": seen.state.images, "validation_loss": 0.5}) + "\n"
                )

        return [look]

    result = tracked(tiny(), out, ("tensorboard",), curve)
    told = [step for name, _, step in Writer.made[0].points if name == "held_out/validation_loss"]
    lines = (out / result["key"] / "curve.jsonl").read_text().splitlines()
    assert (
        told == [json.loads(line)["images"] for line in lines] and len(told) == len(set(told)) > 1
    )


def test_a_resumed_run_has_no_point_twice(packages, plain, tiny, out):
    def stop(built, folder, state):
        def at_half(seen):
            if seen.state.images == built.run.budget.images // 2 and not state.images:
                raise KeyboardInterrupt

        return [at_half]

    with pytest.raises(KeyboardInterrupt):
        tracked(tiny(), out, ("tensorboard",), stop)
    result = tracked(tiny(), out, ("tensorboard",), stop)
    assert result["weights_sha256"] == plain[1]["weights_sha256"]
    first, second = Writer.made
    assert first.closed and second.closed and first.path == second.path
    told = [step for name, _, step in first.points if name == "train/loss"]
    again = [step for name, _, step in second.points if name == "train/loss"]
    kept = [step for step in told if second.purge_step is None or step < second.purge_step]
    assert len({*kept, *again}) == len(kept) + len(again) and again[-1] == tiny().budget.images


def test_previews_are_shown_once(packages, tiny, out):
    from fulcrum.measure.preview import PreviewPlan, previewing

    plan = PreviewPlan(("a red circle", "a blue ring"), 16)
    result = tracked(tiny(), out, ("tensorboard", "wandb"), previewing(plan))
    sheets = sorted((out / result["key"] / "previews").iterdir())
    assert int(sheets[-1].stem) == tiny().budget.images
    (writer,) = Writer.made
    assert [step for _, _, step, _ in writer.pictures] == [int(path.stem) for path in sheets]
    assert {(name, shape[2], form) for name, shape, _, form in writer.pictures} == {
        ("previews", 3, "HWC")
    }
    told = json.loads((out / "wandb.json").read_text())
    assert [line["previews"]["picture"] for line in told["lines"] if "previews" in line] == list(
        map(str, sheets)
    )
    assert told["given"]["reinit"] == "create_new"


def test_a_tracker_that_breaks_is_left_and_the_run_goes_on(
    packages, plain, tiny, out, monkeypatch, capsys
):
    monkeypatch.setenv("FAKE_WANDB", "breaks")
    result = tracked(tiny(), out, ("wandb",))
    assert result["weights_sha256"] == plain[1]["weights_sha256"]
    assert capsys.readouterr().err.count("no network") == 1


def test_a_tracker_that_cannot_start_says_what_to_do(packages, tiny, out, monkeypatch):
    monkeypatch.setenv("FAKE_WANDB", "no login")
    with pytest.raises(BadInput, match="could not start: api_key") as error:
        tracked(tiny(), out, ("wandb",))
    assert "WANDB_MODE=offline" in error.value.hint


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_package_is_said_before_anything_is_built(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda asked: None)
    with pytest.raises(BadInput, match=f"needs the package {name}") as error:
        Trackers((name,), PLACE)
    assert install_extra(name) in error.value.hint


def test_an_unknown_tracker_is_an_error():
    with pytest.raises(BadInput, match="no tracker is called 'wandbb'") as error:
        require_trackers(["wandbb"])
    assert "wandb" in error.value.hint


def test_the_real_tensorboard_reads_what_was_written(tiny, out):
    pytest.importorskip("tensorboard", reason="pip install 'fulcrum-lab[tensorboard]' to run this")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from fulcrum.measure.preview import PreviewPlan, previewing

    plan = PreviewPlan(("a red circle",))
    result = tracked(tiny(), out, ("tensorboard",), previewing(plan))
    found = EventAccumulator(str(next((out / "tensorboard").rglob("seed-3-*"))))
    found.Reload()
    assert found.Scalars("train/loss")[-1].step == tiny().budget.images
    with Image.open(out / result["key"] / "previews" / f"{tiny().budget.images:012d}.png") as sheet:
        assert (
            found.Images("previews")[-1].width,
            found.Images("previews")[-1].height,
        ) == sheet.size
