"""`fulcrum train` on two processes: the run of one process, checkpoints that either can go on from,
agreed ends."""

import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
import torch

from fulcrum.cli import main
from fulcrum.spec.edit import key
from fulcrum.spec.errors import REQUEUE
from fulcrum.training import checkpoint
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Interrupted, perform

pytestmark = pytest.mark.long

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "processes")]
from ranks_of_a_run import Started  # noqa: E402
from train_world import CODEC, FEW, IMAGES, MUON, order  # noqa: E402

SCRIPT = Path(__file__).with_name("train_world.py")
ADAMW = "spark + ema(every=2)"
# of the way from the start: see `apart`; 9e-6, 1.3e-5, 1.6e-5 seen
NEAR = {ADAMW: 5e-5, MUON: 1e-4, CODEC: 1e-4}
LENGTH = {ADAMW: IMAGES, MUON: FEW, CODEC: 24}


def quiet(text):
    pass


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for probe in held:
        probe.bind(("127.0.0.1", 0))
    ports = [str(probe.getsockname()[1]) for probe in held]
    for probe in held:
        probe.close()
    return ports


def stop_alone(wanted, at):
    """A single process, asked to stop after some images."""

    def observers(built, folder, state):
        return [
            lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen.state.images == at else None
        ]

    with pytest.raises(Interrupted):
        perform(wanted, quiet, observers)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(folder, what rank 0 saw, what rank 1 saw, runs of one process). The pair is spawned once for
    all tests."""
    out = tmp_path_factory.mktemp("world")
    alone = {text: perform(asked(text, out / "alone"), quiet) for text in NEAR}
    stop_alone(asked(MUON, out / "begun_alone"), 24)
    for name in ("pair", "begun_together", "odd", "poisoned", "failed", "passes"):
        shutil.copytree(out / "alone" / "cache", out / name / "cache")
    command = [str(SCRIPT), str(out), *free_ports(12)]
    with Started(command, command) as run:
        ends = run.ended(200)
    assert [code for code, _ in ends] == [0, 0], "\n".join(text for _, text in ends)
    first, second = (json.loads((out / f"{rank}.json").read_text()) for rank in "01")
    return out, first, second, alone


def asked(text, out):
    return order(text, out, images=LENGTH[text])


def parts(out, text, at=-1):
    folder = RunFolder(out / key(asked(text, out).run, 0))
    return checkpoint.load(checkpoint.listing(folder.checkpoints)[at]).parts


def apart(found, expected, start):
    """The largest distance of a tensor from what one process gives, over the way it has come from
    the start."""
    assert found.keys() == expected.keys()
    return max(
        ((found[name] - value).norm() / (value - start[name]).norm()).item()
        for name, value in expected.items()
    )


@pytest.fixture(scope="module")
def beginning():
    """Where the runs start: the codec's run has all the names."""
    from fulcrum.training.build import build

    return build(order(CODEC, Path()).run).state_dict()


@pytest.mark.parametrize(("name", "text"), [("adamw", ADAMW), ("muon", MUON), ("codec", CODEC)])
def test_two_processes_train_what_one_does(world, beginning, name, text):
    out, first, second, _ = world
    assert (
        first[name].get("code", 0) == second[name].get("code", 0) == 0
        and "error" not in first[name]
    ), first[name]
    found, expected = parts(out / "pair", text), parts(out / "alone", text)
    assert apart(found["model"], expected["model"], beginning) < NEAR[text]
    for name in ("model", "optimizer", "average"):
        assert {n: (v.shape, v.dtype) for n, v in found[name].items()} == {
            n: (v.shape, v.dtype) for n, v in expected[name].items()
        }
    for name, value in expected["average"].items():
        torch.testing.assert_close(found["average"][name], value, rtol=1e-3, atol=1e-4)


def test_weights_are_close_in_themselves_too(world):
    """What "equal" means in fp32 after ten steps of AdamW: 1e-5 of a weight tensor's size."""
    out, *_ = world
    found, expected = parts(out / "pair", ADAMW)["model"], parts(out / "alone", ADAMW)["model"]
    far = {
        name: ((found[name] - value).norm() / value.norm()).item()
        for name, value in expected.items()
    }
    assert max(far.values()) < 1e-5, max(far, key=far.get)


