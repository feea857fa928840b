"""Training sessions: exact resume, honest failure, nothing overwritten."""

import json
import os
import shutil
import signal
import threading
import time

import pytest
import torch

from fulcrum.spec.edit import key, put
from fulcrum.spec.errors import BadInput, RunFailed, TrainingFailed
from fulcrum.spec.run import System
from fulcrum.training import checkpoint, run_folder
from fulcrum.training.feed import Feed
from fulcrum.training.run_folder import RunFolder, claim, in_use
from fulcrum.training.session import Interrupted, Order, perform
from fulcrum.training.start_weights import trained_weights


def order(run, out, **changes):
    given = {"seed": 0, "phrase": "spark", "system": System(), "quiet": True, **changes}
    return Order(run=run, out=out, **given)


def quiet(text):
    pass


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A run trained in one go."""
    out = tmp_path_factory.mktemp("runs")
    return out, perform(order(tiny(), out), quiet)


def test_the_same_seed_gives_the_same_weights_and_another_seed_does_not(whole, tiny, tmp_path):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")
    again = perform(order(tiny(), tmp_path), quiet)
    other = perform(order(tiny(), tmp_path, seed=1), quiet)
    assert again["weights_sha256"] == whole[1]["weights_sha256"] != other["weights_sha256"]


def test_a_killed_run_resumes_to_the_same_weights(whole, tiny, tmp_path, lose):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")
    lose(order(tiny(), tmp_path), 32)
    said = []
    result = perform(order(tiny(), tmp_path), said.append)
    assert any("resumed at" in line for line in said)
    assert result["weights_sha256"] == whole[1]["weights_sha256"]
    lines = [
        json.loads(line)
        for line in (tmp_path / result["key"] / "record.jsonl").read_text().splitlines()
    ]
    assert [line["images"] for line in lines] == sorted({line["images"] for line in lines})


def test_what_a_killed_save_left_is_gone_after_the_next_start(whole, tiny, tmp_path, lose):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")
    lose(order(tiny(), tmp_path), 32)
    left = tmp_path / key(tiny(), 0) / "checkpoints" / ".000000000040.4711-0123abcd.writing"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    assert perform(order(tiny(), tmp_path), quiet)["weights_sha256"] == whole[1]["weights_sha256"]
    assert not left.exists()


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_gives_the_same_run(
    whole, tiny, tmp_path, lose
):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")
    lose(order(tiny(), tmp_path), 40)
    saved = checkpoint.listing(tmp_path / key(tiny(), 0) / "checkpoints")
    assert len(saved) == 2
    weights = saved[-1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    said = []
    result = perform(order(tiny(), tmp_path), said.append)
    assert (
        any("damaged" in line for line in said)
        and result["weights_sha256"] == whole[1]["weights_sha256"]
    )


def test_when_every_checkpoint_is_damaged_nothing_starts_over_in_silence(whole, tiny, tmp_path):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    folder = RunFolder(tmp_path / whole[1]["key"])
    (folder.path / "result.json").unlink()
    for path in checkpoint.listing(folder.checkpoints):
        (path / "state.json").write_text(
            (path / "state.json").read_text().replace('"images"', '"imagez"')
        )
    with pytest.raises(RunFailed, match="every checkpoint"):
        perform(order(tiny(), tmp_path), quiet)


def test_a_finished_run_is_not_run_again(whole, tiny):
    said = []
    assert perform(order(tiny(), whole[0]), said.append) == whole[1]
    assert "finished already" in said[0]


def test_a_folder_that_holds_another_run_is_refused(whole, tiny, tmp_path):
    other = put(tiny(), "optim.clip", 0.5)
    shutil.copytree(whole[0] / whole[1]["key"], tmp_path / key(other, 0))
    with pytest.raises(BadInput, match="holds another run"):
        perform(order(other, tmp_path), quiet)
    (tmp_path / key(tiny(), 5)).mkdir()
    (tmp_path / key(tiny(), 5) / "letter.txt").write_text("mine")
    with pytest.raises(BadInput, match="not the folder of a run"):
        perform(order(tiny(), tmp_path, seed=5), quiet)


def test_two_processes_cannot_train_one_run(whole, tiny, monkeypatch):
    monkeypatch.setattr(run_folder, "PATIENCE", 0.0)
    folder = RunFolder(whole[0] / whole[1]["key"])
    with claim(folder), pytest.raises(RunFailed, match="another process"), claim(folder):
        pass
    (folder.path / "result.json").rename(folder.path / "kept")  # else there is nothing to train
    with claim(folder), pytest.raises(RunFailed, match="another process"):
        perform(order(tiny(), whole[0]), quiet)
    (folder.path / "kept").rename(folder.path / "result.json")


def test_a_run_in_training_is_told_from_a_stopped_one(whole):
    folder = RunFolder(whole[0] / whole[1]["key"])
    assert not in_use(folder)
    with claim(folder):
        assert in_use(folder)
    assert not in_use(folder)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_run_that_still_encodes_stops_at_once(whole, tiny, tmp_path, monkeypatch, number, code):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")

    def at(self, position, rows=None):
        os.kill(os.getpid(), number)
        time.sleep(1)
        pytest.fail("it waited for its first step")

    monkeypatch.setattr(Feed, "at", at)
    with pytest.raises(Interrupted, match="before the first step") as stopped:
        perform(order(tiny(), tmp_path), quiet)
    assert stopped.value.exit_code == code
    monkeypatch.undo()
    assert perform(order(tiny(), tmp_path), quiet)["weights_sha256"] == whole[1]["weights_sha256"]


def test_no_memory_for_the_thread_that_saves_is_told_as_it_is(whole, tiny, tmp_path, monkeypatch):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")

    def short(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", short)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        perform(order(tiny(), tmp_path), quiet)
    monkeypatch.undo()
    assert perform(order(tiny(), tmp_path), quiet)["weights_sha256"] == whole[1]["weights_sha256"]


def test_a_full_disk_leaves_the_last_good_checkpoint(whole, tiny, tmp_path, monkeypatch):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")
    real, calls = checkpoint.write_tensors, []

    def full(path, tensors, rows):
        calls.append(path)
        if len(calls) > 6:  # the third checkpoint
            path.write_bytes(b"half a file")
            raise OSError(28, "No space left on device")
        return real(path, tensors, rows)

    monkeypatch.setattr(checkpoint, "write_tensors", full)
    with pytest.raises(RunFailed, match="No space left"):
        perform(order(tiny(), tmp_path), quiet)
    assert len(checkpoint.listing(tmp_path / key(tiny(), 0) / "checkpoints")) == 2
    monkeypatch.setattr(checkpoint, "write_tensors", real)
    assert perform(order(tiny(), tmp_path), quiet)["weights_sha256"] == whole[1]["weights_sha256"]


def test_a_step_that_is_not_finite_stops_before_the_optimizer_or_is_counted(whole, tiny, tmp_path):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")

    def poison(built, folder, state):
        def look(seen):
            if seen.state.images == 16:
                latents = built.feed.ready[0].encoder.latents
                latents.stored = lambda ids, pinned=False: torch.full(
                    (len(ids), 8, 8, 8), torch.nan
                )

        return [look]

    with pytest.raises(RunFailed, match="not finite"):
        perform(order(tiny(), tmp_path), quiet, poison)
    skipping = tiny("spark", "optim.not_finite=skip")
    with pytest.raises(
        TrainingFailed,
        match="1 of 6 steps were left out because they were not finite, more than 0.05",
    ):
        perform(order(skipping, tmp_path), quiet, poison)
    assert RunFolder(tmp_path / key(skipping, 0)).result() is None
    result = perform(order(skipping, tmp_path, seed=1, most_skipped=0.7), quiet, poison)
    assert result["skipped"] == 4
    weights = trained_weights(RunFolder(tmp_path / result["key"]))
    assert all(bool(value.isfinite().all()) for value in weights.values())


def test_accumulation_gives_the_same_run(whole, tiny, tmp_path):
    shutil.copytree(whole[0] / "cache", tmp_path / "cache")
    run = tiny(
        "spark", "optim.rule.eps=1e-5"
    )  # with 1e-15 a step is a sign, and rounding turns it where a gradient is nearly zero
    one, parts = (
        trained_weights(RunFolder(out / perform(order(run, out, system=system), quiet)["key"]))
        for out, system in ((tmp_path, System()), (tmp_path / "parts", System(microbatch=3)))
    )
    # of weights of size one
    assert all((one[name] - parts[name]).abs().max() < 1e-6 for name in one)


def test_a_run_extends_a_finished_one(whole, tiny, tmp_path):
    from fulcrum.training.fillers import Trunk

    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    start = Trunk(run=whole[1]["key"], weights_sha256=whole[1]["weights_sha256"])
    longer = put(tiny(), "start", start)
    result = perform(order(longer, tmp_path), quiet)
    assert (
        result["key"] != whole[1]["key"] and result["weights_sha256"] != whole[1]["weights_sha256"]
    )
    wrong = put(tiny(), "start", Trunk(run=whole[1]["key"], weights_sha256="0" * 64))
    with pytest.raises(BadInput, match="other weights"):
        perform(order(wrong, tmp_path), quiet)
