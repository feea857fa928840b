"""The folder of a run, without a training: what is written anew, what is swept, which weights are
handed out."""

import json
import os

import pytest
import torch

from fulcrum.spec.errors import BadInput, RunFailed
from fulcrum.spec.run import System
from fulcrum.training import checkpoint, run_folder
from fulcrum.training.checkpoint import Checkpoint, State, weights_hash
from fulcrum.training.optim.fillers import AdamWRule
from fulcrum.training.run_folder import RunFolder, open_folder, tidy
from fulcrum.training.start_weights import trained_weights, trunk_weights

WEIGHTS = {"w": torch.arange(6.0).reshape(2, 3)}


@pytest.fixture
def folder(tiny, tmp_path):
    return open_folder(tmp_path / "deep" / "runs", tiny(), 0, "spark", {})


def save(folder, images=16, key=None):
    parts = {"model": {"backbone.w": WEIGHTS["w"]}, "optimizer": {}, "average": {}}
    checkpoint.save(
        folder.checkpoints, Checkpoint(parts, key or folder.path.name, State(images), System())
    )


def finish(folder, weights_sha256):
    facts = {
        **dict.fromkeys(("run", "key", "phrase"), "x"),
        **dict.fromkeys(("images", "seconds", "images_per_second"), 1),
    }
    (folder.path / "result.json").write_text(
        json.dumps({**facts, "weights_sha256": weights_sha256})
    )


def test_a_description_is_written_anew_only_where_its_places_have_changed(
    folder, tiny, monkeypatch
):
    """The same bytes at another place are the same run: it draws with those from then on."""
    about = folder.path / "about.json"
    first, identity = about.read_bytes(), about.stat().st_ino
    again = open_folder(folder.path.parent, tiny(), 0, "spark", {})
    assert again == folder and (about.read_bytes(), about.stat().st_ino) == (first, identity)
    moved = json.loads(first)
    moved["run"]["moved"], moved["phrase"] = "elsewhere", "as it was written"
    about.write_text(json.dumps(moved))
    with pytest.raises(BadInput, match="holds another run"):
        open_folder(folder.path.parent, tiny(), 0, "spark", {})
    monkeypatch.setattr(run_folder, "agree", lambda written, asked, fields: True)
    open_folder(folder.path.parent, tiny(), 0, "spark", {})
    assert json.loads(about.read_text()) == {**json.loads(first), "phrase": "as it was written"}


def test_what_is_in_the_way_is_refused_and_a_description_that_was_being_written_is_not(
    folder, tiny
):
    (folder.path / "about.json").rename(folder.path / ".about.json.1-0123abcd.writing")
    assert open_folder(folder.path.parent, tiny(), 0, "spark", {}) == folder
    (folder.path / "about.json").unlink()
    (folder.path / "mine.txt").touch()
    with pytest.raises(BadInput, match="exists and is not the folder of a run"):
        open_folder(folder.path.parent, tiny(), 0, "spark", {})


def test_tidying_sweeps_what_killed_saves_left_and_follows_no_link(folder, tmp_path):
    young, old = (folder.path / f".{name}.1-0123abcd.writing" for name in ("young", "old"))
    half = folder.checkpoints / ".000000000016.1-0123abcd.writing"
    half.mkdir(parents=True)
    for path in (young, old):
        path.touch()
    os.utime(old, (0, 0))
    tidy(folder)
    # others may write beside the checkpoints
    assert not half.exists() and not old.exists() and young.exists()
    half.mkdir()
    folder.checkpoints.rename(tmp_path / "elsewhere")
    folder.checkpoints.symlink_to(tmp_path / "elsewhere")
    tidy(folder)
    assert (tmp_path / "elsewhere" / half.name).exists()


def test_a_finished_run_hands_out_the_weights_that_it_ended_with_and_no_others(folder):
    with pytest.raises(BadInput, match="has no checkpoint yet"):
        trained_weights(folder)
    save(folder)
    assert torch.equal(trained_weights(folder)["w"], WEIGHTS["w"])  # it is not finished: its newest
    finish(folder, weights_hash(WEIGHTS))
    assert trained_weights(folder).keys() == WEIGHTS.keys()
    finish(folder, "0" * 64)
    with pytest.raises(RunFailed, match="does not hold the weights that the run ended with"):
        trained_weights(folder)


@pytest.mark.parametrize("finished", [False, True])
def test_a_damaged_or_foreign_checkpoint_says_what_helps(folder, finished):
    save(folder)
    if finished:
        finish(folder, weights_hash(WEIGHTS))
    (path,) = folder.checkpoints.glob("*/model.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(RunFailed, match="is damaged: checksum") as error:
        trained_weights(folder)
    assert ("runs rm" if finished else "goes on from the checkpoint before") in error.value.hint
    save(folder, key="0" * 16)
    with pytest.raises(RunFailed, match=f"belongs to the run {'0' * 16}"):
        trained_weights(folder)


def test_a_run_starts_from_the_weights_that_it_was_told_and_no_others(folder):
    save(folder)
    finish(folder, weights_hash(WEIGHTS))
    assert torch.equal(trunk_weights(folder.path, weights_hash(WEIGHTS))["w"], WEIGHTS["w"])
    with pytest.raises(
        BadInput, match=r"holds other weights .* than this run starts from \(000000000000\)"
    ):
        trunk_weights(folder.path, "0" * 64)


def test_a_run_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadInput, match="there is no run at"):
        trained_weights(RunFolder(tmp_path / "nowhere"))


def test_what_decides_no_result_may_differ_and_is_written_anew(tiny, tmp_path, monkeypatch):
    """As a place does: here a rule is told by its kind alone."""
    monkeypatch.setattr(AdamWRule, "identity", lambda self: {})
    one, other = tiny(), tiny("spark", "optim.rule.beta1=0.8")
    first = open_folder(tmp_path, one, 0, "spark", {})
    assert open_folder(tmp_path, other, 0, "spark", {}) == first
    assert (
        json.loads((first.path / "about.json").read_text())["run"]["optim"]["rule"]["beta1"] == 0.8
    )