def test_only_the_first_process_speaks_and_writes(world):
    out, first, second, alone = world
    result = json.loads(first["adamw"]["out"])
    assert second["adamw"]["out"] == "" and result["images"] == IMAGES
    folder = out / "pair" / result["key"]
    record = [json.loads(line) for line in (folder / "record.jsonl").read_text().splitlines()]
    single = [
        json.loads(line)
        for line in (out / "alone" / result["key"] / "record.jsonl").read_text().splitlines()
    ]
    assert [line["images"] for line in record] == [line["images"] for line in single]
    for line, other in zip(record, single, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert line["gradient_norm"] == pytest.approx(other["gradient_norm"], rel=1e-3)
    assert (
        sorted(path.name for path in (folder / "previews").iterdir())
        and (folder / "curve.jsonl").is_file()
    )
    assert not list(folder.glob("**/.*.writing")) and result["key"] == alone[ADAMW]["key"]


def test_a_finished_run_is_not_run_again(world):
    _, first, second, _ = world
    assert "finished already" in first["again"]["err"] and second["again"]["err"] == ""
    assert json.loads(first["again"]["out"]) == json.loads(first["adamw"]["out"])


def test_a_run_begun_by_one_process_is_finished_by_two(world, beginning):
    out, first, second, _ = world
    assert (
        first["goes_on"]["result"]["weights_sha256"]
        == second["goes_on"]["result"]["weights_sha256"]
    )
    said = "\n".join(first["goes_on"]["said"])
    assert "processes: 1 -> 2" in said and "resumed at 24 images" in said
    assert (
        apart(
            parts(out / "begun_alone", MUON)["model"],
            parts(out / "alone", MUON)["model"],
            beginning,
        )
        < NEAR[MUON]
    )


def test_a_run_begun_by_two_stops_together_and_is_finished_by_one(world, beginning):
    out, first, second, _ = world
    for seen in (first, second):  # only rank 1 got the signal
        assert (
            seen["stopped"]["error"] == "Interrupted"
            and "stopped at 24 of 40 images" in seen["stopped"]["message"]
        )
        assert seen["stopped"]["code"] == REQUEUE
    said = []
    result = perform(asked(MUON, out / "begun_together"), said.append)
    assert any("processes: 2 -> 1" in line for line in said) and any(
        "resumed at 24 images" in line for line in said
    )
    assert result["images"] == FEW
    assert (
        apart(
            parts(out / "begun_together", MUON)["model"],
            parts(out / "alone", MUON)["model"],
            beginning,
        )
        < NEAR[MUON]
    )


def test_a_batch_that_cannot_be_shared_is_refused_before_anything_is_made(world):
    out, first, second, _ = world
    assert first["odd"]["code"] == second["odd"]["code"] == 2
    assert "5 rows cannot be dealt evenly to 2 processes" in first["odd"]["out"]
    assert [path.name for path in (out / "odd").iterdir()] == ["cache"]


def test_a_step_that_is_not_finite_on_one_process_stops_or_is_skipped_by_all(world):
    _, first, second, _ = world
    for seen in (first, second):
        assert (
            seen["not_finite"]["error"] == "TrainingFailed"
            and "8 images is not finite" in seen["not_finite"]["message"]
        )
        assert seen["skipped"]["result"]["skipped"] == 2


def test_an_error_on_one_process_ends_all(world):
    out, first, second, _ = world
    assert second["failed"]["message"] == "rank 1 has had enough"
    assert (
        first["failed"]["error"] == "RankLost"
        and "rank 0 of 2 lost another process" in first["failed"]["message"]
    )
    assert (
        "rank 1 of 2" in first["failed"]["message"]
        and "rank 1 has had enough" in first["failed"]["message"]
    )


def test_a_batch_in_several_passes_is_the_same_sum(world, beginning):
    """Every block runs more than once before its backward: FSDP2 must not lose a part of the
    gradient."""
    out, first, _, _ = world
    assert first["passes"]["result"]["images"] == FEW
    assert (
        apart(parts(out / "passes", MUON)["model"], parts(out / "alone", MUON)["model"], beginning)
        < NEAR[MUON]
    )


def test_shards_are_rounded_as_the_whole(world):
    _, first, second, _ = world
    assert first["rounding"]["same"] and second["rounding"]["same"]
    assert first["rounding"]["local"] + second["rounding"]["local"] == 61


def test_half_an_environment_is_refused(monkeypatch, capsys, tmp_path):
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for told, message in (("2", "WORLD_SIZE is 2, but RANK"), ("two", "WORLD_SIZE is 'two'")):
        monkeypatch.setenv("WORLD_SIZE", told)
        with pytest.raises(SystemExit) as ended:
            main(["train", "spark", "--out", str(tmp_path)])
        assert ended.value.code == 2 and message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
